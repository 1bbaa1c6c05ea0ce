package clusterobjects_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/clusterobjects"
	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/object/objecttest"
)

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name}
}

// apiPod is a pod of the API server with a token.
func apiPod(n int) *pod.Desired {
	p := &v1.Pod{ObjectMeta: named(fmt.Sprint("web-", n))}
	p.UID, p.Spec.ServiceAccountName = types.UID(fmt.Sprint("u", n)), "robot"
	p.Spec.Volumes = []v1.Volume{{Name: "access", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](3607)}}}}}}}
	return &pod.Desired{Pod: p, Source: pod.SourceAPI}
}

func tokenOf(d *pod.Desired) object.TokenRequest {
	return object.TokenRequest{Namespace: "default", ServiceAccount: "robot", Pod: d.Pod.Name, UID: d.Pod.UID, Life: 3607 * time.Second}
}

// during runs a test in virtual time.
func during(t *testing.T, change func(*clusterobjects.Config), test func(t *testing.T, a *api, r *objecttest.Realm)) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		test(t, a, realm(t, a, change))
	})
}

func strategy(s v1beta1.ResourceChangeDetectionStrategy) func(*clusterobjects.Config) {
	return func(c *clusterobjects.Config) { c.Strategy = s }
}

// TestOneOfEach: however many pods share an object, it is asked for once, and no more when none of them is left.
func TestOneOfEach(t *testing.T) {
	for s, call := range map[v1beta1.ResourceChangeDetectionStrategy]string{v1beta1.WatchChangeDetectionStrategy: "watch", v1beta1.TTLCacheChangeDetectionStrategy: "get", v1beta1.GetChangeDetectionStrategy: "get"} {
		during(t, strategy(s), func(t *testing.T, a *api, r *objecttest.Realm) {
			a.put(&v1.ConfigMap{ObjectMeta: named("shared"), Data: map[string]string{"k": "1"}})
			var all sync.WaitGroup
			for n := range 500 {
				all.Go(func() { _, _ = r.For(apiPod(n)).ConfigMap(t.Context(), "default", "shared") })
			}
			all.Wait()
			if r.Await(t.Context(), "u0", time.Now()) != true {
				t.Errorf("%s: it isn't known in time", s)
			}
			for n := range 500 {
				if got, err := r.For(apiPod(n)).ConfigMap(t.Context(), "default", "shared"); err != nil || got.Data["k"] != "1" {
					t.Fatalf("%s: %v", s, err)
				}
			}
			what := call + " ConfigMap default/shared"
			if n := a.count(what); n != 1 {
				t.Errorf("%s: %d calls for 500 pods", s, n)
			}
			for n := range 500 {
				r.Forget(apiPod(n).Pod.UID)
			}
			synctest.Wait()
			watches := a.watching()
			time.Sleep(time.Hour)
			if n := a.count(what); n != 1 || watches != 0 {
				t.Errorf("%s: when no pod is left: %d calls, %d watches", s, n, watches)
			}
		})
	}
}

// TestHeldToTheEnd: what a pod has asked for stays known until nothing is left of it, and isn't in memory then.
func TestHeldToTheEnd(t *testing.T) {
	during(t, nil, func(t *testing.T, a *api, r *objecttest.Realm) {
		a.put(&v1.Secret{ObjectMeta: named("canary"), Data: map[string][]byte{"k": []byte("v")}})
		ask := func() (*v1.Secret, error) { return r.For(apiPod(1)).Secret(t.Context(), "default", "canary") }
		_, _ = ask()
		r.Await(t.Context(), "u1", time.Now())
		a.fail(object.Key{Kind: object.Secret, Namespace: "default", Name: "canary"}, slices.Repeat([]int{500}, 1000)...)
		time.Sleep(time.Hour)
		got, err := ask()
		if err != nil || string(got.Data["k"]) != "v" {
			t.Fatalf("after an hour: %v", err)
		}
		held := weak.Make(got)
		got = nil
		v := r.For(apiPod(1))
		r.Forget("u1")
		synctest.Wait()
		runtime.GC()
		if held.Value() != nil {
			t.Error("it is in memory still")
		}
		if _, err := v.Secret(t.Context(), "default", "canary"); !object.IsUnknown(err) || a.count("watch Secret default/canary") != 1 {
			t.Errorf("who asks too late: %v, %d watches", err, a.count("watch Secret default/canary"))
		}
	})
}

