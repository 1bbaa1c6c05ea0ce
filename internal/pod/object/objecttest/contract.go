package objecttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// Realm is an object.Finder for the tests of Run, with functions that control the source of its objects.
type Realm struct {
	object.Finder
	// Source is the source of the realm's pods, Other the source of pods of another realm.
	Source, Other pod.Source
	// Put defines an object or replaces it with a new version; Remove removes an object.
	Put    func(object.Object)
	Remove func(object.Key)
	// Changed is woken with the objects that have to be requested again: they have changed, or an Unknown object has
	// been found, is missing, or its request has failed.
	Changed *wake.Keyed[pod.Object]
	// Fail makes the source answer requests for the object k with these HTTP statuses, one per request, before it
	// returns the object again. The status 0 means no answer at all. Fail is nil for a realm in which requests can't
	// fail.
	Fail func(k object.Key, statuses ...int)
	// Tokens is the lifetime of tokens; 0 if the realm has none.
	Tokens time.Duration
	// Asked reports whether objects of a kind are only requested, not watched: Changed isn't woken when such an object
	// changes, unless a pod waits for it, and only the next pod sees the change. Asked is nil if all kinds are watched.
	Asked func(object.Kind) bool
	// Lacks reports whether the realm has no objects of a kind; nil if it has all kinds.
	Lacks func(object.Kind) bool
	// UID is the UID of the realm's pod, for realms that check it.
	UID types.UID
	// live says that the test runs in real time, not in virtual time.
	live bool
}

const namespace, name, secret = "default", "x", "hunter2"

// Run tests that a realm fulfils the contract of object.View. make creates the realm of each test in a bubble of
// testing/synctest; everything that make starts has to end with the test.
func Run(t *testing.T, make func(t *testing.T) *Realm) {
	for title, test := range map[string]func(t *testing.T, r *Realm){
		"objects come, change and go": comeAndGo, "only its own pods see it": onlyItsOwn,
		"no answer waits":       answersAtOnce,
		"what fails is unknown": failures, "nothing shows a secret": showsNothing, "tokens are renewed": tokens,
	} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, make(t)) })
		})
	}
}

// RunLive runs those tests of Run that need no virtual time, for a real realm. The realm keeps its objects between the
// tests.
func RunLive(t *testing.T, make func(t *testing.T) *Realm) {
	for title, test := range map[string]func(t *testing.T, r *Realm){"objects come, change and go": comeAndGo,
		"nothing shows a secret": showsNothing, "tokens are renewed": tokens} {
		t.Run(title, func(t *testing.T) {
			r := make(t)
			r.live = true
			test(t, r)
		})
	}
}

// limit is the maximum time for which a test waits.
func (r *Realm) limit() time.Duration {
	if r.live {
		return time.Minute
	}
	return 24 * time.Hour
}

func meta(namespaced bool, version string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, ResourceVersion: version, Labels: map[string]string{"version": version}}
	if namespaced {
		m.Namespace = namespace
	}
	return m
}

// objects returns one object of each kind that can be requested by name.
func objects(version string) map[object.Kind]object.Object {
	return map[object.Kind]object.Object{
		object.ConfigMap: &v1.ConfigMap{ObjectMeta: meta(true, version)},
		object.Secret: &v1.Secret{ObjectMeta: meta(true, version),
			Data: map[string][]byte{"k": []byte(secret)}},
		object.ServiceAccount:        &v1.ServiceAccount{ObjectMeta: meta(true, version)},
		object.RuntimeClass:          &nodev1.RuntimeClass{ObjectMeta: meta(false, version)},
		object.PersistentVolumeClaim: &v1.PersistentVolumeClaim{ObjectMeta: meta(true, version)},
		object.PersistentVolume:      &v1.PersistentVolume{ObjectMeta: meta(false, version)},
		object.CSIDriver:             &storagev1.CSIDriver{ObjectMeta: meta(false, version)},
		object.VolumeAttachment:      &storagev1.VolumeAttachment{ObjectMeta: meta(false, version)},
	}
}

func keyOf(o object.Object) object.Key {
	return object.Key{Kind: object.KindOf(o), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// podOf returns a pod whose Desired.Source is source, and whose annotation claims that its source is other.
func podOf(source, other pod.Source) *pod.Desired {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", UID: "u",
		Annotations: map[string]string{pod.AnnotationConfigSource: string(other)}}}
	p.Spec.ServiceAccountName = name
	return &pod.Desired{Pod: p, Source: source}
}

