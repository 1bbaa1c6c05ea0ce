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
// concurrently, but never two at once of one kind for one image.
type Runtime interface {
	// ImageStatus returns the runtime's own reference for an image it has, and ""
	// without an error for one it doesn't have.
	ImageStatus(ctx context.Context, image string) (ref string, err error)
	// PullImage fetches the image and returns the runtime's own reference for it.
	PullImage(ctx context.Context, image string) (ref string, err error)
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
}

// Image is one that is present.
type Image struct {
	// Ref is the runtime's own reference (an ID or a digest), to create containers from.
	Ref string
	// Pulled says that it was fetched for this request, or for another one at the same time.
	Pulled bool
	// Took is how long this request waited for the pull.
	Took time.Duration
}

// Manager makes images present. It is safe for concurrent use, holds no
// goroutine while nobody waits for it, and doesn't back off: whoever calls it
// again at once tries again at once.
type Manager struct {
	rt     Runtime
	log    logr.Logger
	pulls  *semaphore.Weighted // nil for no limit
	status shared
	pull   shared
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
	ref, err := m.lookUp(ctx, name)
	switch {
	case ctx.Err() != nil:
		return Image{}, ctx.Err()
	case err != nil:
		return Image{}, &pod.Failure{
			Reason:  reasonInspect,
			Message: fmt.Sprintf("can't ask the runtime whether it has image %q: %s", name, runtimeMessage(err)),
		}
	case ref != "":
		return Image{Ref: ref}, nil
	case r.Policy == v1.PullNever:
		return Image{}, &pod.Failure{
			Reason:  reasonNever,
			Message: fmt.Sprintf("image %q is not on this node, and imagePullPolicy Never forbids to pull it; import it, or use IfNotPresent", name),
		}
	}
	return m.fetch(ctx, name, r)
}

func (m *Manager) lookUp(ctx context.Context, name string) (string, error) {
	return m.status.do(ctx, name, func(ctx context.Context) (string, error) {
		return m.rt.ImageStatus(ctx, name)
	})
}

func (m *Manager) fetch(ctx context.Context, name string, r Request) (Image, error) {
	began := time.Now()
	ref, err := m.pull.do(ctx, name, func(ctx context.Context) (string, error) {
		if m.pulls != nil {
			if err := m.pulls.Acquire(ctx, 1); err != nil {
				return "", err
			}
			defer m.pulls.Release(1)
		}
		m.log.V(2).Info("pulling image", "image", name, "pod", r.Pod)
		return m.rt.PullImage(ctx, name)
	})
	if ctx.Err() != nil {
		return Image{}, ctx.Err()
	}
	if err != nil {
		return Image{}, m.pullFailure(ctx, name, r, err)
	}
	return Image{Ref: ref, Pulled: true, Took: time.Since(began)}, nil
}

// pullFailure explains why a pull failed. Whoever asks for Always with an image
// that was only ever imported gets told the way out.
func (m *Manager) pullFailure(ctx context.Context, name string, r Request, err error) error {
	message := fmt.Sprintf("failed to pull image %q: %s", name, runtimeMessage(err))
	if r.Policy == v1.PullAlways {
		if ref, err := m.lookUp(ctx, name); err == nil && ref != "" {
			message += "; the image is on this node, but imagePullPolicy Always asks its registry each time: IfNotPresent or Never would use it as it is"
		}
	}
	return &pod.Failure{Reason: pullReason(err), Message: message}
}