// TestGraphLag: the API server's authorizer learns late of a pod, and that is no failure; a refusal that stays is one after a while.
func TestGraphLag(t *testing.T) {
	for _, kind := range []object.Kind{object.Secret, object.PersistentVolumeClaim, "TokenRequest"} {
		during(t, nil, func(t *testing.T, a *api, r *objecttest.Realm) {
			d := apiPod(1)
			k := object.Key{Kind: kind, Namespace: "default", Name: d.Pod.Name}
			a.put(&v1.Secret{ObjectMeta: named(d.Pod.Name)})
			a.put(&v1.PersistentVolumeClaim{ObjectMeta: named(d.Pod.Name), Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}})
			ask := func() (err error) {
				switch v := r.For(d); kind {
				case object.Secret:
					_, err = v.Secret(t.Context(), "default", k.Name)
				case object.PersistentVolumeClaim:
					_, err = v.PersistentVolumeClaim(t.Context(), "default", k.Name)
				default:
					_, err = v.Token(t.Context(), tokenOf(d))
				}
				return err
			}
			a.fail(k, 403, 403, 403, 403)
			began := time.Now()
			if err := ask(); !object.IsUnknown(err) {
				t.Fatalf("%s, at first: %v", kind, err)
			}
			if !r.Await(t.Context(), d.Pod.UID, began) || ask() != nil {
				t.Errorf("%s, after a lag: %v", kind, ask())
			}
			if took := time.Since(began); took < 375*time.Millisecond+5*latency || took > 850*time.Millisecond {
				t.Errorf("%s: it took %s", kind, took)
			}
			r.Forget(d.Pod.UID)
			a.fail(k, slices.Repeat([]int{403}, 1000)...)
			began = time.Now()
			_ = ask()
			r.Await(t.Context(), d.Pod.UID, began)
			if took := time.Since(began); took < 5*time.Second || took > 7*time.Second+latency || !object.IsUnknown(ask()) {
				t.Errorf("%s, refused: after %s: %v", kind, took, ask())
			}
			before := a.left(k)
			time.Sleep(time.Hour)
			if n := before - a.left(k); n > 120 {
				t.Errorf("%s: it is asked for %d times an hour", kind, n)
			}
		})
	}
}

// TestImmutable: what can't change isn't watched, and another object of the name is seen by later pods.
func TestImmutable(t *testing.T) {
	during(t, nil, func(t *testing.T, a *api, r *objecttest.Realm) {
		o := &v1.ConfigMap{ObjectMeta: named("fixed"), Immutable: ptr.To(true), Data: map[string]string{"k": "1"}}
		o.UID = "first"
		a.put(o)
		ask := func(n int) string {
			for {
				began := time.Now()
				got, err := r.For(apiPod(n)).ConfigMap(t.Context(), "default", "fixed")
				if err == nil {
					return got.Data["k"]
				}
				if !object.IsUnknown(err) || !r.Await(t.Context(), apiPod(n).Pod.UID, began) {
					return err.Error()
				}
			}
		}
		got := ask(1)
		synctest.Wait()
		if got != "1" || a.watching() != 0 {
			t.Errorf("%q, %d watches", got, a.watching())
		}
		o.UID, o.Data = "second", map[string]string{"k": "2"}
		a.put(o)
		time.Sleep(10 * time.Minute)
		if got := ask(1); got != "1" || a.count("watch ConfigMap default/fixed") != 1 {
			t.Errorf("the pod sees %q after %d watches", got, a.count("watch ConfigMap default/fixed"))
		}
		if got := ask(2); got != "2" {
			t.Errorf("another pod sees %q", got)
		}
	})
}

// TestClaims: a claim is read again while it isn't bound, and not when it is; each pod has it read for itself.
func TestClaims(t *testing.T) {
	during(t, nil, func(t *testing.T, a *api, r *objecttest.Realm) {
		o := &v1.PersistentVolumeClaim{ObjectMeta: named("data")}
		o.Status.Phase = v1.ClaimPending
		a.put(o)
		ask := func(n int) v1.PersistentVolumeClaimPhase {
			began := time.Now()
			got, err := r.For(apiPod(n)).PersistentVolumeClaim(t.Context(), "default", "data")
			if object.IsUnknown(err) && r.Await(t.Context(), apiPod(n).Pod.UID, began) {
				got, err = r.For(apiPod(n)).PersistentVolumeClaim(t.Context(), "default", "data")
			}
			if err != nil {
				t.Fatal(err)
			}
			return got.Status.Phase
		}
		const what = "get PersistentVolumeClaim default/data"
		if got := ask(1); got != v1.ClaimPending {
			t.Errorf("%s", got)
		}
		time.Sleep(5 * time.Minute)
		if n := a.count(what); n < 15 || n > 35 {
			t.Errorf("%d calls in 5 minutes while it isn't bound", n)
		}
		r.Changed.Drain()
		o.Status.Phase = v1.ClaimBound
		a.put(o)
		time.Sleep(30*time.Second + latency)
		if told := r.Changed.Drain(); !slices.Contains(told, keyOf(o).Object()) || ask(1) != v1.ClaimBound {
			t.Errorf("told %v", told)
		}
		n := a.count(what)
		time.Sleep(24 * time.Hour)
		if more := a.count(what) - n; more != 0 {
			t.Errorf("%d calls a day when it is bound", more)
		}
		a.fail(keyOf(o), 500)
		began := time.Now()
		if _, err := r.For(apiPod(2)).PersistentVolumeClaim(t.Context(), "default", "data"); !object.IsUnknown(err) || a.count(what) != n {
			t.Errorf("another pod: %v", err)
		}
		if !r.Await(t.Context(), "u2", began) || ask(2) != v1.ClaimBound || a.count(what) == n {
			t.Errorf("what was known doesn't count while the API server fails")
		}
	})
}