func (r *Realm) view() object.View { return r.For(podOf(r.Source, r.Other)) }

// another returns the View of another pod of the realm.
func (r *Realm) another(uid string) object.View {
	d := podOf(r.Source, r.Other)
	d.Pod.UID = types.UID(uid)
	return r.For(d)
}

// ask requests an object of a kind by name.
func ask(v object.View, kind object.Kind, name string) (o metav1.Object, err error) {
	ctx := context.Background()
	switch kind {
	case object.ConfigMap:
		o, err = v.ConfigMap(ctx, namespace, name)
	case object.Secret:
		o, err = v.Secret(ctx, namespace, name)
	case object.ServiceAccount:
		o, err = v.ServiceAccount(ctx, namespace, name)
	case object.RuntimeClass:
		o, err = v.RuntimeClass(ctx, name)
	case object.PersistentVolumeClaim:
		o, err = v.PersistentVolumeClaim(ctx, namespace, name)
	case object.PersistentVolume:
		o, err = v.PersistentVolume(ctx, name)
	case object.CSIDriver:
		o, err = v.CSIDriver(ctx, name)
	case object.VolumeAttachment:
		o, err = v.VolumeAttachment(ctx, name)
	}
	return o, err
}

// settle repeats a request until its result isn't Unknown. It repeats the request when Changed is woken or at the time
// NotBefore of the error, like a caller that waits for an object.
func settle[T any](t *testing.T, r *Realm, ask func() (T, error)) (got T, err error) {
	t.Helper()
	for range 100 {
		got, err = ask()
		if !object.IsUnknown(err) {
			return got, err
		}
		var again <-chan time.Time
		if at := object.NotBefore(err); !at.IsZero() {
			if !at.After(time.Now()) {
				t.Fatalf("to be asked again in the past: %v", err)
			}
			again = time.After(time.Until(at))
		}
		select {
		case <-r.Changed.Woken():
			r.Changed.Drain()
		case <-again:
		case <-time.After(r.limit()):
			t.Fatalf("nobody says that it is known, or when to ask again: %v", err)
		}
	}
	t.Fatalf("it stays unknown: %v", err)
	return got, err
}

// awaitChange waits until Changed is woken with the object.
func awaitChange(t *testing.T, r *Realm, want pod.Object) {
	t.Helper()
	for {
		select {
		case <-r.Changed.Woken():
		case <-time.After(r.limit()):
			t.Fatalf("nobody says that %v has changed", want)
		}
		for _, o := range r.Changed.Drain() {
			if o == want || o == (pod.Object{}) {
				return
			}
		}
	}
}

func comeAndGo(t *testing.T, r *Realm) {
	for kind, o := range objects("1") {
		if r.Lacks != nil && r.Lacks(kind) {
			continue
		}
		v, asked := r.view(), r.Asked != nil && r.Asked(kind)
		settled := func() (metav1.Object, error) {
			return settle(t, r, func() (metav1.Object, error) { return ask(v, kind, name) })
		}
		if _, err := settled(); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v, want that it isn't there", kind, err)
		}
		for n, put := range []object.Object{o, objects("2")[kind]} {
			version := fmt.Sprint(n + 1)
			r.Changed.Drain()
			r.Put(put)
			if asked && n > 0 {
				v = r.another("u" + version)
			} else {
				awaitChange(t, r, keyOf(o).Object())
			}
			if got, err := settled(); err != nil || got.GetLabels()["version"] != version {
				t.Errorf("%s: %v, %v, want version %s", kind, got, err, version)
			}
		}
		r.Changed.Drain()
		r.Remove(keyOf(o))
		if asked {
			v = r.another("u-last")
		} else {
			awaitChange(t, r, keyOf(o).Object())
		}
		if _, err := settled(); !apierrors.IsNotFound(err) {
			t.Errorf("%s, after it was removed: %v", kind, err)
		}
	}
}

func onlyItsOwn(t *testing.T, r *Realm) {
	for kind, o := range objects("1") {
		if r.Lacks != nil && r.Lacks(kind) {
			continue
		}
		r.Put(o)
		if got, err := settle(t, r, func() (metav1.Object, error) { return ask(r.view(), kind, name) }); err != nil {
			t.Errorf("%s: %v, %v", kind, got, err)
		}
		if _, err := ask(r.For(podOf(r.Other, r.Source)), kind, name); !apierrors.IsNotFound(err) {
			t.Errorf("%s, for a pod of another realm: %v", kind, err)
		}
	}
}

