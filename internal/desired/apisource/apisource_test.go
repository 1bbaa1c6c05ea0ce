package apisource

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/lastknown"
	"github.com/deckhand-node/deckhand/internal/cluster/podobject"
	"github.com/deckhand-node/deckhand/internal/cluster/podobject/podobjecttest"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/sourcetest"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

func newPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid"), Generation: 1, ResourceVersion: "1",
			Labels: map[string]string{"app": "a"}, Annotations: map[string]string{"note": "x"}},
		Spec:   v1.PodSpec{NodeName: "node1", Containers: []v1.Container{{Name: "c", Image: "app:1"}}},
		Status: v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue}}},
	}
}

// TestNormalise: what a node has said itself comes back, and is nothing new; what others say is.
func TestNormalise(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	said := v1.PodRunning // by this node
	phase := func(types.UID) v1.PodPhase { return said }
	condition := func(p *v1.Pod, c v1.PodCondition) { p.Status.Conditions = append(p.Status.Conditions, c) }
	for name, tc := range map[string]struct {
		change func(*v1.Pod)
		want   bool // that it is new
	}{
		"our own status": {func(p *v1.Pod) {
			p.ResourceVersion, p.Status.Phase, p.Status.PodIP = "2", v1.PodRunning, "10.0.0.1"
			condition(p, v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue})
			condition(p, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet})
		}, false},
		"managed fields and finalizers": {func(p *v1.Pod) {
			p.Finalizers = []string{"x"}
			p.OwnerReferences = []metav1.OwnerReference{{Name: "x"}}
		}, false},
		"a readiness gate": {func(p *v1.Pod) { condition(p, v1.PodCondition{Type: "example.com/gate", Status: v1.ConditionTrue}) }, true},
		"an eviction": {func(p *v1.Pod) {
			condition(p, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "EvictionByEvictionAPI"})
		}, true},
		"somebody fails it":             {func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, true},
		"an image":                      {func(p *v1.Pod) { p.Generation, p.Spec.Containers[0].Image = 2, "app:2" }, true},
		"a label beside our own status": {func(p *v1.Pod) { p.Status.Phase, p.Labels = v1.PodRunning, map[string]string{"app": "b"} }, true},
		"an annotation":                 {func(p *v1.Pod) { p.Annotations["note"] = "y" }, true},
		"one more annotation":           {func(p *v1.Pod) { p.Annotations["more"] = "y" }, true},
		"one annotation less":           {func(p *v1.Pod) { delete(p.Annotations, "note") }, true},
		"a deletion":                    {func(p *v1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{}, ptr.To[int64](30) }, true},
		"a lower generation":            {func(p *v1.Pod) { p.Generation = 0 }, true},
	} {
		p := newPod("a")
		first := normalise(nil, p, phase, began)
		if a := first.Pod.Annotations; a["note"] != "x" || a[pod.AnnotationConfigSource] != "api" || a[pod.AnnotationConfigSeen] == "" || len(p.Annotations) != 1 {
			t.Errorf("%s: annotations %v, of the object %v", name, a, p.Annotations)
		}
		next := newPod("a")
		tc.change(next)
		second := normalise(first, next, phase, began.Add(time.Minute))
		if (second != first) != tc.want {
			t.Errorf("%s: new is %t, want %t", name, second != first, tc.want)
		}
		if second.Base != "a-uid" || !second.RequiresTerminalPhase || !second.UIDIsIdentity || second.Pod.Annotations[pod.AnnotationConfigSeen] != first.Pod.Annotations[pod.AnnotationConfigSeen] {
			t.Errorf("%s: %+v", name, second)
		}
	}
	said = v1.PodFailed
	p := newPod("a")
	first := normalise(nil, p, phase, began)
	next := newPod("a")
	next.Status.Phase = v1.PodFailed
	if normalise(first, next, phase, began) != first {
		t.Error("the end that this node told is new")
	}
}

