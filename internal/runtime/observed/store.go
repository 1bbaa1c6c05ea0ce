// Package observed knows what the runtime has of every pod: it is the pod lifecycle event
// generator and the pod cache in one.
//
// The runtime's event stream drives it. A list of everything, right after the stream is up,
// after it broke, and every few minutes, finds what the stream left out. Readings of the
// runtime may arrive late, doubled and out of order, so a cache merges them per instance, and
// only ever forward. A change wakes the pod's worker, without data.
package observed

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// Runtime is what of the CRI is needed. Errors carry a gRPC status.
type Runtime interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error)
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	// GetContainerEvents calls established once the subscription is sent, then
	// event with each event, and returns with an error when the stream ends.
	GetContainerEvents(ctx context.Context, established func(), event func(*runtimeapi.ContainerEventResponse)) error
}

// Observer receives what metrics are made of. It may be called concurrently.
type Observer interface {
	// Relisted reports a list of everything: when it was begun, how long it took
	// and how long after the one before (0 for the first).
	Relisted(begun time.Time, took, interval time.Duration, err error)
	// PodRelisted reports how long a list of one pod took.
	PodRelisted(took time.Duration)
	// Event reports how old an event was when it came in.
	Event(latency time.Duration)
	// EventDiscarded reports an event about something that is no pod's, or gone.
	EventDiscarded()
	// Stream reports that the event stream was connected (nil), or that it ended.
	Stream(err error)
}

// Options of a Store.
type Options struct {
	// Wake is called after a pod's snapshot changed, outside locks. It must not block.
	Wake func(types.UID)
	Log  logr.Logger
	// RelistPeriod is between two lists while events flow; 0 means 5 minutes.
	// Without events it is 1 s.
	RelistPeriod time.Duration
	// Boot is what the kernel calls this boot of the host.
	Boot string
	// Observer may be nil.
	Observer Observer
	// Message returns what an ended instance left as its termination message; empty
	// for nothing. It is asked when an end is learnt, outside locks, before anybody
	// is passed the end. It must not wait for the runtime. nil has no messages read.
	Message func(translate.Identity, *pod.Container) string
}

// Store holds a snapshot of every pod the runtime has something of. Its methods
// may be called concurrently.
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

	// listing has one slot: who holds it may list everything.
	listing chan struct{}
	// kick has one slot: a list is wanted at once.
	kick   wake.Slot
	synced chan struct{}
	once   sync.Once // closes synced
}

// New returns a store that knows nothing until Run.
func New(rt Runtime, o Options) *Store {
	s := &Store{
		rt:       rt,
		log:      o.Log,
		period:   o.RelistPeriod,
		boot:     o.Boot,
		observer: o.Observer,
		cache:    newCache(o.Wake),
		refresh:  newRefresher(),
		ends:     ends{message: o.Message},
		listing:  make(chan struct{}, 1),
		kick:     wake.NewSlot(),
		synced:   make(chan struct{}),
	}
	if s.period == 0 {
		s.period = defaultRelistPeriod
	}
	if s.observer == nil {
		s.observer = unobserved{}
	}
	return s
}

// Run follows the runtime until ctx ends, through any outage. It may be called once.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { s.streamLoop(ctx); return nil })
	g.Go(func() error { s.relistLoop(ctx); return nil })
	g.Go(func() error { s.refresh.run(ctx, s.refreshPod); return nil })
	return g.Wait()
}

// Synced is closed after the first complete list.
func (s *Store) Synced() <-chan struct{} { return s.synced }

// Listed reports whether everything that the runtime has was listed once.
func (s *Store) Listed() bool {
	select {
	case <-s.synced:
		return true
	default:
		return false
	}
}

// All lists the newest snapshots of all pods the runtime has something of, in no order.
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

// Running is All; the error is nil.
func (s *Store) Running(context.Context) ([]*pod.Observed, error) { return s.All(), nil }

// Get returns the pod's newest snapshot, or nil if the runtime has nothing of it.
func (s *Store) Get(uid types.UID) *pod.Observed { return s.cache.Get(uid) }

// UIDs lists the pods the runtime has something of, in no order.
func (s *Store) UIDs() []types.UID { return s.cache.UIDs() }

type unobserved struct{}

func (unobserved) PodRelisted(time.Duration)                               {}
func (unobserved) Relisted(time.Time, time.Duration, time.Duration, error) {}
func (unobserved) Event(time.Duration)                                     {}
func (unobserved) EventDiscarded()                                         {}
func (unobserved) Stream(error)                                            {}
