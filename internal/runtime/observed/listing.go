package observed

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

var errNoStatus = errors.New("the runtime's answer has no usable status")

// listing is one list in progress. The CRI's lists don't include exit codes and addresses. The status of an instance
// has them: it is fetched for each instance that is new or has changed.
type listing struct {
	rt    Runtime
	log   logr.Logger
	cache *cache
	ends  ends
	boot  string
	begun time.Time
	// sandboxIDs are the IDs of all listed sandboxes.
	sandboxIDs []string
	// fetches get the details that the list doesn't include. Only split adds the fetches for dead containers.
	fetches []func(context.Context) error
	dead    []*containerReading
	// newest has the newest instances of each container, the first one first.
	newest map[slot][detailed]instance

	mu      sync.Mutex
	listed  map[string]struct{}
	reading reading
	// incomplete means that the runtime refused the status of an instance.
	incomplete bool
}

// detailed is how many of a container's instances always get their details: the last two, and the one before if the
// newest one never ran and has to be removed.
const detailed = 3

// slot identifies a container of a pod's spec, instance one of its instances.
type (
	slot struct {
		uid  types.UID
		name string
	}
	instance struct {
		id      string
		attempt int
		created time.Time
	}
)

func (l *listing) sandbox(item *runtimeapi.PodSandbox) {
	l.sandboxIDs = append(l.sandboxIDs, item.GetId())
	identity, sb, ok := translate.Sandbox(item)
	if !ok {
		return
	}
	l.listed[sb.ID] = struct{}{}
	l.cache.Revive(l.begun, sb.ID)
	k := l.cache.Know(sb.ID)
	if k.Gone || k.Detailed && (k.Sandbox == sb.State || k.Sandbox == pod.SandboxNotReady) {
		return
	}
	l.fetches = append(l.fetches, func(ctx context.Context) error {
		st, err := l.rt.PodSandboxStatus(ctx, sb.ID)
		_, full, ok := translate.SandboxStatus(st)
		if err == nil && ok {
			l.addSandbox(sandboxReading{Pod: identity, Sandbox: full, Detailed: true})
			return nil
		}
		there, err := l.noteMissing(sb.ID, identity, k, err)
		if there {
			l.addSandbox(sandboxReading{Pod: identity, Sandbox: sb})
		}
		return err
	})
}

func (l *listing) container(item *runtimeapi.Container) {
	identity, c, ok := translate.Container(item, l.boot)
	if !ok {
		return
	}
	l.listed[c.ID] = struct{}{}
	l.cache.Revive(l.begun, c.ID)
	k := l.cache.Know(c.ID)
	if k.Gone {
		return
	}
	l.note(slot{identity.UID, c.Name}, instance{c.ID, c.Attempt, c.CreatedAt})
	if k.Detailed && (k.Container == c.State || k.Container == pod.ContainerExited) {
		return
	}
	r := &containerReading{Pod: identity, Container: c}
	if c.State == pod.ContainerExited {
		l.dead = append(l.dead, r)
	} else {
		l.fetches = append(l.fetches, l.detailsOf(r, k))
	}
}

// detailsOf returns the fetch of a container's details.
func (l *listing) detailsOf(r *containerReading, k Knowledge) func(context.Context) error {
	return func(ctx context.Context) error {
		st, err := l.rt.ContainerStatus(ctx, r.Container.ID)
		_, full, ok := translate.ContainerUpdate(st, r.Container.SandboxID, l.boot, k.Instance)
		if err == nil && ok {
			l.ends.complete(r.Pod, &full, k)
			l.addContainer(&containerReading{Pod: r.Pod, Container: full, Detailed: true})
			return nil
		}
		there, fatalErr := l.noteMissing(r.Container.ID, r.Pod, k, err)
		if there {
			if r.Container.State == pod.ContainerExited {
				// Without its status, an ended container must not count as successful.
				r.Container.State = pod.ContainerUnknown
				r.Container.Message = "the runtime can't tell how the container ended: " + errorText(err)
			}
			l.addContainer(r)
		}
		return fatalErr
	}
}

// note records an instance in newest, if it is one of the newest of its container.
func (l *listing) note(s slot, i instance) {
	top := l.newest[s]
	for n, other := range top {
		switch {
		case other.id == i.id: // another part of the list has the same instance
			return
		case other.id == "" || newer(i.attempt, i.created, i.id, other.attempt, other.created, other.id):
			copy(top[n+1:], top[n:])
			top[n] = i
			l.newest[s] = top
			return
		}
	}
}

// split decides which dead containers get their details: the newest instances of each container. A node may have
// thousands of older ones, which are added without details: their exit codes matter only if another program removes the
// newer instances.
func (l *listing) split() {
	l.reading.Containers = slices.Grow(l.reading.Containers, len(l.dead))
	for _, d := range l.dead {
		c := &d.Container
		top := l.newest[slot{d.Pod.UID, c.Name}]
		if slices.ContainsFunc(top[:], func(i instance) bool { return i.id == c.ID }) {
			l.fetches = append(l.fetches, l.detailsOf(d, l.cache.Know(c.ID)))
			continue
		}
		c.FinishedAt = top[detailed-1].created // at the latest
		c.ExitCode = pod.UnknownExitCode
		l.addContainer(d)
	}
	l.dead, l.newest = nil, nil
}

// noteMissing handles a status call that failed. The result there is false if the instance has been removed: then it is
// dropped from the list. The error is set if the runtime as a whole doesn't answer. If the result there is true, the
// runtime refused only this status.
func (l *listing) noteMissing(id string, identity translate.Identity, k Knowledge, err error) (there bool, _ error) {
	if err == nil {
		err = errNoStatus
	}
	if fatal(err) {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if status.Code(err) == codes.NotFound {
		delete(l.listed, id)
		return false, nil
	}
	l.incomplete = true
	if k.UID == "" {
		l.log.Info("The container runtime lists an object but returns no status of it: continuing without it", "id", id,
			"pod", klog.KRef(identity.Namespace, identity.Name), "err", err.Error())
	}
	return true, nil
}

func (l *listing) addSandbox(s sandboxReading) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading.Sandboxes = append(l.reading.Sandboxes, s)
}

func (l *listing) addContainer(c *containerReading) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading.Containers = append(l.reading.Containers, c)
}

// fetch gets the details of new and changed instances.
func (l *listing) fetch(ctx context.Context) error {
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(statusConcurrency)
	for _, f := range l.fetches {
		g.Go(func() error {
			if inner.Err() != nil {
				return nil
			}
			return f(inner)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// fatal reports whether an error means that the runtime as a whole doesn't answer.
func fatal(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return true
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