// TestVolumeAttachments: one is read once when it is attached. Otherwise it is read again at intervals of 0.5 s to 30 s, as long as a pod waits for it.
func TestVolumeAttachments(t *testing.T) {
	attached := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-1"}, Status: storagev1.VolumeAttachmentStatus{Attached: true}}
	deleted := attached.DeepCopy()
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	failed := attached.DeepCopy()
	failed.Status = storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no such disk"}}
	key := keyOf(attached)
	what := "get " + key.String()
	for title, c := range map[string]struct {
		object   *storagev1.VolumeAttachment
		statuses []int
	}{
		"not attached": {object: failed}, "being deleted": {object: deleted}, "not there": {}, "not there yet": {statuses: slices.Repeat([]int{403}, 10000)},
		"no answer": {object: attached, statuses: slices.Repeat([]int{503}, 10000)},
	} {
		during(t, nil, func(t *testing.T, a *api, r *objecttest.Realm) {
			if c.object != nil {
				a.put(c.object)
			}
			a.fail(key, c.statuses...)
			ask := func(pod int) (*storagev1.VolumeAttachment, error) {
				began := time.Now()
				got, err := r.For(apiPod(pod)).VolumeAttachment(t.Context(), key.Name)
				if object.IsUnknown(err) && r.Await(t.Context(), apiPod(pod).Pod.UID, began) {
					got, err = r.For(apiPod(pod)).VolumeAttachment(t.Context(), key.Name)
				}
				return got, err
			}
			got, err := ask(1)
			switch {
			case c.statuses != nil && !object.IsUnknown(err), c.statuses == nil && c.object == nil && !apierrors.IsNotFound(err), c.statuses == nil && c.object != nil && (err != nil || got.Status.Attached != c.object.Status.Attached):
				t.Errorf("%s: %v, %v", title, got, err)
			}
			if n := a.count(what); c.statuses == nil && n != 1 {
				t.Errorf("%s: %d calls for the first answer", title, n)
			}
			time.Sleep(499*time.Millisecond - latency)
			if n := a.count(what); c.statuses == nil && n != 1 {
				t.Errorf("%s: %d calls in the first half second", title, n)
			}
			time.Sleep(5 * time.Minute)
			first := a.count(what)
			if first < 10 || first > 25 {
				t.Errorf("%s: %d calls in 5 minutes", title, first)
			}
			_, _ = ask(1)
			time.Sleep(2 * interest)
			n := a.count(what)
			if n < first+10 || n > first+45 {
				t.Errorf("%s: %d calls while a pod waits", title, n-first)
			}
			time.Sleep(24 * time.Hour)
			if more := a.count(what) - n; more != 0 {
				t.Errorf("%s: %d calls a day when no pod has asked for %v", title, more, interest)
			}
			a.fail(key)
			a.put(attached)
			r.Changed.Drain()
			_, _ = ask(1)
			time.Sleep(2 * latency)
			if got, err := ask(1); err != nil || !got.Status.Attached || got.DeletionTimestamp != nil || a.count(what) != n+1 {
				t.Errorf("%s, then attached: %v, %v after %d calls", title, got, err, a.count(what)-n)
			}
			n = a.count(what)
			time.Sleep(24 * time.Hour)
			if more := a.count(what) - n; more != 0 {
				t.Errorf("%s: %d calls a day when it is attached", title, more)
			}
			a.fail(key, 503, 503)
			if got, err := r.For(apiPod(1)).VolumeAttachment(t.Context(), key.Name); !object.IsUnknown(err) {
				t.Errorf("%s: an old answer counts: %v, %v", title, got, err)
			}
			time.Sleep(2 * latency)
			if got, err := r.For(apiPod(1)).VolumeAttachment(t.Context(), key.Name); !object.IsUnknown(err) {
				t.Errorf("%s: an old answer counts when there is no new one: %v, %v", title, got, err)
			}
			r.Changed.Drain()
			time.Sleep(5 * time.Second)
			if got, err := r.For(apiPod(1)).VolumeAttachment(t.Context(), key.Name); err != nil || !slices.Contains(r.Changed.Drain(), key.Object()) {
				t.Errorf("%s: after failures: %v, %v", title, got, err)
			}
		})
	}
}

