// Package clusterobjects finds what pods of an API server refer to: at that API server, and nothing that no pod here
// asks for.
//
// While the API server is away, what it said last counts, also what it said to an earlier agent (lastknown).
//
// An object is read when the first pod asks for it, and followed until the last one that did needs it no longer.
// ConfigMaps, Secrets and RuntimeClasses each have a watch of their own name (a node may not watch more), or are read
// again after a while; Services have one watch together. Claims, PersistentVolumes and service accounts a node may only
// get: they are read for each pod, and again while one waits for them. Nobody who asks waits for the API server: what
// isn't known yet is object.Unknown, and whom it concerns is woken.
package clusterobjects

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/lastknown"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// API is the API server: *apiclient.Client.
type API interface {
	Get(ctx context.Context, class apiclient.Class, r apiclient.Resource, namespace, name string,
		into runtime.Object) error
	Create(ctx context.Context, class apiclient.Class, r apiclient.Resource, namespace string, obj, into runtime.Object,
		sub ...string) error
	Watch(ctx context.Context, r apiclient.Resource, namespace string, chosen apiclient.Selectors, to apiclient.Sight)
}

// Config says what a Finder works with. Every field is needed.
type Config struct {
	API API
	// Strategy is how changes of ConfigMaps and Secrets are found out. Without a watch they are read again every
	// Period, if what is known is older than TTL then.
	Strategy v1beta1.ResourceChangeDetectionStrategy
	TTL      func() time.Duration
	Period   time.Duration
	// Changed is told of objects that are to be asked for again. It must not block.
	Changed func(...pod.Object)
	// Known keeps what the API server says, for when it is away.
	Known *lastknown.Store
	// KeptToken reads the token that an earlier agent wrote to a projected volume of a pod.
	KeptToken func(uid types.UID, volume, path string) (string, error)
	// Others finds what pods of other sources see.
	Others object.Finder
}

// patience is how long what isn't known yet is no failure: the API server's authorizer learns later than the node which
// pods it has.
const patience = 5 * time.Second

// Finder is the object.Finder for the pods of an API server. Safe for concurrent use.
type Finder struct {
	conf Config

	mu sync.Mutex
	// run ends with Run; nil before it. early is what is to begin with it.
	run     context.Context
	early   []func()
	over    bool
	all     sync.WaitGroup
	users   map[types.UID]*user
	entries map[object.Key]*entry
	tokens  map[object.TokenRequest]*token
	// answered is closed, and replaced, when something is known that wasn't.
	answered chan struct{}
}

// user is a pod that objects are for.
type user struct {
	uid types.UID
	// of is what it has asked for, with what ends that.
	of map[*known]func()
	// gone says that it needs nothing any more.
	gone bool
}

// known says whether something is known.
type known struct {
	// asking says that it isn't, or may have changed, and is being asked for since then.
	asking bool
	since  time.Time
	// at is when the answer changed last.
	at time.Time
}

func (k *known) ask() {
	if !k.asking {
		k.asking, k.since = true, time.Now()
	}
}

// New returns a finder that asks for nothing before Run.
func New(c Config) *Finder {
	return &Finder{conf: c, users: map[types.UID]*user{}, entries: map[object.Key]*entry{},
		tokens: map[object.TokenRequest]*token{}, answered: make(chan struct{})}
}

// Run asks the API server, until ctx ends. The error is nil.
func (f *Finder) Run(ctx context.Context) error {
	f.mu.Lock()
	f.run = ctx
	for _, begin := range f.early {
		begin()
	}
	f.early = nil
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	f.over = true // nothing more begins
	f.mu.Unlock()
	f.all.Wait()
	return nil
}

// begin has do done until it is stopped, as long as Run runs. The lock is held.
func (f *Finder) begin(do func(ctx context.Context)) (stop context.CancelFunc) {
	ctx, stop := context.WithCancel(context.Background())
	start := func() {
		if !f.over && f.run.Err() == nil && ctx.Err() == nil {
			end := context.AfterFunc(f.run, stop)
			f.all.Go(func() { defer end(); do(ctx) })
		}
	}
	if f.run == nil {
		f.early = append(f.early, start)
	} else {
		start()
	}
	return stop
}

// For returns the pod's view. What the pod asks for is kept until Forget.
func (f *Finder) For(d *pod.Desired) object.View {
	if d.Source != pod.SourceAPI {
		return f.conf.Others.For(d)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.users[d.Pod.UID]
	if u == nil {
		u = &user{uid: d.Pod.UID, of: map[*known]func(){}}
		f.users[u.uid] = u
	}
	return view{f, u, d.Pod}
}

// Forget says that a pod needs nothing any more: neither its containers nor its volumes are left. What no other pod
// uses is dropped.
func (f *Finder) Forget(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if u := f.users[uid]; u != nil {
		u.gone = true
		for _, release := range u.of {
			release()
		}
		clear(u.of)
		delete(f.users, uid)
		f.conf.Known.Forget(uid)
	}
}

// Await waits until all is known that the pod has asked for, but not long, and reports whether anything of that changed
// after a time.
func (f *Finder) Await(ctx context.Context, uid types.UID, after time.Time) (changed bool) {
	for {
		f.mu.Lock()
		answered := f.answered
		var until time.Time
		changed = false
		if u := f.users[uid]; u != nil {
			for k := range u.of {
				changed = changed || k.at.After(after)
				if end := k.since.Add(patience); k.asking && end.After(until) {
					until = end
				}
			}
		}
		f.mu.Unlock()
		limit := time.Until(until)
		if limit <= 0 {
			return changed
		}
		timer := time.NewTimer(limit)
		select {
		case <-answered:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// tell says that an answer is there, or why not yet. The lock isn't held.
func (f *Finder) tell(o pod.Object) {
	f.mu.Lock()
	close(f.answered)
	f.answered = make(chan struct{})
	f.mu.Unlock()
	f.conf.Changed(o)
}

// view is what a pod sees.
type view struct {
	finder *Finder
	user   *user
	pod    *v1.Pod
}

var _ object.View = view{}

// Admitted is true.
func (v view) Admitted() bool { return true }
