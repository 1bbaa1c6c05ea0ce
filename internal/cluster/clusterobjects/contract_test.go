package clusterobjects_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/clusterobjects"
	"github.com/deckhand-node/deckhand/internal/cluster/lastknown"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/object/objecttest"
)

const latency = 20 * time.Millisecond

// api is an API server that takes its time and fails, as apiclient.Client tells it.
type api struct {
	mu       sync.Mutex
	objects  map[object.Key]object.Object
	version  int
	statuses map[object.Key][]int
	watches  map[*following]struct{}
	calls    map[string]int
	tokens   int
}

// following is one watch.
type following struct {
	key     object.Key // without a name for all of a kind
	changed wake.Slot
	sent    map[object.Key]object.Object
}

func newAPI() *api {
	return &api{objects: map[object.Key]object.Object{}, statuses: map[object.Key][]int{}, watches: map[*following]struct{}{}, calls: map[string]int{}}
}

func kindOf(r apiclient.Resource) object.Kind {
	for _, k := range append(object.Kinds(), object.VolumeAttachment) {
		if strings.ToLower(string(k))+"s" == r.String() || k == object.RuntimeClass && r == apiclient.RuntimeClasses {
			return k
		}
	}
	return ""
}

func (a *api) put(o object.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	o = o.DeepCopyObject().(object.Object)
	o.SetResourceVersion(strconv.Itoa(a.version))
	a.objects[keyOf(o)] = o
	a.wake()
}

func keyOf(o object.Object) object.Key {
	return object.Key{Kind: object.KindOf(o), Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (a *api) remove(k object.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.objects, k)
	a.wake()
}

func (a *api) wake() {
	for w := range a.watches {
		w.changed.Wake()
	}
}

func (a *api) fail(k object.Key, statuses ...int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.statuses[k] = statuses
}

// left is how often it still fails.
func (a *api) left(k object.Key) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.statuses[k])
}

// watching is how many watches there are.
func (a *api) watching() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.watches)
}

// called counts a call.
func (a *api) called(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls[what]++
}

func (a *api) count(what string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls[what]
}

// answer waits, and is what the server says of a call for an object.
func (a *api) answer(ctx context.Context, k object.Key) error {
	select {
	case <-time.After(latency):
	case <-ctx.Done():
		return ctx.Err()
	}
	a.mu.Lock()
	status := http.StatusOK
	if list := a.statuses[k]; len(list) > 0 {
		status, a.statuses[k] = list[0], list[1:]
	}
	a.mu.Unlock()
	resource := schema.GroupResource{Resource: strings.ToLower(string(k.Kind)) + "s"}
	switch status {
	case http.StatusOK:
		return nil
	case 0:
		<-ctx.Done()
		return ctx.Err()
	case http.StatusForbidden:
		return apierrors.NewForbidden(resource, k.Name, errors.New("no relationship found between node 'n' and this object"))
	default:
		return apierrors.NewGenericServerResponse(status, "get", resource, k.Name, "no", 0, true)
	}
}

func (a *api) Get(ctx context.Context, _ apiclient.Class, r apiclient.Resource, namespace, name string, into kruntime.Object) error {
	k := object.Key{Kind: kindOf(r), Namespace: namespace, Name: name}
	a.called("get " + k.String())
	if err := a.answer(ctx, k); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.objects[k]
	if o == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: r.String()}, name)
	}
	return copyInto(o, into)
}

func copyInto(o, into kruntime.Object) error {
	fields, err := kruntime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	return kruntime.DefaultUnstructuredConverter.FromUnstructured(fields, into)
}

func (a *api) Create(ctx context.Context, _ apiclient.Class, r apiclient.Resource, namespace string, obj, into kruntime.Object, sub ...string) error {
	q, ok := obj.(*authentication.TokenRequest)
	if !ok || r != apiclient.ServiceAccounts || len(sub) != 1 || sub[0] != "token" {
		return fmt.Errorf("create %s %T %q", r, obj, sub)
	}
	ref := q.Spec.BoundObjectRef
	k := object.Key{Kind: "TokenRequest", Namespace: namespace, Name: ref.Name}
	a.called("create " + k.String())
	if err := a.answer(ctx, k); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens++
	answer := into.(*authentication.TokenRequest)
	answer.Spec = q.Spec
	if answer.Spec.ExpirationSeconds == nil {
		seconds := int64(3600)
		answer.Spec.ExpirationSeconds = &seconds
	}
	answer.Status.Token = fmt.Sprintf("%s-%s-%s-%d", q.Name, ref.UID, strings.Join(q.Spec.Audiences, ","), a.tokens)
	answer.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(*answer.Spec.ExpirationSeconds) * time.Second))
	return nil
}