// followAttachments lets the realm's finder follow the volumes of a node, whose facts the test sets, until end is called.
func followAttachments(t *testing.T, r *objecttest.Realm, node string) (facts *nodefacts.Writer, end func()) {
	t.Helper()
	board := nodefacts.NewBoard(nodefacts.Facts{})
	facts, err := board.Writer("a test", nodefacts.InUse|nodefacts.ReportedInUse|nodefacts.VolumesAttached)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Finder.(*clusterobjects.Finder).FollowAttachments(ctx, board, node) })
	return facts, func() { cancel(); running.Wait() }
}

// TestAttachmentsInUse: the VolumeAttachment of a volume that is attached soon is read once, when the node's object
// lists it as attached. A pod waits only while that read is under way. The object of a volume that isn't in use any more
// isn't read.
func TestAttachmentsInUse(t *testing.T) {
	const node = "node1"
	name := object.AttachmentName("a.example", "h1", node)
	is := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	what := "get " + keyOf(is).String()
	for _, attachedAfter := range []time.Duration{400 * time.Millisecond, time.Minute} {
		during(t, nil, func(t *testing.T, a *api, r *objecttest.Realm) {
			facts, end := followAttachments(t, r, node)
			defer end()
			synctest.Wait()
			lists := func(inUse, attached bool) {
				facts.Set(func(f *nodefacts.Facts) {
					f.InUse, f.VolumesAttached = nil, nil
					if inUse {
						f.InUse = []v1.UniqueVolumeName{"kubernetes.io/csi/a.example^h1"}
					}
					if attached {
						f.VolumesAttached = []v1.AttachedVolume{{Name: "kubernetes.io/csi/a.example^h1"}}
					}
					f.ReportedInUse = f.InUse
				})
				synctest.Wait()
			}
			ask := func() (*storagev1.VolumeAttachment, error) {
				return r.For(apiPod(1)).VolumeAttachment(t.Context(), name)
			}
			a.put(is)
			lists(true, false)
			began := time.Now()
			if _, err := ask(); !object.IsUnknown(err) {
				t.Error(err)
			}
			if synctest.Wait(); r.Await(t.Context(), "u1", began) || time.Since(began) > 0 {
				t.Errorf("a pod waits for %s", time.Since(began))
			}
			time.Sleep(attachedAfter)
			if n := a.count(what); attachedAfter < time.Second && n > 0 || attachedAfter > time.Second && (n < 5 || n > 20) {
				t.Errorf("%d calls in %s until it is attached", n, attachedAfter)
			}
			n := a.count(what)
			now := is.DeepCopy()
			now.Status.Attached = true
			a.put(now)
			lists(true, true)
			time.Sleep(2 * latency)
			if got, err := ask(); err != nil || !got.Status.Attached || a.count(what) != n+1 {
				t.Errorf("attached after %s: %v, %v after %d calls", attachedAfter, got, err, a.count(what)-n)
			}
			lists(false, true)
			lists(false, false)
			time.Sleep(interest)
			if _, err := ask(); !object.IsUnknown(err) || a.count(what) != n+1 {
				t.Errorf("not in use any more: %v after %d calls", err, a.count(what)-n)
			}
			lists(true, true)
			time.Sleep(2 * latency)
			if got, err := ask(); err != nil || !got.Status.Attached || a.count(what) != n+2 {
				t.Errorf("in use again: %v, %v after %d calls", got, err, a.count(what)-n)
			}
		})
	}
}

// TestAskedDuringARead: the answer to a read that began before the node's lists changed may be older than they are. The
// pod waits for the answer to another read.
func TestAskedDuringARead(t *testing.T) {
	const node, volume = "node1", v1.UniqueVolumeName("kubernetes.io/csi/a.example^h1")
	name := object.AttachmentName("a.example", "h1", node)
	is := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	is.Status.Attached = true
	what := "get " + keyOf(is).String()
	during(t, nil, func(t *testing.T, a *api, r *objecttest.Realm) {
		facts, end := followAttachments(t, r, node)
		defer end()
		list := func(attached ...v1.AttachedVolume) {
			facts.Set(func(f *nodefacts.Facts) {
				f.InUse = []v1.UniqueVolumeName{volume}
				f.ReportedInUse, f.VolumesAttached = f.InUse, attached
			})
			synctest.Wait()
		}
		ask := func() error {
			_, err := r.For(apiPod(1)).VolumeAttachment(t.Context(), name)
			return err
		}
		a.put(is)
		list(v1.AttachedVolume{Name: volume})
		began := time.Now()
		if err := ask(); !object.IsUnknown(err) {
			t.Error(err)
		}
		time.Sleep(latency / 2)
		list() // it was detached, and is attached again
		list(v1.AttachedVolume{Name: volume})
		time.Sleep(latency)
		if err := ask(); !object.IsUnknown(err) || a.count(what) != 2 {
			t.Errorf("the answer to a read before: %v after %d calls", err, a.count(what))
		}
		if !r.Await(t.Context(), "u1", began) || time.Since(began) != 2*latency || ask() != nil || a.count(what) != 2 {
			t.Errorf("%v after %s and %d calls", ask(), time.Since(began), a.count(what))
		}
	})
}

