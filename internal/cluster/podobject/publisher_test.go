package podobject_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/cluster/podobject"
	"github.com/deckhand-node/deckhand/internal/cluster/podobject/podobjecttest"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

func TestContract(t *testing.T) {
	s := podobjecttest.NewServer()
	podobjecttest.Run(t, s, func(name, finalizer string) *v1.Pod {
		p := newPod(name)
		if finalizer != "" {
			p.Finalizers = []string{finalizer}
		}
		return s.Put(p)
	})
}

func TestMirrorContract(t *testing.T) {
	m := newPod("mirror")
	m.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "hash"}
	podobjecttest.RunMirror(t, podobjecttest.NewServer(), m)
}

func newPod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Status: v1.PodStatus{Phase: v1.PodPending}}
}

// refusals are pods that aren't run.
type refusals struct {
	mu   sync.Mutex
	list []pod.Refusal
	wake.Group
}

func (r *refusals) Refused() []pod.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list
}

func (r *refusals) set(list ...pod.Refusal) {
	r.mu.Lock()
	r.list = list
	r.mu.Unlock()
	r.Wake()
}

// world is a publisher with what it works with.
type world struct {
	server   *podobjecttest.Server
	cache    *podobject.Cache
	statuses *podstatus.Store
	refusals *refusals
	reached  wake.Slot
	calls    []string
}

// start runs a publisher until stop is called.
func start(server *podobjecttest.Server) (w *world, stop func()) {
	w = &world{server: server, cache: podobject.NewCache(server, logr.Discard()), statuses: podstatus.NewStore(), refusals: &refusals{}, reached: wake.NewSlot()}
	p := podobject.NewPublisher(podobject.PublisherConfig{Cache: w.cache, Statuses: w.statuses, Refusals: w.refusals, Reached: w.reached, Log: logr.Discard()})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = w.cache.Run(ctx) })
	running.Go(func() { _ = p.Run(ctx) })
	return w, func() { cancel(); running.Wait() }
}

// publish has this node say how a pod is.
func (w *world) publish(p *v1.Pod, gone bool, change func(*v1.PodStatus)) {
	s := *p.Status.DeepCopy()
	change(&s)
	w.statuses.Publish(p.UID, pod.Report{Desired: &pod.Desired{Pod: p, Source: pod.SourceAPI, RequiresTerminalPhase: true}, Status: &s, Gone: gone})
}

