// Package image makes container images present on the node, by their pull policy.
package image

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Runtime is what the manager needs of the container runtime. Calls come
// concurrently, but never two at once of one kind for one reference.
type Runtime interface {
	// ImageStatus returns what the runtime has under a name or reference, and the zero
	// Stored without an error if it has nothing.
	ImageStatus(ctx context.Context, image string) (Stored, error)
	// PullImage fetches the image and returns the runtime's own reference for it.
	PullImage(ctx context.Context, image string) (ref string, err error)
}

// Stored is an image as the runtime has it.
type Stored struct {
	// Ref is the runtime's own reference (an ID or a digest), to create containers from.
	Ref string
	// Size is in bytes, 0 if unknown.
	Size int64
}

// Options are the manager's settings.
type Options struct {
	// MaxParallelPulls limits how many images are pulled at once; 0 is no limit.
	// (KubeletConfiguration maxParallelImagePulls; serializeImagePulls is 1.)
	MaxParallelPulls int
}

// Request asks for one image.
type Request struct {
	// Image is the reference as the container spec has it.
	Image string
	// Policy is Always, Never or IfNotPresent; empty counts as IfNotPresent.
	Policy v1.PullPolicy
	// Pod is who wants it, "namespace/name", for the log.
	Pod string
	// Pulling, unless nil, is called once before a pull begins that this request waits
	// for, also if that is under way for others or has to wait for other pulls. It isn't
	// called where no pull is needed.
	Pulling func()
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

// Message tells what came of a request for this image, in the words of the kubelet's
// event Pulled. The name is that which the request had.
func (i Image) Message(name string) string {
	if !i.Pulled {
		return fmt.Sprintf("Container image %q already present on machine", name)
	}
	text := fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting).", name, i.Took.Truncate(time.Millisecond), i.Waited.Truncate(time.Millisecond))
	if i.Size > 0 {
		text += fmt.Sprintf(" Image size: %d bytes.", i.Size)
	}
	return text
}

// Manager makes images present. It is safe for concurrent use, holds no
// goroutine while nobody waits for it, and doesn't back off: whoever calls it
// again at once tries again at once.
type Manager struct {
	rt     Runtime
	log    logr.Logger
	pulls  *semaphore.Weighted // nil for no limit
	status shared[Stored]
	pull   shared[pulled]
}

// New makes a manager.
func New(rt Runtime, o Options, log logr.Logger) *Manager {
	m := &Manager{rt: rt, log: log}
	if o.MaxParallelPulls > 0 {
		m.pulls = semaphore.NewWeighted(int64(o.MaxParallelPulls))
	}
	return m
}

// Ensure makes the image present. Requests for one image at the same time share
// one look and one pull; a pull goes on while anybody waits for it.
//
// The error is a *pod.Failure with one of the kubelet's waiting reasons, or the
// context's error if that ended first.
func (m *Manager) Ensure(ctx context.Context, r Request) (Image, error) {
	name, err := withTag(r.Image)
	if err != nil {
		return Image{}, err
	}
	if r.Policy == v1.PullAlways {
		return m.fetch(ctx, name, r)
	}
	stored, err := m.lookUp(ctx, name)
	switch {
	case ctx.Err() != nil:
		return Image{}, ctx.Err()
	case err != nil:
		return Image{}, &pod.Failure{
			Reason:  reasonInspect,
			Message: fmt.Sprintf("can't ask the runtime whether it has image %q: %s", name, runtimeMessage(err)),
		}
	case stored.Ref != "":
		return Image{Stored: stored}, nil
	case r.Policy == v1.PullNever:
		return Image{}, &pod.Failure{
			Reason:  reasonNever,
			Message: fmt.Sprintf("image %q is not on this node, and imagePullPolicy Never forbids to pull it; import it, or use IfNotPresent", name),
		}
	}
	return m.fetch(ctx, name, r)
}

func (m *Manager) lookUp(ctx context.Context, name string) (Stored, error) {
	return m.status.do(ctx, name, func(ctx context.Context) (Stored, error) {
		return m.rt.ImageStatus(ctx, name)
	})
}

// pulled is what came of a pull that took so long.
type pulled struct {
	Stored
	took time.Duration
}

func (m *Manager) fetch(ctx context.Context, name string, r Request) (Image, error) {
	if err := ctx.Err(); err != nil {
		return Image{}, err
	}
	if r.Pulling != nil {
		r.Pulling()
	}
	began := time.Now()
	p, err := m.pull.do(ctx, name, func(ctx context.Context) (pulled, error) {
		if m.pulls != nil {
			if err := m.pulls.Acquire(ctx, 1); err != nil {
				return pulled{}, err
			}
			defer m.pulls.Release(1)
		}
		m.log.V(2).Info("pulling image", "image", name, "pod", r.Pod)
		return m.pullNow(ctx, name)
	})
	if ctx.Err() != nil {
		return Image{}, ctx.Err()
	}
	if err != nil {
		return Image{}, m.pullFailure(ctx, name, r, err)
	}
	waited := time.Since(began)
	return Image{Stored: p.Stored, Pulled: true, Took: min(p.took, waited), Waited: waited}, nil
}

func (m *Manager) pullNow(ctx context.Context, name string) (pulled, error) {
	began := time.Now()
	ref, err := m.rt.PullImage(ctx, name)
	if err != nil {
		return pulled{}, err
	}
	p := pulled{Stored: Stored{Ref: ref}, took: time.Since(began)}
	// The size is only told: an image whose size isn't known is as good.
	if stored, err := m.rt.ImageStatus(ctx, ref); err == nil {
		p.Size = stored.Size
	}
	return p, nil
}

// pullFailure explains why a pull failed. Whoever asks for Always with an image
// that was only ever imported gets told the way out.
func (m *Manager) pullFailure(ctx context.Context, name string, r Request, err error) error {
	message := fmt.Sprintf("failed to pull image %q: %s", name, runtimeMessage(err))
	if r.Policy == v1.PullAlways {
		if stored, err := m.lookUp(ctx, name); err == nil && stored.Ref != "" {
			message += "; the image is on this node, but imagePullPolicy Always asks its registry each time: IfNotPresent or Never would use it as it is"
		}
	}
	return &pod.Failure{Reason: pullReason(err), Message: message}
}