// interest is how long a pod counts as waiting after it has asked.
const interest = 10 * time.Minute

// TestDriverWithoutObject: that a driver has no CSIDriver is an answer as good as any. It is asked for once, it stays valid while the API server fails, and a
// CSIDriver that is made later is seen at once.
func TestDriverWithoutObject(t *testing.T) {
	during(t, nil, func(t *testing.T, a *api, r *objecttest.Realm) {
		k := object.Key{Kind: object.CSIDriver, Name: "csi.example.com"}
		ask := func(n int) (*storagev1.CSIDriver, error) { return r.For(apiPod(n)).CSIDriver(t.Context(), k.Name) }
		if _, err := ask(1); !object.IsUnknown(err) {
			t.Errorf("before there is an answer: %v", err)
		}
		time.Sleep(2 * latency)
		if told := r.Changed.Drain(); !slices.Equal(told, []pod.Object{k.Object()}) {
			t.Errorf("told %v", told)
		}
		if _, err := ask(1); !apierrors.IsNotFound(err) {
			t.Errorf("after the first answer: %v", err)
		}
		if _, err := ask(2); !apierrors.IsNotFound(err) { // at once
			t.Errorf("another pod: %v", err)
		}
		a.fail(k, slices.Repeat([]int{503}, 1000)...)
		time.Sleep(24 * time.Hour)
		for n := range 3 {
			if _, err := ask(n); !apierrors.IsNotFound(err) {
				t.Errorf("pod %d, a day later: %v", n, err)
			}
		}
		if told := r.Changed.Drain(); len(told) > 0 || a.watching() != 1 || a.count("watch "+k.String()) != 1 || a.count("get "+k.String()) != 0 {
			t.Errorf("told %v; %d watches of %d calls", told, a.watching(), a.count("watch "+k.String()))
		}
		for _, attach := range []bool{true, false} {
			a.put(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: k.Name}, Spec: storagev1.CSIDriverSpec{AttachRequired: &attach}})
			synctest.Wait()
			if told := r.Changed.Drain(); !slices.Equal(told, []pod.Object{k.Object()}) {
				t.Errorf("attach %v: told %v", attach, told)
			}
			if got, err := ask(2); err != nil || *got.Spec.AttachRequired != attach {
				t.Errorf("attach %v: %v, %v", attach, got, err)
			}
		}
		a.remove(k)
		synctest.Wait()
		if _, err := ask(1); !apierrors.IsNotFound(err) || len(r.Changed.Drain()) != 1 {
			t.Errorf("when it is removed: %v", err)
		}
		for n := range 3 {
			r.Forget(types.UID(fmt.Sprint("u", n)))
		}
		synctest.Wait()
		if a.watching() != 0 {
			t.Error("it is watched for nobody")
		}
	})
}