func TestPublisher(t *testing.T) {
	run := func(name string, test func(*testing.T, *world)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := podobjecttest.NewServer()
				w, stop := start(s)
				defer stop()
				s.Do(func() {
					s.Check = func(c podobjecttest.Call) error { w.calls = append(w.calls, c.Verb+" "+c.Name); return nil }
				})
				synctest.Wait()
				test(t, w)
			})
		})
	}
	calls := func(t *testing.T, w *world, want ...string) {
		t.Helper()
		synctest.Wait()
		w.server.Do(func() {
			if !slices.Equal(w.calls, want) {
				t.Errorf("calls %q, want %q", w.calls, want)
			}
		})
	}
	running := func(s *v1.PodStatus) { s.Phase, s.PodIP = v1.PodRunning, "10.0.0.1" }
	ended := func(s *v1.PodStatus) { s.Phase = v1.PodSucceeded }
	run("a pod comes, runs and goes", func(t *testing.T, w *world) {
		p := w.server.Put(newPod("a"))
		w.publish(p, false, func(s *v1.PodStatus) { s.StartTime = &metav1.Time{Time: time.Now()} })
		calls(t, w) // more is to come
		w.publish(p, false, running)
		calls(t, w, "patch a")
		time.Sleep(time.Hour)
		calls(t, w, "patch a")
		d := w.server.Get("default", "a")
		d.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		w.server.Put(d)
		w.publish(d, false, ended)
		calls(t, w, "patch a", "patch a")
		w.publish(d, true, ended)
		calls(t, w, "patch a", "patch a", "delete a")
		if w.server.Get("default", "a") != nil || w.cache.Get(p.UID) != nil {
			t.Error("it isn't gone")
		}
	})
	run("a detail waits", func(t *testing.T, w *world) {
		p := w.server.Put(newPod("a"))
		w.publish(p, false, func(s *v1.PodStatus) { s.HostIP = "192.0.2.1" })
		time.Sleep(299 * time.Millisecond)
		calls(t, w)
		time.Sleep(time.Millisecond)
		calls(t, w, "patch a")
	})
	run("a start that takes some seconds", func(t *testing.T, w *world) {
		p := w.server.Put(newPod("a"))
		s := v1.PodStatus{Phase: v1.PodPending, StartTime: &metav1.Time{Time: time.Now()}, Conditions: []v1.PodCondition{{Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}}
		is := func(after time.Duration, change func()) {
			time.Sleep(after)
			change()
			w.publish(p, false, func(to *v1.PodStatus) { *to = *s.DeepCopy() })
		}
		is(0, func() {})
		time.Sleep(300 * time.Millisecond)
		calls(t, w, "patch a")
		is(time.Second, func() { s.ContainerStatuses[0].Resources = &v1.ResourceRequirements{} })
		is(5*time.Second, func() {
			s.PodIP = "10.0.0.1"
			s.Conditions = []v1.PodCondition{{Type: v1.PodReadyToStartContainers, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		})
		is(time.Second, func() { s.ContainerStatuses[0].ContainerID = "containerd://1" })
		calls(t, w, "patch a")
		is(900*time.Millisecond, func() {
			s.Phase, s.ContainerStatuses[0].State = v1.PodRunning, v1.ContainerState{Running: &v1.ContainerStateRunning{}}
		})
		calls(t, w, "patch a", "patch a")
		time.Sleep(time.Hour)
		calls(t, w, "patch a", "patch a")
	})
	run("static pods are none of the API server's", func(t *testing.T, w *world) {
		p := w.server.Put(newPod("a"))
		w.statuses.Publish(p.UID, pod.Report{Desired: &pod.Desired{Pod: p, Source: pod.SourceFile}, Status: &v1.PodStatus{Phase: v1.PodRunning}})
		time.Sleep(time.Hour)
		calls(t, w)
	})
	run("what is taken down here has not ended", func(t *testing.T, w *world) {
		p := w.server.Put(newPod("a"))
		w.statuses.Publish(p.UID, pod.Report{Desired: &pod.Desired{Pod: p, Source: pod.SourceAPI}, Status: &v1.PodStatus{Phase: v1.PodSucceeded}})
		w.refusals.set(pod.Refusal{UID: p.UID, Reason: pod.ReasonPodConflict, Message: "taken"})
		time.Sleep(time.Hour)
		calls(t, w)
		w.statuses.Forget(p.UID)
		calls(t, w, "patch a")
		if got := w.server.Get("default", "a").Status.Phase; got != v1.PodFailed {
			t.Errorf("phase %s", got)
		}
	})
	run("somebody writes what is ours", func(t *testing.T, w *world) {
		p := w.server.Put(newPod("a"))
		w.publish(p, false, running)
		calls(t, w, "patch a")
		o := w.server.Get("default", "a")
		o.Status.PodIP = "198.51.100.1"
		w.server.Put(o)
		time.Sleep(time.Second)
		calls(t, w, "patch a", "patch a")
		if got := w.server.Get("default", "a").Status.PodIP; got != "10.0.0.1" {
			t.Errorf("podIP %s", got)
		}
	})
	run("refused", func(t *testing.T, w *world) {
		p := w.server.Put(newPod("a"))
		w.refusals.set(pod.Refusal{UID: p.UID, Reason: pod.ReasonPodConflict, Message: "taken"})
		calls(t, w, "patch a")
		o := w.server.Get("default", "a")
		if o.Status.Phase != v1.PodFailed || o.Status.Reason != "PodConflict" || o.Status.Message != "taken" {
			t.Errorf("status %+v", o.Status)
		}
		o.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		w.server.Put(o)
		calls(t, w, "patch a", "delete a")
	})
	run("a server that is away", func(t *testing.T, w *world) {
		p := w.server.Put(newPod("a"))
		tries, away := 0, errors.New("away")
		w.server.Do(func() { w.server.Check = func(podobjecttest.Call) error { tries++; return away } })
		w.publish(p, false, running)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if tries < 10 || tries > 30 {
			t.Errorf("%d tries in 10 minutes", tries)
		}
		for i := range 100 { // of what changes meanwhile the newest counts
			w.publish(p, false, func(s *v1.PodStatus) { running(s); s.Message = fmt.Sprint(i) })
		}
		synctest.Wait()
		w.server.Do(func() { away, tries = nil, 0 })
		w.reached.Wake()
		time.Sleep(time.Second)
		synctest.Wait()
		if got := w.server.Get("default", "a").Status.Message; tries != 1 || got != "99" {
			t.Errorf("%d calls, message %s", tries, got)
		}
	})
	run("a pod whose status fails alone", func(t *testing.T, w *world) {
		for _, err := range []error{apierrors.NewBadRequest("no"), apierrors.NewInternalError(errors.New("a webhook"))} {
			p, tries := w.server.Put(newPod("a")), 0
			w.server.Do(func() { w.server.Check = func(podobjecttest.Call) error { tries++; return err } })
			w.publish(p, false, running)
			for range 200 { // the server recovers ten times a second, as it seems
				w.reached.Wake()
				time.Sleep(100 * time.Millisecond)
			}
			synctest.Wait()
			if tries > 12 {
				t.Errorf("%v: %d tries in 20 s", err, tries)
			}
			w.server.Do(func() { w.server.Check = nil })
			w.server.Remove("default", "a")
			synctest.Wait()
		}
	})
	run("an answer for good", func(t *testing.T, w *world) {
		p := w.server.Put(newPod("a"))
		tries := 0
		w.server.Do(func() {
			w.server.Check = func(podobjecttest.Call) error {
				tries++
				return apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "a", nil)
			}
		})
		w.publish(p, false, running)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if tries < 5 || tries > 20 {
			t.Errorf("%d tries in 10 minutes", tries)
		}
	})
	run("details come last", func(t *testing.T, w *world) {
		var order []string
		w.server.Do(func() {
			w.server.Check = func(c podobjecttest.Call) error { order = append(order, c.Name); return nil }
		})
		var pods []*v1.Pod
		for i := range 30 {
			pods = append(pods, w.server.Put(newPod(fmt.Sprintf("p%02d", i))))
		}
		synctest.Wait()
		for i, p := range pods {
			switch {
			case i < 10:
				w.publish(p, false, func(s *v1.PodStatus) { s.HostIP = "192.0.2.1" })
			case i < 20:
				w.publish(p, false, running)
			default:
				w.publish(p, false, ended)
			}
		}
		synctest.Wait()
		w.server.Do(func() {
			if len(order) != 20 {
				t.Errorf("%q", order)
			}
		})
		time.Sleep(time.Second)
		synctest.Wait()
		w.server.Do(func() {
			if len(order) != 30 || slices.Max(order[20:]) != "p09" {
				t.Errorf("%q", order)
			}
		})
	})
}

// TestPublisherHoldsToLaws: whatever happens in whatever order, no object is removed before its end was told, nothing that
// others write is written, and in the end the API server has what this node says.
func TestPublisherHoldsToLaws(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		synctest.Test(t, func(*testing.T) {
			server := podobjecttest.NewServer()
			w, stop := start(server)
			defer func() { stop() }()
			var down error
			server.Do(func() {
				server.Check = func(c podobjecttest.Call) error {
					if down != nil {
						return down
					}
					switch {
					case c.Pod == nil:
					case c.Verb == "delete" && (pod.Terminal(c.Pod.Status.Phase) == "" || c.Pod.DeletionTimestamp == nil):
						r.Errorf("%s is removed in phase %s, deleted %v", c.Name, c.Pod.Status.Phase, c.Pod.DeletionTimestamp)
					case c.Verb == "patch":
						var body struct {
							Metadata map[string]any
							Status   map[string]any
						}
						if err := json.Unmarshal(c.Body, &body); err != nil {
							r.Error(err)
						}
						if len(body.Metadata) != 1 || body.Metadata["uid"] == nil || len(body.Status) == 0 {
							r.Errorf("patch %s", c.Body)
						}
						if strings.Contains(string(c.Body), "gate") {
							r.Errorf("patch of what others write: %s", c.Body)
						}
					}
					return nil
				}
			})
			latest := map[types.UID]*v1.PodStatus{}
			names := []string{"a", "b", "c"}
			r.Repeat(map[string]func(*rapid.T){
				"create": func(r *rapid.T) {
					if name := rapid.SampledFrom(names).Draw(r, "name"); server.Get("default", name) == nil {
						p := newPod(name)
						if rapid.Bool().Draw(r, "finalizer") {
							p.Finalizers = []string{"example.com/f"}
						}
						server.Put(p)
					}
				},
				"say": func(r *rapid.T) {
					p := server.Get("default", rapid.SampledFrom(names).Draw(r, "name"))
					if p == nil || latest[p.UID] != nil && pod.Terminal(latest[p.UID].Phase) != "" {
						return
					}
					s := p.Status.DeepCopy()
					s.Phase = rapid.SampledFrom([]v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodFailed}).Draw(r, "phase")
					if over := pod.Terminal(p.Status.Phase); over != "" {
						s.Phase = over // binds the node
					}
					s.PodIP = rapid.SampledFrom([]string{"", "1", "2"}).Draw(r, "ip")
					s.Conditions = nil
					if rapid.Bool().Draw(r, "ready") {
						s.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
					}
					latest[p.UID] = s
					w.publish(p, false, func(o *v1.PodStatus) { *o = *s })
				},
				"gone": func(r *rapid.T) {
					p := server.Get("default", rapid.SampledFrom(names).Draw(r, "name"))
					if p != nil && p.DeletionTimestamp != nil && latest[p.UID] != nil && pod.Terminal(latest[p.UID].Phase) != "" {
						w.publish(p, true, func(o *v1.PodStatus) { *o = *latest[p.UID] })
					}
				},
				"delete": func(r *rapid.T) {
					if p := server.Get("default", rapid.SampledFrom(names).Draw(r, "name")); p != nil {
						p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
						server.Put(p)
					}
				},
				"force": func(r *rapid.T) { server.Remove("default", rapid.SampledFrom(names).Draw(r, "name")) },
				"gate": func(r *rapid.T) {
					if p := server.Get("default", rapid.SampledFrom(names).Draw(r, "name")); p != nil {
						p.Status.Conditions = append(slices.DeleteFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == "example.com/gate" }),
							v1.PodCondition{Type: "example.com/gate", Status: v1.ConditionTrue})
						server.Put(p)
					}
				},
				"down": func(r *rapid.T) {
					err := rapid.SampledFrom([]error{nil, errors.New("away"), apierrors.NewForbidden(v1.Resource("pods"), "a", nil), apierrors.NewTooManyRequests("", 1)}).Draw(r, "error")
					server.Do(func() { down = err })
				},
				"lag":  func(r *rapid.T) { server.Hold(rapid.Bool().Draw(r, "lag")) },
				"back": func(*rapid.T) { server.Back(); server.Relist() },
				"pass": func(r *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(0, 2000).Draw(r, "ms")) * time.Millisecond) },
				"new agent": func(*rapid.T) {
					stop()
					old := w.statuses
					w, stop = start(server)
					for _, e := range old.List() {
						w.statuses.Publish(e.Pod.UID, e.Report)
					}
				},
			})
			server.Do(func() { down = nil })
			server.Hold(false)
			w.reached.Wake()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			for _, name := range names {
				p := server.Get("default", name)
				if p == nil || latest[p.UID] == nil {
					continue
				}
				e := w.statuses.Get(p.UID)
				if e.Report.Gone && len(p.Finalizers) == 0 {
					r.Errorf("%s wasn't removed", name)
				}
				ours := *latest[p.UID]
				p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == "example.com/gate" })
				if !equality.Semantic.DeepEqual(p.Status, ours) {
					r.Errorf("%s: the server has %+v\nthis node says %+v", name, p.Status, ours)
				}
			}
		})
	})
}

