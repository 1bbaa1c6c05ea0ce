package objecttest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

const (
	latency  = 50 * time.Millisecond
	backoff  = time.Second
	validity = time.Hour
)

// remote is a Finder for objects of an API server that answers slowly and fails: each object is requested when a View
// is first asked for it, and watched from then on.
type remote struct {
	ctx     context.Context
	changed *wake.Keyed[pod.Object]
	all     sync.WaitGroup

	mu       sync.Mutex
	server   map[object.Key]object.Object
	statuses map[object.Key][]int
	known    map[object.Key]*answer
	token    *object.Token
	noToken  error
	tokens   int
}

// answer is the result of the last request for an object: the object, or an error.
type answer struct {
	object object.Object
	err    error
}

// Remote returns a realm that behaves like an API server, for tests of packages that request its objects. It ends with
// the test.
func Remote(t *testing.T) *Realm {
	ctx, cancel := context.WithCancel(context.Background())
	r := &remote{ctx: ctx, changed: wake.NewKeyed[pod.Object](), server: map[object.Key]object.Object{},
		statuses: map[object.Key][]int{}, known: map[object.Key]*answer{}}
	t.Cleanup(func() { cancel(); r.all.Wait() })
	return &Realm{Finder: r, Source: pod.SourceAPI, Other: pod.SourceFile, Put: r.put, Remove: r.remove,
		Changed: r.changed, Fail: r.fail, Tokens: validity}
}

func (r *remote) For(d *pod.Desired) object.View {
	if d.Source != pod.SourceAPI {
		return View(object.NewSet(nil, true))
	}
	return r
}

func (r *remote) put(o object.Object) { r.change(keyOf(o), o) }

func (r *remote) remove(k object.Key) { r.change(k, nil) }

func (r *remote) change(k object.Key, o object.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server[k] = o
	if r.known[k] != nil { // it is watched
		r.all.Go(func() { r.get(k) })
	}
}

func (r *remote) fail(k object.Key, statuses ...int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statuses[k] = statuses
}

// get asks the API server.
func (r *remote) get(k object.Key) {
	if !r.pause(latency) {
		return
	}
	r.mu.Lock()
	status := http.StatusOK
	if list := r.statuses[k]; len(list) > 0 {
		status, r.statuses[k] = list[0], list[1:]
	}
	a := &answer{object: r.server[k]}
	r.mu.Unlock()
	switch {
	case status == 0:
		<-r.ctx.Done()
		return
	case status == http.StatusGone: // the watch is begun again
		r.get(k)
		return
	case status == http.StatusNotFound, status == http.StatusOK && a.object == nil:
		a = &answer{err: apierrors.NewNotFound(schema.GroupResource{Resource: string(k.Kind)}, k.Name)}
	case status != http.StatusOK:
		a = &answer{err: &object.Unknown{Key: k, Why: fmt.Sprint("the API server answers with status ", status),
			NotBefore: time.Now().Add(backoff)}}
	}
	r.mu.Lock()
	r.known[k] = a
	r.mu.Unlock()
	r.changed.Wake(k.Object())
}

func (r *remote) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-r.ctx.Done():
		return false
	}
}

func find[T object.Object](r *remote, k object.Key) (o T, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.known[k]
	if a == nil || !object.NotBefore(a.err).IsZero() && !time.Now().Before(object.NotBefore(a.err)) {
		a = &answer{err: &object.Unknown{Key: k, Why: "the API server is being asked"}}
		r.known[k] = a
		r.all.Go(func() { r.get(k) })
	}
	if a.err != nil {
		return o, a.err
	}
	return a.object.(T), nil
}

func (r *remote) ConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return find[*v1.ConfigMap](r, object.Key{Kind: object.ConfigMap, Namespace: namespace, Name: name})
}

func (r *remote) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	return find[*v1.Secret](r, object.Key{Kind: object.Secret, Namespace: namespace, Name: name})
}

func (r *remote) ServiceAccount(_ context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	return find[*v1.ServiceAccount](r, object.Key{Kind: object.ServiceAccount, Namespace: namespace, Name: name})
}

func (r *remote) RuntimeClass(_ context.Context, name string) (*nodev1.RuntimeClass, error) {
	return find[*nodev1.RuntimeClass](r, object.Key{Kind: object.RuntimeClass, Name: name})
}

func (r *remote) PersistentVolumeClaim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return find[*v1.PersistentVolumeClaim](r,
		object.Key{Kind: object.PersistentVolumeClaim, Namespace: namespace, Name: name})
}

func (r *remote) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	return find[*v1.PersistentVolume](r, object.Key{Kind: object.PersistentVolume, Name: name})
}

func (r *remote) CSIDriver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	return find[*storagev1.CSIDriver](r, object.Key{Kind: object.CSIDriver, Name: name})
}

func (r *remote) VolumeAttachment(_ context.Context, name string) (*storagev1.VolumeAttachment, error) {
	return find[*storagev1.VolumeAttachment](r, object.Key{Kind: object.VolumeAttachment, Name: name})
}

func (r *remote) Admitted() bool { return true }

func (r *remote) Await(context.Context, types.UID, time.Time) bool { return false }

func (r *remote) Forget(types.UID) {}

func (r *remote) Services(context.Context, string) ([]*v1.Service, error) { return nil, nil }

func (r *remote) PersistentVolumes(context.Context) ([]*v1.PersistentVolume, error) {
	return nil, errors.New("a node may not list PersistentVolumes")
}

// Token returns a new token once the last one is due to be renewed. The statuses of its failing requests are stored
// under the zero key.
func (r *remote) Token(_ context.Context, q object.TokenRequest) (object.Token, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.token != nil && time.Now().Before(r.token.Renew()) {
		return *r.token, nil
	}
	if again := object.NotBefore(r.noToken); r.noToken != nil && (again.IsZero() || time.Now().Before(again)) {
		return object.Token{}, r.noToken
	}
	k := object.Key{Kind: "TokenRequest", Namespace: q.Namespace, Name: q.Pod}
	r.noToken = &object.Unknown{Key: k, Why: "the API server is being asked"}
	r.all.Go(func() {
		if r.pause(latency) {
			r.issue(k)
			r.changed.Wake(k.Object())
		}
	})
	return object.Token{}, r.noToken
}

func (r *remote) issue(k object.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if list := r.statuses[object.Key{}]; len(list) > 0 {
		r.statuses[object.Key{}] = list[1:]
		r.noToken = &object.Unknown{Key: k, Why: fmt.Sprint("the API server answers with status ", list[0]),
			NotBefore: time.Now().Add(backoff)}
		return
	}
	r.tokens++
	token := object.NewToken(fmt.Sprint("token-", r.tokens), time.Now(), time.Now().Add(validity))
	r.token, r.noToken = &token, nil
}