// TestDeletion: the grace begins when this agent hears of the deletion, and only a new grace is a new deletion.
func TestDeletion(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	phase := func(types.UID) v1.PodPhase { return v1.PodRunning }
	p := newPod("a")
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: began.Add(-time.Hour)}, ptr.To[int64](30)
	d := normalise(nil, p, phase, began)
	if *d.Deletion != (pod.Deletion{At: began, Grace: 30 * time.Second}) {
		t.Errorf("%+v", d.Deletion)
	}
	p = p.DeepCopy()
	p.Labels = map[string]string{"app": "b"}
	e := normalise(d, p, phase, began.Add(10*time.Second))
	if e == d || e.Deletion != d.Deletion {
		t.Errorf("after another change: %+v", e.Deletion)
	}
	p = p.DeepCopy()
	p.DeletionGracePeriodSeconds = ptr.To[int64](1)
	if f := normalise(e, p, phase, began.Add(20*time.Second)); *f.Deletion != (pod.Deletion{At: began.Add(20 * time.Second), Grace: time.Second}) {
		t.Errorf("after a shorter one: %+v", f.Deletion)
	}
}

func TestCheck(t *testing.T) {
	for name, change := range map[string]func(*v1.Pod){
		"no UID":                  func(p *v1.Pod) { p.UID = "" },
		"a UID that leads away":   func(p *v1.Pod) { p.UID = "../x" },
		"an endless UID":          func(p *v1.Pod) { p.UID = types.UID(strings.Repeat("x", 129)) },
		"an endless name":         func(p *v1.Pod) { p.Name = strings.Repeat("x", 300) },
		"a namespace of two":      func(p *v1.Pod) { p.Namespace = "a/b" },
		"a name with a separator": func(p *v1.Pod) { p.Name = "a_b" },
		"no containers":           func(p *v1.Pod) { p.Spec.Containers = nil },
		"a container twice":       func(p *v1.Pod) { p.Spec.InitContainers = []v1.Container{{Name: "c"}} },
		"an ephemeral one twice": func(p *v1.Pod) {
			p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "c"}}}
		},
		"a container's path":             func(p *v1.Pod) { p.Spec.Containers[0].Name = ".." },
		"a volume twice":                 func(p *v1.Pod) { p.Spec.Volumes = []v1.Volume{{Name: "v"}, {Name: "v"}} },
		"a name of two lines":            func(p *v1.Pod) { p.Name = "a\nI1128 12:00:00.000000 1 forged.go:1] \"Pod deleted\"" },
		"a name that ends a text":        func(p *v1.Pod) { p.Name = "a\x00b" },
		"a name that steers a terminal":  func(p *v1.Pod) { p.Spec.Containers[0].Name = "a\x1b[2J" },
		"a name that isn't UTF-8":        func(p *v1.Pod) { p.Name = "a\xff" },
		"a namespace written from right": func(p *v1.Pod) { p.Namespace = "a\u202eb" },
		"an unknown restart policy":      func(p *v1.Pod) { p.Spec.RestartPolicy = "Sometimes" },
		"an unknown signal": func(p *v1.Pod) {
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{StopSignal: ptr.To(v1.Signal("SIGBOGUS"))}
		},
		"an unknown scheme": func(p *v1.Pod) {
			p.Spec.Containers[0].LivenessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Scheme: "ftp"}}}
		},
		"a volume's path": func(p *v1.Pod) { p.Spec.Volumes = []v1.Volume{{Name: "a/b"}} },
	} {
		p := newPod("a")
		change(p)
		if err := check(p, false); err == nil {
			t.Errorf("%s: no error", name)
		}
		// What an earlier agent ran isn't ended for a value that this one doesn't know.
		if err := check(p, true); (err == nil) != strings.HasPrefix(name, "an unknown") {
			t.Errorf("%s, of a pod that was taken: %v", name, err)
		}
	}
	medium := newPod("a") // API servers don't check it, and would have a pod that failed replaced for ever
	medium.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "memory"}}}}
	if err := check(medium, false); err != nil {
		t.Error(err)
	}
	if err := check(newPod("a"), false); err != nil {
		t.Error(err)
	}
}