// TestUnreachableDriver: an API server that doesn't answer isn't one that says that there is no CSIDriver.
func TestUnreachableDriver(t *testing.T) {
	during(t, nil, func(t *testing.T, a *api, r *objecttest.Realm) {
		k := object.Key{Kind: object.CSIDriver, Name: "csi.example.com"}
		a.fail(k, 403, 500, 503)
		ask := func() error { _, err := r.For(apiPod(1)).CSIDriver(t.Context(), k.Name); return err }
		for a.left(k) > 0 {
			if err := ask(); !object.IsUnknown(err) {
				t.Fatalf("with %d failures left: %v", a.left(k), err)
			}
			time.Sleep(latency)
		}
		time.Sleep(10 * time.Second)
		if err := ask(); !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// TestTokensOfDrivers: a pod has a token for each audience that the driver of its volume wants, as long as the driver wants it. Its users are woken.
func TestTokensOfDrivers(t *testing.T) {
	during(t, nil, func(t *testing.T, a *api, r *objecttest.Realm) {
		d := apiPod(1)
		ask := func(q storagev1.TokenRequest) (object.Token, error) {
			request := tokenOf(d)
			request.Audience, request.Life = q.Audience, pod.Seconds(ptr.Deref(q.ExpirationSeconds, 0))
			return r.For(d).Token(t.Context(), request)
		}
		wanted := []storagev1.TokenRequest{{Audience: "vault", ExpirationSeconds: ptr.To[int64](600)}, {}}
		for _, q := range wanted {
			if _, err := ask(q); !object.IsUnknown(err) {
				t.Errorf("audience %q, before there is an answer: %v", q.Audience, err)
			}
		}
		time.Sleep(2 * latency)
		if told := r.Changed.Drain(); !slices.Equal(told, []pod.Object{object.TokenKey(d.Pod)}) {
			t.Errorf("told %v", told)
		}
		for _, q := range wanted { // the one that is due first comes first
			first, err := ask(q)
			life := pod.Seconds(ptr.Deref(q.ExpirationSeconds, 3600)) // the server's default
			if err != nil || !strings.Contains(first.Value(), "-"+q.Audience+"-") || first.Until.Sub(first.Issued) != life {
				t.Fatalf("audience %q: %v, %v", q.Audience, first, err)
			}
			time.Sleep(time.Until(first.Renew()))
			if _, err := ask(q); !object.IsUnknown(err) {
				t.Errorf("audience %q, when it is due: %v", q.Audience, err)
			}
			time.Sleep(2 * latency)
			if told := r.Changed.Drain(); !slices.Contains(told, object.TokenKey(d.Pod)) {
				t.Errorf("audience %q: told %v", q.Audience, told)
			}
			if next, err := ask(q); err != nil || next.Value() == first.Value() {
				t.Errorf("audience %q: %v, %v", q.Audience, next, err)
			}
		}
	})
}

// TestServices: all pods wait for one watch of those that have an address.
func TestServices(t *testing.T) {
	during(t, nil, func(t *testing.T, a *api, r *objecttest.Realm) {
		put := func(namespace, name string) {
			s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"long": "text"}}}
			s.Spec.ClusterIP, s.Spec.Ports = "10.0.0.1", []v1.ServicePort{{Name: "http", Port: 80, Protocol: v1.ProtocolTCP}}
			a.put(s)
		}
		put("default", "b")
		put("default", "a")
		put("other", "c")
		names := func(n int) (list []string) {
			services, err := r.For(apiPod(n)).Services(t.Context(), "default")
			if err != nil {
				return []string{fmt.Sprint("unknown: ", object.IsUnknown(err))}
			}
			for _, s := range services {
				list = append(list, s.Name)
				if len(s.Annotations) > 0 || s.Spec.Ports[0].Port != 80 {
					t.Errorf("kept of it: %+v", s)
				}
			}
			return list
		}
		if got := names(1); !slices.Equal(got, []string{"unknown: true"}) {
			t.Errorf("at first: %q", got)
		}
		if !r.Await(t.Context(), "u1", time.Now()) || !slices.Equal(names(1), []string{"a", "b"}) {
			t.Errorf("then: %q", names(1))
		}
		put("default", "d")
		a.remove(object.Key{Kind: object.Service, Namespace: "default", Name: "a"})
		synctest.Wait()
		if got := names(2); !slices.Equal(got, []string{"b", "d"}) || a.count("watch Service ") != 1 {
			t.Errorf("another pod: %q, %d watches", got, a.count("watch Service "))
		}
	})
}

// scripted is an API server whose watches are told what a test tells.
type scripted struct {
	*api
	sights chan apiclient.Sight
}

func (s scripted) Watch(ctx context.Context, _ apiclient.Resource, _ string, _ apiclient.Selectors, to apiclient.Sight) {
	s.sights <- to
	<-ctx.Done()
}