// TestCache: the newest counts, wherever it comes from.
func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := podobjecttest.NewServer()
		w, stop := start(s)
		defer stop()
		synctest.Wait()
		p := s.Put(newPod("a"))
		mirror := newPod("m")
		mirror.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"}
		s.Put(mirror)
		if list, all := w.cache.Pods(); !all || len(list) != 1 || list[0].UID != p.UID {
			t.Errorf("pods %v, %t", list, all)
		}
		if list, all := w.cache.Mirrors(); !all || len(list) != 1 || list[0].Name != "m" {
			t.Errorf("mirrors %v, %t", list, all)
		}
		s.Hold(true)
		p.Status.Phase = v1.PodRunning
		s.Put(p)
		w.publish(p, false, func(o *v1.PodStatus) { o.Phase = v1.PodSucceeded })
		synctest.Wait()
		if got := w.cache.Get(p.UID).Status.Phase; got != v1.PodSucceeded {
			t.Errorf("after the answer: %s", got)
		}
		s.Hold(false) // the watch is late
		if got := w.cache.Get(p.UID).Status.Phase; got != v1.PodSucceeded {
			t.Errorf("after the watch: %s", got)
		}
		s.Hold(true)
		s.Remove("default", "a")
		again := s.Put(newPod("a"))
		s.Relist() // what was removed meanwhile wasn't told
		s.Hold(false)
		if w.cache.Get(p.UID) != nil || w.cache.Get(again.UID) == nil {
			t.Error("a list isn't all there is")
		}
		before := w.cache.Get(again.UID).ResourceVersion
		s.Back()
		s.Relist()
		if got := w.cache.Get(again.UID).ResourceVersion; len(got) >= len(before) && got >= before {
			t.Errorf("version %s after %s: an older list doesn't count", got, before)
		}
		for _, history := range []string{"first", "second"} { // each has the same version
			s.Hold(true)
			s.Back()
			o := again.DeepCopy()
			o.Labels = map[string]string{"history": history}
			now := s.Put(o)
			s.Relist()
			s.Hold(false)
			if got := w.cache.Get(again.UID); got.Labels["history"] != history || got.ResourceVersion != now.ResourceVersion {
				t.Errorf("%v at %s, want those of the %s history at %s", got.Labels, got.ResourceVersion, history, now.ResourceVersion)
			}
		}
	})
}

