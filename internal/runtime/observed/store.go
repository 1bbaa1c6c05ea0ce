// Package observed holds the runtime's state of every pod: it is the pod lifecycle event generator (PLEG) and the
// pod cache in one.
//
// The store is driven by the runtime's event stream. It also makes a complete list right after the stream is
// connected, after the stream broke, and every few minutes, to find changes that the stream missed. Readings of the
// runtime may arrive late, twice and out of order, so a cache merges them per instance, and states only move
// forward. A change wakes the pod's worker; it sends no data to it.
package observed

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// Runtime is the part of the CRI that the store uses. Errors carry a gRPC status.
type Runtime interface {
	cri.Lister
	PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error)
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	// GetContainerEvents calls established once the subscription is sent, then event for each event, and returns an
	// error when the stream ends.
	GetContainerEvents(ctx context.Context, established func(), event func(*runtimeapi.ContainerEventResponse)) error
}

// Observer receives measurements for metrics. It may be called concurrently.
type Observer interface {
	// Relisted reports a list of all pods: when it started, how long it took, and the time since the start of the
	// previous list (0 for the first).
	Relisted(begun time.Time, took, interval time.Duration, err error)
	// PodRelisted reports how long a list of one pod took.
	PodRelisted(took time.Duration)
	// Event reports how old an event was on arrival.
	Event(latency time.Duration)
	// EventDiscarded reports an event about an object that belongs to no pod or has been removed.
	EventDiscarded()
	// Stream reports that the event stream was connected (nil), or why it ended.
	Stream(err error)
}

// Options configure a Store.
type Options struct {
	// Wake is called after a pod's snapshot changed, outside locks. It must not block.
	Wake func(types.UID)
	Log  logr.Logger
	// RelistPeriod is the time between two lists while the event stream is up; 0 means 5 minutes. Without the
	// stream it is 1 s.
	RelistPeriod time.Duration
	// Boot is the kernel's boot ID of the host.
	Boot string
	// Observer may be nil.
	Observer Observer
	// Message returns the termination message of an ended instance, empty if it has none. It is called when the end
	// is learnt, outside locks, before the end is published. It must not wait for the runtime. If it is nil, no
	// messages are read.
	Message func(translate.Identity, *pod.Container) string
}

// Store holds a snapshot of every pod that exists in the runtime. Its methods may be called concurrently.
type Store struct {
	rt       Runtime
	log      logr.Logger
	period   time.Duration
	boot     string
	observer Observer
	cache    *cache
	refresh  *refresher
	ends     ends
	state    state

	// listing is a semaphore: its holder may list all pods.
	listing chan struct{}
	// kick is signaled to request a list of all pods at once.
	kick   wake.Slot
	synced chan struct{}
	once   sync.Once // closes synced
}

// New returns a store that is empty until Run.
func New(rt Runtime, o Options) *Store {
	s := &Store{
		rt:       rt,
		log:      o.Log,
		period:   cmp.Or(o.RelistPeriod, defaultRelistPeriod),
		boot:     o.Boot,
		observer: o.Observer,
		cache:    newCache(o.Wake),
		refresh:  newRefresher(),
		ends:     ends{message: o.Message},
		listing:  make(chan struct{}, 1),
		kick:     wake.NewSlot(),
		synced:   make(chan struct{}),
	}
	if s.observer == nil {
		s.observer = unobserved{}
	}
	return s
}

// Run follows the runtime until ctx ends, also through outages. It may be called once.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { s.streamLoop(ctx); return nil })
	g.Go(func() error { s.relistLoop(ctx); return nil })
	g.Go(func() error { s.refresh.run(ctx, s.refreshPod); return nil })
	return g.Wait()
}

// Synced is closed after the first complete list.
func (s *Store) Synced() <-chan struct{} { return s.synced }

// Listed reports whether a complete list has succeeded.
func (s *Store) Listed() bool {
	select {
	case <-s.synced:
		return true
	default:
		return false
	}
}

// All returns the newest snapshots of all pods that exist in the runtime, unordered.
func (s *Store) All() []*pod.Observed {
	uids := s.UIDs()
	list := make([]*pod.Observed, 0, len(uids))
	for _, uid := range uids {
		if o := s.Get(uid); o != nil {
			list = append(list, o)
		}
	}
	return list
}

// Running returns the result of All. The error is always nil.
func (s *Store) Running(context.Context) ([]*pod.Observed, error) { return s.All(), nil }

// Get returns the pod's newest snapshot, or nil if the pod doesn't exist in the runtime.
func (s *Store) Get(uid types.UID) *pod.Observed { return s.cache.Get(uid) }

// UIDs lists the pods that exist in the runtime, unordered.
func (s *Store) UIDs() []types.UID { return s.cache.UIDs() }

type unobserved struct{}

func (unobserved) PodRelisted(time.Duration)                               {}
func (unobserved) Relisted(time.Time, time.Duration, time.Duration, error) {}
func (unobserved) Event(time.Duration)                                     {}
func (unobserved) EventDiscarded()                                         {}
func (unobserved) Stream(error)                                            {}