// TestMalformedServices: what was known of a Service that can't be decoded goes on, through lists too, until it is deleted.
func TestMalformedServices(t *testing.T) {
	server := scripted{}
	during(t, func(c *clusterobjects.Config) {
		server = scripted{c.API.(*api), make(chan apiclient.Sight, 1)}
		c.API = &server
	}, func(t *testing.T, _ *api, r *objecttest.Realm) {
		service := func(name string) *v1.Service { return &v1.Service{ObjectMeta: named(name)} }
		malformed := func(name string) apiclient.Malformed {
			return apiclient.Malformed{Namespace: "default", Name: name, Err: errors.New("no")}
		}
		list := func(bad []apiclient.Malformed, good ...string) (l apiclient.List) {
			for _, name := range good {
				l.Objects = append(l.Objects, service(name))
			}
			l.Malformed = bad
			return l
		}
		deleted := malformed("a")
		deleted.Deleted = true
		_, _ = r.For(apiPod(1)).Services(t.Context(), "default")
		to := <-server.sights
		for _, step := range []struct {
			name string
			do   func()
			want []string
		}{
			{"all can be decoded", func() { to.Listed(list(nil, "a", "b", "c")) }, []string{"a", "b", "c"}},
			{"one can't", func() { to.Malformed(malformed("a")) }, []string{"a", "b", "c"}},
			{"nor in a list, where another has gone", func() { to.Listed(list([]apiclient.Malformed{malformed("a")}, "b")) }, []string{"a", "b"}},
			{"one of which nothing was known", func() { to.Listed(list([]apiclient.Malformed{malformed("a"), malformed("d")}, "b")) }, []string{"a", "b"}},
			{"one that may be any", func() { to.Listed(list([]apiclient.Malformed{{Err: errors.New("no")}}, "c")) }, []string{"a", "b", "c"}},
			{"it is deleted", func() { to.Malformed(deleted) }, []string{"b", "c"}},
			{"it has gone from a list", func() { to.Listed(list([]apiclient.Malformed{malformed("c")})) }, []string{"c"}},
		} {
			step.do()
			services, err := r.For(apiPod(1)).Services(t.Context(), "default")
			var got []string
			for _, s := range services {
				got = append(got, s.Name)
			}
			if slices.Sort(got); err != nil || !slices.Equal(got, step.want) {
				t.Errorf("%s: %q, %v", step.name, got, err)
			}
		}
	})
}

// TestTokensOfADay: a token is asked for when one is due, and not in between.
func TestTokensOfADay(t *testing.T) {
	during(t, nil, func(t *testing.T, a *api, r *objecttest.Realm) {
		d := apiPod(1)
		for began := time.Now(); time.Since(began) < 24*time.Hour; time.Sleep(time.Minute) {
			if _, err := r.For(d).Token(t.Context(), tokenOf(d)); err != nil && !r.Await(t.Context(), d.Pod.UID, time.Now()) {
				t.Fatal(err)
			}
		}
		if n := a.count("create TokenRequest default/web-1"); n < 28 || n > 31 { // 24 h in parts of 80 % of an hour
			t.Errorf("%d calls a day", n)
		}
	})
}

// After the clock was set, every token is renewed once: nobody can say by it when the old one ends.
func TestTokensAfterTheClockWasSet(t *testing.T) {
	during(t, nil, func(t *testing.T, a *api, r *objecttest.Realm) {
		d := apiPod(1)
		token := func() object.Token {
			t.Helper()
			for {
				began := time.Now()
				got, err := r.For(d).Token(t.Context(), tokenOf(d))
				if err == nil {
					return got
				}
				if !r.Await(t.Context(), d.Pod.UID, began) {
					t.Fatal(err)
				}
			}
		}
		token()
		time.Sleep(time.Minute)
		r.Changed.Drain()
		r.Finder.(*clusterobjects.Finder).ClockChanged()
		if woken := r.Changed.Drain(); !slices.Contains(woken, object.TokenKey(d.Pod)) {
			t.Errorf("woken for %v", woken)
		}
		if got := token(); time.Since(got.Issued) > time.Second {
			t.Errorf("the token was issued at %v", got.Issued)
		}
		token()
		if n := a.count("create TokenRequest default/web-1"); n != 2 {
			t.Errorf("%d calls", n)
		}
	})
}

// TestTokenWhileTheAPIServerIsAway: it is tried again, at growing distances, each time saying when.
func TestTokenWhileTheAPIServerIsAway(t *testing.T) {
	during(t, nil, func(t *testing.T, a *api, r *objecttest.Realm) {
		d := apiPod(1)
		k := object.Key{Kind: "TokenRequest", Namespace: "default", Name: "web-1"}
		a.fail(k, slices.Repeat([]int{http.StatusServiceUnavailable}, 1000)...)
		for began := time.Now(); time.Since(began) < time.Hour; {
			_, err := r.For(d).Token(t.Context(), tokenOf(d))
			if !object.IsUnknown(err) {
				t.Fatal(err)
			}
			r.Await(t.Context(), d.Pod.UID, time.Now())
			if at := object.NotBefore(err); !at.IsZero() {
				time.Sleep(time.Until(at))
			} else {
				<-r.Changed.Woken()
				r.Changed.Drain()
			}
		}
		if n := a.count("create TokenRequest default/web-1"); n > 150 {
			t.Errorf("%d calls an hour", n)
		}
		a.fail(k)
		time.Sleep(5 * time.Minute)
		began := time.Now()
		_, _ = r.For(d).Token(t.Context(), tokenOf(d))
		if r.Await(t.Context(), d.Pod.UID, began); time.Since(began) > time.Second {
			t.Errorf("it took %s", time.Since(began))
		}
		if _, err := r.For(d).Token(t.Context(), tokenOf(d)); err != nil {
			t.Error(err)
		}
	})
}