// answersAtOnce tests that 200 concurrent requests return at once while one of the objects can't be read.
func answersAtOnce(t *testing.T, r *Realm) {
	o := objects("1")[object.Secret]
	r.Put(o)
	if r.Fail != nil {
		r.Fail(keyOf(o), 0)
	}
	began := time.Now()
	v := r.view()
	var all sync.WaitGroup
	for n := range 200 {
		all.Go(func() {
			_, _ = ask(v, object.Secret, name)
			_, _ = ask(v, object.ConfigMap, fmt.Sprint("c", n%20))
		})
	}
	all.Wait()
	if took := time.Since(began); took > 0 {
		t.Errorf("they waited %v", took)
	}
	if _, err := ask(v, object.Secret, name); r.Fail != nil && !object.IsUnknown(err) {
		t.Errorf("while there is no answer: %v", err)
	}
	if _, err := settle(t, r, func() (metav1.Object, error) {
		return ask(v, object.ConfigMap, "c0")
	}); !apierrors.IsNotFound(err) {
		t.Errorf("another object meanwhile: %v", err)
	}
}

// failures tests that an object that can't be read counts as Unknown, not as missing, and is requested again.
func failures(t *testing.T, r *Realm) {
	if r.Fail == nil {
		return
	}
	for _, statuses := range [][]int{{403}, {403, 403, 403}, {410}, {500, 429}, {404}} {
		missing := statuses[0] == 404
		for kind, o := range objects("1") {
			o.SetName(fmt.Sprintf("f-%d-%d", statuses[0], len(statuses)))
			k := keyOf(o)
			r.Put(o)
			r.Fail(k, statuses...)
			seen := 0
			_, err := settle(t, r, func() (metav1.Object, error) {
				got, err := ask(r.view(), kind, k.Name)
				if object.IsUnknown(err) {
					seen++
				}
				return got, err
			})
			if seen == 0 || missing != apierrors.IsNotFound(err) || !missing && err != nil {
				t.Errorf("%s after %v: %d times unknown, then %v", kind, statuses, seen, err)
			}
		}
	}
}

func showsNothing(t *testing.T, r *Realm) {
	o := objects("1")[object.Secret]
	r.Put(o)
	if _, err := settle(t, r, func() (metav1.Object, error) { return ask(r.view(), object.Secret, name) }); err != nil {
		t.Fatal(err)
	}
	r.Put(objects("2")[object.Secret])
	awaitChange(t, r, keyOf(o).Object())
	r.Remove(keyOf(o))
	awaitChange(t, r, keyOf(o).Object())
	_, err := settle(t, r, func() (metav1.Object, error) { return ask(r.view(), object.Secret, name) })
	token := object.NewToken(secret, time.Now(), time.Now())
	text := ""
	for _, v := range []any{r.Changed, r.Changed.Drain(), err, token, []any{token}, struct{ T object.Token }{token}} {
		text += fmt.Sprintf("%v %+v %#v\n", v, v, v)
	}
	if strings.Contains(text, secret) || token.Value() != secret {
		t.Errorf("shown: %s", text)
	}
}

func tokens(t *testing.T, r *Realm) {
	p := podOf(r.Source, r.Other)
	if r.live {
		p.Pod.UID = r.UID
		r.Put(objects("1")[object.ServiceAccount])
	}
	ask := func() (object.Token, error) {
		return r.For(p).Token(context.Background(),
			object.TokenRequest{Namespace: namespace, ServiceAccount: name, Pod: p.Pod.Name, UID: p.Pod.UID,
				Audience: "me"})
	}
	first, err := settle(t, r, ask)
	if r.Tokens == 0 {
		if !errors.Is(err, object.ErrNoTokens) {
			t.Errorf("without tokens: %v", err)
		}
		return
	}
	if err != nil || first.Until.Sub(first.Issued).Round(time.Second) != r.Tokens {
		t.Fatalf("%+v, %v", first, err)
	}
	if r.live {
		return
	}
	time.Sleep(time.Until(first.Renew()) - time.Nanosecond)
	if same, err := ask(); err != nil || same.Value() != first.Value() {
		t.Errorf("before it is due: %v", err)
	}
	time.Sleep(time.Nanosecond)
	if next, err := settle(t, r, ask); err != nil || next.Value() == first.Value() || !next.Renew().After(time.Now()) {
		t.Errorf("when it is due: %+v, %v", next, err)
	}
}