// TestSource: nothing is known before the first list, what comes is reported once, and what can't be run is refused.
func TestSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, sink := podobjecttest.NewServer(), sourcetest.NewRecorder()
		cache := podobject.NewCache(server, logr.Discard())
		s := New(Config{Objects: cache, Sink: sink, Known: known(t, ""), Reach: (&wake.Group{}).Subscribe, Phase: func(types.UID) v1.PodPhase { return "" }, NodeUID: func() types.UID { return "" }, Log: logr.Discard()})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = s.Run(ctx) })
		synctest.Wait()
		if r, _ := sink.Last(); !r.Pending || r.Source != pod.SourceAPI {
			t.Errorf("at first: %+v", r)
		}
		server.Put(newPod("a"))
		bad := newPod("b")
		bad.Spec.Containers = nil
		server.Put(bad)
		mirror := newPod("mirror") // of a static pod, which another source has
		mirror.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "hash"}
		server.Put(mirror)
		running.Go(func() { _ = cache.Run(ctx) })
		time.Sleep(time.Second)
		synctest.Wait()
		r, _ := sink.Last()
		if r.Pending || len(r.Claims) != 1 || r.Claims[0].Desired.Pod.Name != "a" || len(r.RefusedPods) != 1 || r.RefusedPods[0].UID != "b-uid" || r.RefusedPods[0].Reason != "InvalidPod" || !strings.Contains(r.RefusedPods[0].Message, "spec.containers is empty") {
			t.Errorf("%+v", r)
		}
		reports := len(sink.All())
		p := server.Get("default", "a")
		p.Status.PodIP = "10.0.0.1"
		server.Put(p) // as this node would
		time.Sleep(time.Second)
		if n := len(sink.All()); n != reports {
			t.Errorf("%d reports of nothing new", n-reports)
		}
		for i := range 100 {
			server.Put(newPod(fmt.Sprintf("p%d", i)))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		last, _ := sink.Last()
		if n := len(sink.All()) - reports; n > 2 || len(last.Claims) != 101 {
			t.Errorf("%d reports of a burst, %d claims", n, len(last.Claims))
		}
		server.Remove("default", "a")
		time.Sleep(time.Second)
		synctest.Wait()
		if last, _ := sink.Last(); len(last.Claims) != 100 {
			t.Errorf("%d claims", len(last.Claims))
		}
		cancel()
		running.Wait()
	})
}

// reached says whether the API server answers, and since when.
type reached struct {
	ok    bool
	since time.Time
}

func (r *reached) Reached() (bool, time.Time, error) { return r.ok, r.since, nil }

// known is what an agent has at a path, or has nowhere, of an API server that it hasn't heard of.
func known(t testing.TB, path string) *lastknown.Store {
	if path == "" {
		path = filepath.Join(t.TempDir(), "known")
	}
	s := lastknown.New(path, "", &reached{})
	s.Open("node1")
	return s
}

