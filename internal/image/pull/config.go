// Package pull makes container images present on the node, by their pull policy, for pods that
// may use them. It limits how many images are pulled at once, pulls an image once for all who
// wait for it, and waits longer after each failed pull (ImagePullBackOff).
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

// Runtime is what the manager needs of the container runtime. Calls come
// concurrently, also for one reference with different credentials.
type Runtime interface {
	// ImageStatus returns what the runtime has under a name or reference, and the zero
	// Stored without an error if it has nothing.
	ImageStatus(ctx context.Context, image string) (Stored, error)
	// PullImage fetches the image, logging in with login unless that is nil, and returns
	// the runtime's own reference for it, which ImageStatus understands.
	PullImage(ctx context.Context, image string, login *credentials.Credential) (ref string, err error)
}

// Keyring knows what pods may log in with.
type Keyring interface {
	// For returns the credentials for an image, the best first; none for a pull without.
	// The pod is nil where the node itself wants the image.
	For(ctx context.Context, p *v1.Pod, objects credentials.Objects, image string) ([]credentials.Credential, error)
}

// Access knows who may use an image that is on the node; package access has it.
type Access interface {
	// MayUse reports whether whoever has the credentials may use the image, which the
	// runtime has under ref, without a pull. An error is that of have.
	MayUse(image, ref string, have func() ([]credentials.Credential, error)) (bool, error)
	// Intend comes before a pull; after an error there must be none.
	Intend(image string) error
	// Pulled and NotPulled come after it. login is what opened the image, nil for nothing;
	// known is false if the runtime may have pulled the image all the same.
	Pulled(image, ref string, login *credentials.Credential) error
	NotPulled(image string, known bool)
}

// Meter takes in measurements.
type Meter interface {
	// Asked counts requests (kubelet_image_manager_ensure_image_requests_total), with its
	// labels: policy always, ifnotpresent or never; present and pull true, false or unknown.
	Asked(policy, present, pull string)
	// Pulled measures pulls that succeeded (kubelet_image_pull_duration_seconds); size is
	// in bytes, 0 if unknown.
	Pulled(took time.Duration, size int64)
}

// Transfers reports how far pulls are, where the runtime reports it.
type Transfers interface {
	Transfer(ctx context.Context, image string) (engine.Transfer, bool)
}

// Stored is an image as the runtime has it.
type Stored struct {
	// Ref is the runtime's own reference (an ID or a digest), to create containers from.
	Ref string
	// Size is in bytes, 0 if unknown.
	Size int64
}

// Config is what a Manager is built from.
type Config struct {
	Runtime Runtime
	Keyring Keyring
	Access  Access
	Meter   Meter
	// Transfers may be nil: then it isn't known how far pulls are.
	Transfers Transfers
	// MaxParallelPulls limits how many images are pulled at once; 0 is no limit.
	// (KubeletConfiguration maxParallelImagePulls; serializeImagePulls is 1.)
	MaxParallelPulls int
	// PullsPerSecond limits how many pulls are begun; 0 is no limit. Burst is how many
	// more may be begun at once after a while with fewer.
	// (KubeletConfiguration registryPullQPS, registryBurst.)
	// These three can be changed: see SetLimits.
	PullsPerSecond, Burst int
	Log                   logr.Logger
}

// Request asks for one image.
type Request struct {
	// Image is the reference as the container spec has it.
	Image string
	// Policy is Always, Never or IfNotPresent; empty counts as IfNotPresent.
	Policy v1.PullPolicy
	// Pod is who wants it, Objects what it may see; nil for the node itself.
	Pod     *v1.Pod
	Objects credentials.Objects
	// Pulling, unless nil, is called once before a pull begins that this request waits
	// for, also if that is under way for others or has to wait for other pulls. It isn't
	// called where no pull is needed.
	Pulling func()
	// Now has it pulled also while a failure is waited out: for a person who asks for it.
	Now bool
}

// Image is one that is present.
type Image struct {
	Stored
	// Pulled says that it was fetched for this request, or for another one at the same time.
	Pulled bool
	// Took is how long the pull took; of one that was under way for another request
	// already, the part that this request saw.
	Took time.Duration
	// Waited is how long this request waited for it: Took, and the wait for other pulls.
	Waited time.Duration
}

// Message reports what came of a request for this image, in the words of the kubelet's
// event Pulled. The name is that which the request had.
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

// LimitsOf returns what SetLimits takes, of a configuration.
func LimitsOf(k *v1beta1.KubeletConfiguration) (parallel, perSecond, burst int) {
	return parallelPulls(k), int(ptr.Deref(k.RegistryPullQPS, 0)), int(k.RegistryBurst)
}

// parallelPulls is how many images are pulled at once; 0 for any number
// (KubeletConfiguration serializeImagePulls, maxParallelImagePulls).
func parallelPulls(k *v1beta1.KubeletConfiguration) int {
	if k.MaxParallelImagePulls != nil {
		return int(*k.MaxParallelImagePulls)
	}
	if k.SerializeImagePulls == nil || *k.SerializeImagePulls {
		return 1
	}
	return 0
}