// written is a token as an API server makes it.
func written(t *testing.T, change func(claims, private map[string]any)) string {
	t.Helper()
	now := time.Now().Unix()
	private := map[string]any{"namespace": "default", "pod": map[string]string{"name": "web-1", "uid": "u1"}, "serviceaccount": map[string]string{"name": "robot", "uid": "s"}}
	claims := map[string]any{"aud": []string{"https://kubernetes.default.svc"}, "iss": "x", "iat": now - 60, "exp": now + 3547, "kubernetes.io": private}
	if change != nil {
		change(claims, private)
	}
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	return "e30." + base64.RawURLEncoding.EncodeToString(body) + ".c2ln"
}

// TestKeptToken: an agent that comes back goes on with the token that the last one wrote, unless it is due or in doubt.
func TestKeptToken(t *testing.T) {
	type claims = map[string]any
	for name, tc := range map[string]struct {
		change func(c, private claims)
		used   bool
	}{
		"good": {nil, true},
		"valid longer": {func(c, p claims) {
			c["exp"] = time.Now().Add(8000 * time.Hour).Unix()
			p["warnafter"] = time.Now().Add(time.Hour - time.Minute).Unix()
		}, true},
		"due":                 {func(c, _ claims) { c["iat"], c["exp"] = time.Now().Unix()-3000, time.Now().Unix()+600 }, false},
		"expired":             {func(c, _ claims) { c["iat"], c["exp"] = time.Now().Unix()-5000, time.Now().Unix()-1393 }, false},
		"from the future":     {func(c, _ claims) { c["iat"], c["exp"] = time.Now().Unix()+600, time.Now().Unix()+4207 }, false},
		"of another life":     {func(c, _ claims) { c["exp"] = time.Now().Add(8000 * time.Hour).Unix() }, false},
		"of another pod":      {func(_, p claims) { p["pod"] = map[string]string{"name": "web-1", "uid": "u2"} }, false},
		"of another account":  {func(_, p claims) { p["serviceaccount"] = map[string]string{"name": "default"} }, false},
		"of another cluster":  {func(_, p claims) { p["namespace"] = "prod" }, false},
		"for nobody in words": {func(c, _ claims) { c["aud"] = 7 }, false},
	} {
		var text string
		during(t, func(c *clusterobjects.Config) {
			text = written(t, tc.change)
			c.StoredToken = func(uid types.UID, volume, path string) (string, error) {
				if uid != "u1" || volume != "access" || path != "token" {
					t.Errorf("%s: read %s %s %s", name, uid, volume, path)
				}
				return text, nil
			}
		}, func(t *testing.T, a *api, r *objecttest.Realm) {
			d := apiPod(1)
			ask := func() string {
				began := time.Now()
				got, err := r.For(d).Token(t.Context(), tokenOf(d))
				if err != nil && r.Await(t.Context(), d.Pod.UID, began) {
					got, err = r.For(d).Token(t.Context(), tokenOf(d))
				}
				// The file is read in no time.
				if synctest.Wait(); object.IsUnknown(err) {
					got, err = r.For(d).Token(t.Context(), tokenOf(d))
				}
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				return got.Value()
			}
			got, calls := ask(), a.count("create TokenRequest default/web-1")
			if used := got == text; used != tc.used || used != (calls == 0) {
				t.Errorf("%s: the file's is used: %t, %d calls", name, used, calls)
			}
			time.Sleep(time.Hour)
			if next := ask(); next == got {
				t.Errorf("%s: it isn't renewed", name)
			}
		})
	}
}

// TestNameless: the API has no object without a name, and a node may ask for none without one.
func TestNameless(t *testing.T) {
	during(t, nil, func(t *testing.T, a *api, r *objecttest.Realm) {
		if _, err := r.For(apiPod(1)).Secret(t.Context(), "default", ""); !apierrors.IsNotFound(err) || len(a.calls) > 0 {
			t.Errorf("%v, %v", err, a.calls)
		}
	})
}

// TestEnd: nothing is asked after the end, and nobody waits.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		f := clusterobjects.New(clusterobjects.Config{API: a, Strategy: v1beta1.WatchChangeDetectionStrategy, Changed: func(...pod.Object) {}, Known: nothingKnown(t), Others: objecttest.View(object.NewSet(nil, true))})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = f.For(apiPod(1)).Secret(t.Context(), "default", "early")
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
		_, _ = f.For(apiPod(1)).Secret(t.Context(), "default", "late")
		if f.Await(ctx, "u1", time.Now()) || len(a.calls) > 0 {
			t.Errorf("%v", a.calls)
		}
	})
}