// held is a server that keeps patches waiting until they are released, in the order in which they came.
type held struct {
	*podobjecttest.Server
	came    chan string
	release chan struct{}
}

func (h *held) PatchStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod, error) {
	h.came <- name
	<-h.release
	return h.Server.PatchStatus(ctx, namespace, name, body)
}

// Ten calls are under way at most; of those that wait, the end of a pod is told first, then whether one is ready, then the rest.
func TestCallsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &held{podobjecttest.NewServer(), make(chan string, 1000), make(chan struct{})}
		w, stop := start(h.Server)
		stop()
		w.cache = podobject.NewCache(h, logr.Discard())
		p := podobject.NewPublisher(podobject.PublisherConfig{Cache: w.cache, Statuses: w.statuses, Refusals: w.refusals, Reached: w.reached, Log: logr.Discard()})
		ctx, cancel := context.WithCancel(context.Background())
		var working sync.WaitGroup
		working.Go(func() { _ = w.cache.Run(ctx) })
		working.Go(func() { _ = p.Run(ctx) })
		defer working.Wait()
		defer cancel()
		running := func(s *v1.PodStatus) { s.Phase = v1.PodRunning }
		const calls = 10
		for i := range 3 * calls {
			w.publish(h.Put(newPod(fmt.Sprintf("early-%d", i))), false, running)
		}
		came := func(want int) (names []string) {
			t.Helper()
			synctest.Wait()
			for len(h.came) > 0 {
				names = append(names, <-h.came)
			}
			if len(names) != want {
				t.Fatalf("%d calls began, want %d: %v", len(names), want, names)
			}
			return names
		}
		came(calls)
		w.publish(h.Put(newPod("detail")), false, func(s *v1.PodStatus) { s.Message = "of no importance" })
		w.publish(h.Put(newPod("ended")), false, func(s *v1.PodStatus) { s.Phase = v1.PodFailed })
		time.Sleep(time.Minute) // the detail is due by now
		came(0)
		h.release <- struct{}{}
		if first := came(1); first[0] != "ended" {
			t.Errorf("%s was told before the end of a pod", first)
		}
		for range 2 * calls {
			h.release <- struct{}{}
			if next := came(1); next[0] == "detail" {
				t.Error("a detail was told before readiness")
				break
			}
		}
		close(h.release)
		synctest.Wait()
	})
}