// TestAway: while the API server is away, a new agent wants what the one before had from it, and nothing else counts as gone. When it is back
// it is as that says: what is the same is no news, what was deleted goes, and what was made again under a name is another pod.
func TestAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "known")
	life := func(t *testing.T, store *lastknown.Store, reach *wake.Group, test func(s *Source, server *podobjecttest.Server, sink *sourcetest.Recorder, back func())) {
		server, sink := podobjecttest.NewServer(), sourcetest.NewRecorder()
		cache := podobject.NewCache(server, logr.Discard())
		s := New(Config{Objects: cache, Sink: sink, Known: store, Reach: reach.Subscribe, Phase: func(types.UID) v1.PodPhase { return "" }, NodeUID: func() types.UID { return "" }, Log: logr.Discard()})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = s.Run(ctx) })
		running.Go(func() { _ = store.Run(ctx) })
		test(s, server, sink, func() {
			running.Go(func() { _ = cache.Run(ctx) })
			time.Sleep(time.Second)
			synctest.Wait()
		})
		cancel()
		running.Wait()
	}
	ended := newPod("ended")
	ended.Status.Phase = v1.PodSucceeded
	synctest.Test(t, func(t *testing.T) {
		life(t, known(t, path), &wake.Group{}, func(_ *Source, server *podobjecttest.Server, _ *sourcetest.Recorder, back func()) {
			bad := newPod("bad")
			bad.Spec.Containers = nil
			for _, p := range []*v1.Pod{newPod("stays"), newPod("goes"), newPod("again"), ended, bad} {
				server.Put(p)
			}
			back()
		})
	})
	synctest.Test(t, func(t *testing.T) {
		reach, away := &wake.Group{}, &reached{}
		store := lastknown.New(path, "", away)
		store.Open("node1")
		life(t, store, reach, func(_ *Source, server *podobjecttest.Server, sink *sourcetest.Recorder, back func()) {
			synctest.Wait()
			if r, _ := sink.Last(); len(r.Claims) > 0 || r.Away {
				t.Errorf("before anything is known of the API server: %+v", r)
			}
			away.since = time.Now() // it fails
			reach.Wake()
			synctest.Wait()
			r, _ := sink.Last()
			was := claims(r.Claims)
			if !r.Pending || !r.Away || len(was) != 4 || was["ended-uid"].Pod.Status.Phase != v1.PodSucceeded {
				t.Errorf("while it is away: %+v", was)
			}
			for _, name := range []string{"stays", "again", "new"} {
				server.Put(newPod(name))
			}
			again := newPod("again")
			again.UID = "other-uid"
			server.Remove("default", "again")
			server.Put(again)
			server.Put(ended)
			back()
			r, _ = sink.Last()
			is := claims(r.Claims)
			if r.Pending || len(is) != 4 || is["stays-uid"] != was["stays-uid"] || is["ended-uid"] != was["ended-uid"] || is["other-uid"] == nil || is["new-uid"] == nil {
				t.Errorf("when it is back: %+v", is)
			}
		})
	})
	synctest.Test(t, func(t *testing.T) { // nothing is heard of it, as of one behind a firewall
		life(t, known(t, path), &wake.Group{}, func(_ *Source, _ *podobjecttest.Server, sink *sourcetest.Recorder, _ func()) {
			time.Sleep(time.Minute)
			if r, _ := sink.Last(); !r.Pending || len(r.Claims) != 4 {
				t.Errorf("%+v", r)
			}
		})
	})
}

func claims(list []desired.Claim) map[types.UID]*pod.Desired {
	all := map[types.UID]*pod.Desired{}
	for _, c := range list {
		all[c.Desired.Pod.UID] = c.Desired
	}
	return all
}

// BenchmarkEcho is what it costs that a status comes back that this node told: no report, and so no decision.
func BenchmarkEcho(b *testing.B) {
	old := newPod("a")
	for i := range 5 {
		old.Spec.Containers = append(old.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i), Image: "app:1", Env: []v1.EnvVar{{Name: "A", Value: "b"}}})
	}
	phase := func(types.UID) v1.PodPhase { return v1.PodRunning }
	d := normalise(nil, old, phase, time.Now())
	echo := old.DeepCopy()
	echo.Status.Phase, echo.Status.PodIP = v1.PodRunning, "10.0.0.1"
	for b.Loop() {
		if normalise(d, echo, phase, time.Now()) != d {
			b.Fatal("it is new")
		}
	}
}

// BenchmarkEchoAmong is the same where a node has as many pods as fit: the others cost next to nothing.
func BenchmarkEchoAmong(b *testing.B) {
	s := New(Config{Known: known(b, ""), Phase: func(types.UID) v1.PodPhase { return v1.PodRunning }, Log: logr.Discard()})
	var pods []*v1.Pod
	for i := range 500 {
		pods = append(pods, newPod(fmt.Sprint("p", i)))
	}
	s.update(pods)
	for b.Loop() {
		echo := *pods[0]
		pods[0] = &echo
		if s.update(pods) {
			b.Fatal("it is new")
		}
	}
}