func (a *api) Watch(ctx context.Context, r apiclient.Resource, namespace string, chosen apiclient.Selectors, to apiclient.Sight) {
	w := &following{key: object.Key{Kind: kindOf(r), Namespace: namespace}, changed: wake.NewSlot()}
	w.key.Name, _ = strings.CutPrefix(chosen.Fields, "metadata.name=")
	if chosen.Fields == "spec.clusterIP!=None" {
		w.key.Name = ""
	} else if w.key.Name == "" {
		to.Away(fmt.Errorf("a node may not watch %s %q", r, chosen.Fields))
		return
	}
	a.mu.Lock()
	a.watches[w] = struct{}{}
	a.calls["watch "+w.key.String()]++
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watches, w)
	}()
	for failures := 0; ctx.Err() == nil; failures++ {
		err := a.answer(ctx, w.key)
		switch {
		case ctx.Err() != nil:
			return
		case apierrors.IsNotFound(err): // there is nothing
			to.Listed(apiclient.List{})
			w.sent = map[object.Key]object.Object{}
			a.follow(ctx, w, to)
		case err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err):
			to.Away(err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		case err == nil:
			now := a.now(w.key)
			var list apiclient.List
			for _, o := range now {
				list.Objects = append(list.Objects, o.DeepCopyObject())
			}
			to.Listed(list)
			w.sent = now
			a.follow(ctx, w, to)
		}
	}
}

func (a *api) now(k object.Key) map[object.Key]object.Object {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := map[object.Key]object.Object{}
	for key, o := range a.objects {
		if key == k || k.Name == "" && key.Kind == k.Kind {
			now[key] = o
		}
	}
	return now
}

// follow sends changes.
func (a *api) follow(ctx context.Context, w *following, to apiclient.Sight) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		}
		now := a.now(w.key)
		for k, o := range now {
			if old := w.sent[k]; old == nil {
				to.Changed(watch.Added, o.DeepCopyObject())
			} else if old != o {
				to.Changed(watch.Modified, o.DeepCopyObject())
			}
		}
		for k, old := range w.sent {
			if now[k] == nil {
				to.Changed(watch.Deleted, old.DeepCopyObject())
			}
		}
		w.sent = now
	}
}

// realm is a finder at an API server that runs until the end of the test.
func realm(t *testing.T, a *api, change func(*clusterobjects.Config)) *objecttest.Realm {
	changed := wake.NewKeyed[pod.Object]()
	c := clusterobjects.Config{API: a, Strategy: v1beta1.WatchChangeDetectionStrategy, TTL: func() time.Duration { return time.Minute }, Period: time.Minute,
		Changed:     func(o ...pod.Object) { changed.Wake(o...) },
		StoredToken: func(types.UID, string, string) (string, error) { return "", errors.New("there is none") },
		Known:       nothingKnown(t),
		Others:      objecttest.View(object.NewSet(nil, true))}
	if change != nil {
		change(&c)
	}
	f := clusterobjects.New(c)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return &objecttest.Realm{Finder: f, Source: pod.SourceAPI, Other: pod.SourceFile, Put: a.put, Remove: a.remove, Changed: changed, Fail: a.fail, Tokens: time.Hour, Asked: asked}
}

// answers says whether the API server does, and since when.
type answers struct {
	ok    bool
	since time.Time
}

func (a *answers) Reached() (bool, time.Time, error) { return a.ok, a.since, nil }

// nothingKnown is an agent's that never heard of the API server before, which answers now.
func nothingKnown(t testing.TB) *lastknown.Store {
	return lastknown.New(filepath.Join(t.TempDir(), "known"), "", &answers{ok: true})
}

func asked(k object.Kind) bool {
	return k == object.ServiceAccount || k == object.PersistentVolume || k == object.PersistentVolumeClaim || k == object.VolumeAttachment
}

func TestContract(t *testing.T) {
	for _, strategy := range []v1beta1.ResourceChangeDetectionStrategy{v1beta1.WatchChangeDetectionStrategy, v1beta1.TTLCacheChangeDetectionStrategy, v1beta1.GetChangeDetectionStrategy} {
		t.Run(string(strategy), func(t *testing.T) {
			objecttest.Run(t, func(t *testing.T) *objecttest.Realm {
				return realm(t, newAPI(), func(c *clusterobjects.Config) { c.Strategy = strategy })
			})
		})
	}
}
