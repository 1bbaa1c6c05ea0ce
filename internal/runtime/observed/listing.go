package observed

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

var errNoStatus = errors.New("the runtime's answer has no usable status")

// listing is one list in progress. The CRI's lists don't include exit codes and addresses: they come from the
// status of each instance that is new or has changed.
type listing struct {
	rt    Runtime
	log   logr.Logger
	cache *cache
	ends  ends
	boot  string
	begun time.Time
	// fetches get the details that the list doesn't include.
	fetches []func(context.Context) error

	mu      sync.Mutex
	listed  map[string]struct{}
	reading reading
	// incomplete means that the runtime refused the status of an instance.
	incomplete bool
}

func (l *listing) sandbox(item *runtimeapi.PodSandbox) {
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
	if k.Gone || k.Detailed && (k.Container == c.State || k.Container == pod.ContainerExited) {
		return
	}
	l.fetches = append(l.fetches, func(ctx context.Context) error {
		st, err := l.rt.ContainerStatus(ctx, c.ID)
		_, full, ok := translate.ContainerUpdate(st, c.SandboxID, l.boot, k.Instance)
		if err == nil && ok {
			l.ends.complete(identity, &full, k)
			l.addContainer(containerReading{Pod: identity, Container: full, Detailed: true})
			return nil
		}
		there, fatalErr := l.noteMissing(c.ID, identity, k, err)
		if there {
			if c.State == pod.ContainerExited {
				// Without its status, an ended container must not count as successful.
				c.State = pod.ContainerUnknown
				c.Message = "the runtime can't tell how the container ended: " + errorText(err)
			}
			l.addContainer(containerReading{Pod: identity, Container: c})
		}
		return fatalErr
	})
}

// noteMissing handles a status call that failed. there is false if the instance has been removed (and is dropped
// from the list); the error is set if the runtime doesn't answer. Otherwise the runtime refuses this one status.
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

func (l *listing) addContainer(c containerReading) {
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
