// Package pull makes images present on the node, by their pull policy, for pods that may use them. It limits
// concurrent pulls, pulls an image once for all requests that wait for it, and backs off after failed pulls
// (ImagePullBackOff).
package pull

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/runtime/engine"
)

// Runtime is the part of the container runtime that Manager uses. Calls are concurrent, also for one image with
// different credentials.
type Runtime interface {
	// ImageStatus returns the image with this name or reference, or the zero Stored without an error if there is
	// none.
	ImageStatus(ctx context.Context, image string) (Stored, error)
	// PullImage pulls the image with the credential login, nil for none. It returns the runtime's own reference,
	// which ImageStatus accepts.
	PullImage(ctx context.Context, image string, login *credentials.Credential) (ref string, err error)
}

// Keyring returns the credentials that pods may use.
type Keyring interface {
	// For returns the credentials for an image, best first; none for an anonymous pull. The pod is nil if the node
	// itself requests the image.
	For(ctx context.Context, p *v1.Pod, objects credentials.Objects, image string) ([]credentials.Credential, error)
}

// Access decides who may use an image that is on the node. Package access implements it.
type Access interface {
	// MayUse reports whether the holder of the credentials may use the image without a pull. ref is the image's
	// reference in the runtime. have returns the credentials; its error is the only one that MayUse returns.
	MayUse(image, ref string, have func() ([]credentials.Credential, error)) (bool, error)
	// Intend is called before a pull. After an error the image must not be pulled.
	Intend(image string) error
	// Pulled or NotPulled is called after the pull. login is the credential of the successful pull, nil for none.
	// known is false if the runtime may have pulled the image all the same.
	Pulled(image, ref string, login *credentials.Credential) error
	NotPulled(image string, known bool)
}

// Meter records metrics.
type Meter interface {
	// Asked counts requests (kubelet_image_manager_ensure_image_requests_total) by the metric's labels: policy is
	// always, ifnotpresent or never; present and pull are true, false or unknown.
	Asked(policy, present, pull string)
	// Pulled records successful pulls (kubelet_image_pull_duration_seconds). size is in bytes, 0 if unknown.
	Pulled(took time.Duration, size int64)
}

// Transfers reports the progress of pulls. It returns false if the runtime doesn't report it.
type Transfers interface {
	Transfer(ctx context.Context, image string) (engine.Transfer, bool)
}

// Stored is an image in the runtime.
type Stored struct {
	// Ref is the runtime's reference (an ID or a digest), from which containers are created.
	Ref string
	// Size is in bytes, 0 if unknown.
	Size int64
}

// Config configures a Manager.
type Config struct {
	Runtime Runtime
	Keyring Keyring
	Access  Access
	Meter   Meter
	// Transfers may be nil: there are then no progress reports.
	Transfers Transfers
	// MaxParallelPulls limits concurrent pulls; 0 is no limit. (KubeletConfiguration maxParallelImagePulls;
	// serializeImagePulls sets it to 1.)
	MaxParallelPulls int
	// PullsPerSecond limits how many pulls start per second; 0 is no limit. Burst is the size of the token bucket.
	// (KubeletConfiguration registryPullQPS, registryBurst.) SetLimits changes these three.
	PullsPerSecond, Burst int
	Log                   logr.Logger
}

// Request requests one image.
type Request struct {
	// Image is the reference in the container spec.
	Image string
	// Policy is Always, Never or IfNotPresent; empty counts as IfNotPresent.
	Policy v1.PullPolicy
	// Pod is the pod that needs the image, nil for the node itself. Objects gives access to the API objects that the
	// pod may read.
	Pod     *v1.Pod
	Objects credentials.Objects
	// Pulling, unless nil, is called once before this request waits for a pull, even if that pull is already running
	// or queued. It isn't called if no pull is needed.
	Pulling func()
	// Now ignores the backoff, for pulls that a user requests.
	Now bool
}

// Image is an image that Ensure made present.
type Image struct {
	Stored
	// Pulled means that the image was pulled for this request, or for a concurrent one.
	Pulled bool
	// Took is the duration of the pull. If this request joined a running pull, only the time after the request
	// counts.
	Took time.Duration
	// Waited is how long this request waited: Took plus the wait for other pulls.
	Waited time.Duration
}

// Message returns the message of the kubelet's event Pulled. name is the image of the request.
func (i Image) Message(name string) string {
	if !i.Pulled {
		return fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", name)
	}
	text := fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting).", name,
		i.Took.Truncate(time.Millisecond), i.Waited.Truncate(time.Millisecond))
	if i.Size > 0 {
		text += fmt.Sprintf(" Image size: %d bytes.", i.Size)
	}
	return text
}

// LimitsOf returns the arguments of SetLimits for a configuration.
func LimitsOf(k *v1beta1.KubeletConfiguration) (parallel, perSecond, burst int) {
	return parallelPulls(k), int(ptr.Deref(k.RegistryPullQPS, 0)), int(k.RegistryBurst)
}

// parallelPulls returns the limit of concurrent pulls; 0 is no limit (KubeletConfiguration serializeImagePulls,
// maxParallelImagePulls).
func parallelPulls(k *v1beta1.KubeletConfiguration) int {
	if k.MaxParallelImagePulls != nil {
		return int(*k.MaxParallelImagePulls)
	}
	if k.SerializeImagePulls == nil || *k.SerializeImagePulls {
		return 1
	}
	return 0
}
