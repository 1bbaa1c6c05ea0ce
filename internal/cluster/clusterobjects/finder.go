// Package clusterobjects finds the objects that pods of an API server refer to, at that API server.
//
// While the API server is away, its last answers stay valid, including those that an earlier agent stored
// (lastknown).
//
// An object is read when the first pod asks for it, and kept up to date until no pod needs it any more. Each
// ConfigMap, Secret, RuntimeClass and CSIDriver has a watch of its own that selects its name: a node may not watch
// others. ConfigMaps and Secrets may be read periodically instead. All Services share one watch. Claims,
// PersistentVolumes, VolumeAttachments and service accounts, which a node may only get, are read for each pod, and
// again while a pod waits for them. No caller waits for the API server: an object that isn't available yet is
// object.Unknown, and its users are woken later.
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

// Config configures a Finder. Every field is required.
type Config struct {
	API API
	// Strategy is how changes of ConfigMaps and Secrets are detected. Without a watch they are read every Period, or
	// every TTL if that is longer and the strategy is Cache.
	Strategy v1beta1.ResourceChangeDetectionStrategy
	TTL      func() time.Duration
	Period   time.Duration
	// Changed receives objects whose users have to ask for them again. It must not block.
	Changed func(...pod.Object)
	// Known stores the API server's answers for times when the server is unreachable.
	Known *lastknown.Store
	// StoredToken reads the token that an earlier agent wrote to a projected volume of a pod.
	StoredToken func(uid types.UID, volume, path string) (string, error)
	// Others is the Finder for pods of other sources.
	Others object.Finder
}

// patience is how long an object that isn't available yet isn't a failure: the API server's authorizer learns later
// than the node which pods the node has.
const patience = 5 * time.Second

// Finder is the object.Finder for pods of an API server. Safe for concurrent use.
type Finder struct {
	conf Config

	mu sync.Mutex
	// run is the context of Run; nil before it. early has the functions that start the goroutines requested before
	// Run.
	run     context.Context
	early   []func()
	over    bool
	all     sync.WaitGroup
	users   map[types.UID]*user
	entries map[object.Key]*entry
	tokens  map[object.TokenRequest]*token
	// attached are the node's lists of volumes by the keys of their VolumeAttachments; nil if they aren't followed.
	attached map[object.Key]attachedVolume
	// answered is closed, and replaced, when an answer arrives.
	answered chan struct{}
}

// user is a pod that uses objects.
type user struct {
	uid types.UID
	// of are the objects and tokens that the pod has asked for, with the functions that release them.
	of map[*known]func()
	// gone says that the pod needs nothing any more.
	gone bool
}

// known is the part of the state that objects and tokens share.
type known struct {
	// asking says that a request is needed or in progress, because there is no answer or it may be out of date. It
	// has been so since the time since.
	asking bool
	since  time.Time
	// deferred says that nothing is requested for now, because the answer would be of no use.
	deferred bool
	// at is when the answer changed last.
	at time.Time
}

func (k *known) ask() {
	if !k.asking {
		k.asking, k.since = true, time.Now()
	}
}

// New returns a finder. It makes no requests before Run.
func New(c Config) *Finder {
	return &Finder{conf: c, users: map[types.UID]*user{}, entries: map[object.Key]*entry{},
		tokens: map[object.TokenRequest]*token{}, answered: make(chan struct{})}
}

// Run sends requests to the API server until ctx ends. The error is nil.
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
	f.over = true // no goroutine starts any more
	f.mu.Unlock()
	f.all.Wait()
	return nil
}

// spawn runs the function do in a goroutine while Run runs, until stop is called. The lock is held.
func (f *Finder) spawn(do func(ctx context.Context)) (stop context.CancelFunc) {
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

// For returns the pod's view of the objects. Objects that the pod asks for are kept until Forget.
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

// Forget says that a pod needs nothing any more: neither its containers nor its volumes are left. Objects that no
// other pod uses are dropped.
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

// Await waits until all objects that the pod has asked for are available, for patience at most. It reports whether
// any of them changed later than the time after.
func (f *Finder) Await(ctx context.Context, uid types.UID, after time.Time) (changed bool) {
	for {
		f.mu.Lock()
		answered := f.answered
		var until time.Time
		changed = false
		if u := f.users[uid]; u != nil {
			for k := range u.of {
				changed = changed || k.at.After(after)
				if end := k.since.Add(patience); k.asking && !k.deferred && end.After(until) {
					until = end
				}
			}
		}
		f.mu.Unlock()
		limit := time.Until(until)
		if limit <= 0 {
			return changed
		}
		select {
		case <-answered:
		case <-time.After(limit):
		case <-ctx.Done():
			return false
		}
	}
}

// notify wakes the users of an object: there is an answer, or the reason why there is none. The lock isn't held.
func (f *Finder) notify(o pod.Object) {
	f.mu.Lock()
	close(f.answered)
	f.answered = make(chan struct{})
	f.mu.Unlock()
	f.conf.Changed(o)
}

// view is a pod's object.View.
type view struct {
	finder *Finder
	user   *user
	pod    *v1.Pod
}

var _ object.View = view{}

// Admitted is true: the API server has admitted the pod.
func (v view) Admitted() bool { return true }
