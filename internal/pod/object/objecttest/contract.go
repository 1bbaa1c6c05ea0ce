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

// Realm is an object.Finder as Run tests it, with what its objects come from.
type Realm struct {
	object.Finder
	// Source is that of the realm's pods, Other one of another realm.
	Source, Other pod.Source
	// Put defines an object, or another version of it; Remove takes it away.
	Put    func(object.Object)
	Remove func(object.Key)
	// Changed is woken for the objects that are to be asked for again: for what was unknown when it is known, or why
	// not.
	Changed *wake.Keyed[pod.Object]
	// Fail has what the objects come from answer with these HTTP statuses, one after the other, before it gives the
	// object again; nil where nothing can fail so. 0 is no answer at all.
	Fail func(k object.Key, statuses ...int)
	// Tokens is how long tokens are valid; 0 if there are none.
	Tokens time.Duration
	// Asked reports whether objects of a kind are only asked for: when they change, nobody is told who doesn't wait for
	// them, and the next pod sees it. nil if there are none such.
	Asked func(object.Kind) bool
	// Lacks reports whether there are no objects of a kind; nil if there are all.
	Lacks func(object.Kind) bool
	// UID is that of the realm's pod where that counts.
	UID types.UID
	// live is set where time is real.
	live bool
}

const namespace, name, secret = "default", "x", "hunter2"

// Run tests that a realm keeps the contract of object.View. make is called in a bubble of testing/synctest for each
// test, and has all end with it.
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

// RunLive is Run for a realm that is real, as far as that needs no virtual time. What a test puts, or its absence, is
// there for the next.
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

// limit is how long anything takes at most.
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

// objects are one of each kind that is asked for by name.
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

// podOf is a pod of a source, which says of itself that it is of another.
func podOf(source, other pod.Source) *pod.Desired {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", UID: "u",
		Annotations: map[string]string{pod.AnnotationConfigSource: string(other)}}}
	p.Spec.ServiceAccountName = name
	return &pod.Desired{Pod: p, Source: source}
}

func (r *Realm) view() object.View { return r.For(podOf(r.Source, r.Other)) }

// another is what another pod sees.
func (r *Realm) another(uid string) object.View {
	d := podOf(r.Source, r.Other)
	d.Pod.UID = types.UID(uid)
	return r.For(d)
}

// ask asks for an object of a kind.
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

// settle asks until it is known, as whoever waits for an object does: when it has changed, or when the answer said.
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

// awaitChange waits until it is said that the object has changed.
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

// answersAtOnce: 200 ask while one object can't be had, and nobody waits for it.
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

// failures: an object that can't be had isn't missing, and is asked for again.
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
