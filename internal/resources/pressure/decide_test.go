package pressure_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	. "github.com/deckhand-node/deckhand/internal/resources/pressure"
)

const (
	mi = 1 << 20
	gi = 1 << 30
)

func settings(thresholds ...Threshold) Settings {
	return Settings{Thresholds: thresholds, Transition: 5 * time.Minute}
}

func hard(s Signal, least int64) Threshold {
	return Threshold{Signal: s, Least: capacity.Amount{Value: least}}
}

func soft(s Signal, least int64, grace time.Duration) Threshold {
	return Threshold{Signal: s, Least: capacity.Amount{Value: least}, Grace: grace}
}

// world is a node whose pods use what they use until they end.
type world struct {
	*testing.T
	s      Settings
	m      Memory
	now    time.Duration
	pods   []Pod
	free   map[Signal]int64
	layout Layout
}

func (w *world) decide() Act {
	w.Helper()
	readings := map[Signal]Reading{}
	for s, n := range w.free {
		readings[s] = Reading{Available: n, Capacity: 10 * gi}
	}
	holding := slices.ContainsFunc(w.pods, func(p Pod) bool { return p.UID == w.m.Ending && p.Active })
	o := Observation{At: w.now - 1, Readings: readings, Layout: w.layout, Holding: holding}
	var act Act
	w.m, act = Decide(w.s, w.m, o, w.pods, w.now)
	return act
}

func hog(name string, memory, request int64, priority int32) Pod {
	return Pod{UID: name, Name: name, Namespace: "default", Priority: priority, Active: true, Grace: 30 * time.Second,
		Memory: memory, MemoryRequest: request, Containers: []Container{{Name: "main", Memory: memory, MemoryRequest: request}}}
}

func TestHardThresholdEndsTheLargestUser(t *testing.T) {
	w := &world{T: t, s: settings(hard(NodeMemory, 100*mi)), free: map[Signal]int64{NodeMemory: 200 * mi},
		pods: []Pod{hog("small", 50*mi, 0, 0), hog("large", 500*mi, 100*mi, 0), hog("within", 900*mi, 1000*mi, -5)}}
	if act := w.decide(); act.For != nil || act.Pressure.Memory {
		t.Fatalf("above the threshold: %+v", act)
	}
	w.free[NodeMemory] = 90 * mi
	w.now += time.Second
	act := w.decide()
	if act.Victim == nil || act.Victim.UID != "large" || act.Victim.Grace != time.Second || !act.Pressure.Memory {
		t.Fatalf("below the threshold: %+v", act)
	}
	const want = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. " +
		"Container main was using 500Mi, request is 100Mi, has larger consumption of memory. Signal: memory.available."
	if act.Victim.Message != want {
		t.Errorf("message %q, want %q", act.Victim.Message, want)
	}
	for key, want := range map[string]string{"starved_resource": "memory", "offending_containers": "main",
		"offending_containers_usage": "500Mi"} {
		if got := act.Victim.Annotations[key]; got != want {
			t.Errorf("annotation %s is %q, want %q", key, got, want)
		}
	}
	// While it ends, and until there are figures from after its end, no other pod is ended.
	for range 20 {
		w.now += 100 * time.Millisecond
		if act := w.decide(); act.Victim != nil {
			t.Fatalf("two at once: %+v", act.Victim)
		}
	}
	w.pods[1].Active = false
	if act := w.decide(); act.Victim != nil || act.Observe > w.now {
		t.Fatalf("on figures from before its end: %+v", act)
	}
	w.now++
	if act := w.decide(); act.Victim == nil || act.Victim.UID != "small" {
		t.Fatalf("after its end: %+v", act)
	}
}

// A pod with requests of its own is named in the message and the annotations (KEP-2837), if it uses more.
func TestPodLevelTexts(t *testing.T) {
	for request, named := range map[int64]bool{100 * mi: true, gi: false} {
		p := hog("large", 500*mi, 0, 0)
		p.MemoryRequest, p.OfPod = request, []v1.ResourceName{v1.ResourceMemory}
		w := &world{T: t, now: time.Second, s: settings(hard(NodeMemory, 100*mi)), free: map[Signal]int64{NodeMemory: 90 * mi}, pods: []Pod{p}}
		act := w.decide()
		if act.Victim == nil {
			t.Fatalf("%+v", act)
		}
		const text = "Pod large was using 500Mi, request is 100Mi, has larger consumption of memory. Container main was using 500Mi, request is 0, "
		got := act.Victim.Annotations
		if strings.Contains(act.Victim.Message, text) != named || strings.Contains(act.Victim.Message, "Pod large") != named ||
			got["offending_containers"] != "main" || (got["offending_pod"] == "large" && got["offending_pod_usage"] == "500Mi") != named {
			t.Errorf("with a request of %d: %q, %v", request, act.Victim.Message, got)
		}
	}
}

// A pod that doesn't end holds up the others for its grace period and half a minute.
func TestEndThatHangs(t *testing.T) {
	w := &world{T: t, now: time.Second, s: settings(hard(NodeMemory, 100*mi)), free: map[Signal]int64{NodeMemory: 1 * mi},
		pods: []Pod{hog("a", 50*mi, 0, 0), hog("b", 40*mi, 0, 0)}}
	if act := w.decide(); act.Victim == nil || act.Victim.UID != "a" {
		t.Fatalf("%+v", act)
	}
	w.pods[0].Ending = true
	for began := w.now; ; w.now += 500 * time.Millisecond {
		act := w.decide()
		if act.Victim != nil {
			if took := w.now - began; act.Victim.UID != "b" || took < 31*time.Second || took > 33*time.Second {
				t.Errorf("after %s: %+v", took, act.Victim)
			}
			return
		}
		if w.now-began > time.Minute {
			t.Fatal("no other pod is ended")
		}
	}
}

func TestSoftThreshold(t *testing.T) {
	w := &world{T: t, s: settings(soft(NodeMemory, 100*mi, time.Minute)), free: map[Signal]int64{NodeMemory: 90 * mi},
		pods: []Pod{hog("a", 50*mi, 0, 0)}}
	act := w.decide()
	if act.Victim != nil || !act.Pressure.Memory {
		t.Errorf("at once: %+v", act)
	}
	w.now = 59 * time.Second
	if act := w.decide(); act.Victim != nil {
		t.Errorf("before the grace period is over: %+v", act.Victim)
	}
	w.now = time.Minute
	w.s.MaxPodGrace = 10 * time.Second
	if act := w.decide(); act.Victim == nil || act.Victim.Grace != 10*time.Second {
		t.Errorf("after it: %+v", act)
	}
}

// More has to be free than the threshold before it counts as over, but only once it was met.
func TestMinimumReclaim(t *testing.T) {
	w := &world{T: t, s: settings(Threshold{Signal: NodeBytes, Least: capacity.Amount{Value: 100 * mi}, Beyond: capacity.Amount{Value: 50 * mi}}),
		free: map[Signal]int64{NodeBytes: 120 * mi}, pods: []Pod{{UID: "a", Active: true, Volumes: Space{Bytes: 5 * mi}}}}
	if act := w.decide(); act.For != nil {
		t.Fatalf("above the threshold: %+v", act)
	}
	var acts []string
	for _, step := range []int64{90 * mi, 149 * mi, 149 * mi, 150 * mi} {
		w.now += time.Second
		w.free[NodeBytes] = step
		act := w.decide()
		switch {
		case act.Victim != nil:
			acts = append(acts, "pod")
		case act.For != nil:
			acts = append(acts, string(act.Reclaim))
		default:
			acts = append(acts, "nothing")
		}
	}
	if got, want := strings.Join(acts, ", "), "dead containers, unused images, pod, nothing"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A condition holds for the whole period, however often the amount changes meanwhile.
func TestTransitionPeriod(t *testing.T) {
	w := &world{T: t, s: settings(hard(Processes, 100)), free: map[Signal]int64{Processes: 50}}
	w.decide()
	w.free[Processes] = 500
	for w.now = 0; w.now < 5*time.Minute; w.now += 10 * time.Second {
		if act := w.decide(); !act.Pressure.PIDs {
			t.Fatalf("after %s the condition doesn't hold any more", w.now)
		}
	}
	if act := w.decide(); act.Pressure.PIDs {
		t.Error("the condition holds for too long")
	}
}

// Time below another threshold doesn't count (kubernetes/kubernetes#83612).
func TestChangedThreshold(t *testing.T) {
	w := &world{T: t, s: settings(soft(NodeMemory, 100*mi, time.Minute)), free: map[Signal]int64{NodeMemory: 90 * mi},
		pods: []Pod{hog("a", 50*mi, 0, 0)}}
	w.decide()
	w.now = 59 * time.Second
	w.s = settings(soft(NodeMemory, 95*mi, time.Minute))
	w.decide()
	w.now = 118 * time.Second
	if act := w.decide(); act.Victim != nil {
		t.Error("old sightings ended a pod")
	}
	w.now = 119 * time.Second
	if act := w.decide(); act.Victim == nil {
		t.Error("the new threshold has no effect")
	}
}

// A signal that can't be read doesn't end a pod, is read again soon, and its sightings begin anew.
func TestUnreadableSignal(t *testing.T) {
	w := &world{T: t, s: settings(soft(NodeMemory, 100*mi, time.Minute)), free: map[Signal]int64{NodeMemory: 90 * mi},
		pods: []Pod{hog("a", 50*mi, 0, 0)}}
	w.decide()
	delete(w.free, NodeMemory)
	w.now = 2 * time.Minute
	if act := w.decide(); act.Victim != nil || !act.Pressure.Memory || act.Observe-w.now != 10*time.Second {
		t.Errorf("%+v", act)
	}
	w.free[NodeMemory] = 90 * mi
	w.now += time.Second
	if act := w.decide(); act.Victim != nil {
		t.Errorf("%+v", act.Victim)
	}
}

func TestCriticalPodsStay(t *testing.T) {
	critical := hog("etcd", 500*mi, 0, 0)
	critical.Critical = true
	w := &world{T: t, s: settings(hard(NodeBytes, 100*mi)), free: map[Signal]int64{NodeBytes: 1 * mi}, pods: []Pod{critical}}
	none, reclaims := 0, 0
	for range 30 {
		w.now += 10 * time.Second
		act := w.decide()
		if act.Victim != nil {
			t.Fatalf("it is ended: %+v", act.Victim)
		}
		if act.Reclaim != "" {
			reclaims++
		}
		if act.NoneFit {
			none++
			if act.Observe <= w.now {
				t.Error("it is tried again at once")
			}
		}
	}
	if reclaims < 6 || reclaims > 10 || none != 30-reclaims {
		t.Errorf("in 5 minutes there were %d reclaims, and %d times no pod could be ended", reclaims, none)
	}
}

// What is removed, in which order, and whose use counts, by signal and layout.
func TestDisks(t *testing.T) {
	layered := Pod{UID: "layered", Active: true, Containers: []Container{{Name: "c", Layer: Space{80, 8}}}}
	logging := Pod{UID: "logging", Active: true, Containers: []Container{{Name: "c", Logs: Space{50, 9}}}}
	mounting := Pod{UID: "mounting", Active: true, Volumes: Space{70, 7}, Containers: []Container{{Name: "c"}}}
	const both = "dead containers, unused images, "
	for _, c := range []struct {
		layout Layout
		signal Signal
		want   string
	}{
		{OneFileSystem, NodeBytes, both + "layered"},
		{OneFileSystem, NodeInodes, both + "logging"},
		{OneFileSystem, ImageBytes, both + "layered"},
		{OneFileSystem, ImageInodes, both + "logging"},
		{RuntimeApart, NodeBytes, "mounting"},
		{RuntimeApart, NodeInodes, "logging"},
		{RuntimeApart, ImageBytes, both + "layered"},
		{RuntimeApart, ImageInodes, both + "layered"},
		{ImagesApart, NodeBytes, "dead containers, layered"},
		{ImagesApart, NodeInodes, "dead containers, logging"},
		{ImagesApart, ImageBytes, "unused images, none"}, // no pod uses it
		{ImagesApart, ImageInodes, "unused images, none"},
	} {
		w := &world{T: t, s: settings(hard(c.signal, 100)), free: map[Signal]int64{c.signal: 1}, layout: c.layout,
			pods: []Pod{layered, logging, mounting}}
		var got []string
		for range 4 {
			w.now++
			act := w.decide()
			if !act.Pressure.Disk {
				t.Errorf("%v %s: no DiskPressure", c.layout, c.signal)
			}
			if act.NoneFit {
				got = append(got, "none")
				break
			}
			if act.Victim != nil {
				got = append(got, act.Victim.UID)
				break
			}
			got = append(got, string(act.Reclaim))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("layout %v, %s: %s, want %s", c.layout, c.signal, text, c.want)
		}
	}
}

// Memory comes before other resources, a hard threshold before a soft one.
func TestOrderOfSignals(t *testing.T) {
	k := configuration(map[string]string{"nodefs.available": "10%", "memory.available": "100Mi", "pid.available": "100"})
	k.EvictionSoft, k.EvictionSoftGracePeriod = map[string]string{"memory.available": "1Gi"}, map[string]string{"memory.available": "1m"}
	s, err := SettingsOf(k)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, th := range s.Thresholds {
		got = append(got, fmt.Sprint(th.Signal, " ", th.Least, " ", th.Grace))
	}
	want := []string{"memory.available 100Mi 0s", "memory.available 1Gi 1m0s", "allocatableMemory.available 100Mi 0s",
		"nodefs.available 10% 0s", "pid.available 100 0s"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if s.Transition != 5*time.Minute {
		t.Errorf("transition period %s", s.Transition)
	}
}

// The law of ranks: no pod at or below its request is ended before one above, nor one of a higher priority before one
// of a lower; and the order of the list doesn't matter.
func TestRankLaw(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(rt, "pods")
		var pods []Pod
		for i := range n {
			p := hog(fmt.Sprint("p", i), rapid.Int64Range(0, 5).Draw(rt, "use")*mi, rapid.Int64Range(0, 5).Draw(rt, "request")*mi,
				rapid.Int32Range(-1, 1).Draw(rt, "priority"))
			p.Critical = rapid.IntRange(0, 4).Draw(rt, "critical") == 0
			p.Active = rapid.IntRange(0, 4).Draw(rt, "running") > 0
			p.Ending = rapid.IntRange(0, 4).Draw(rt, "ending") == 0
			pods = append(pods, p)
		}
		o := Observation{Readings: map[Signal]Reading{NodeMemory: {1, 10 * gi}}} // so 1 % of what is missing is 1 MiB
		_, act := Decide(settings(hard(NodeMemory, 100*mi)), Memory{}, o, pods, 0)
		may := func(p Pod) bool { return p.Active && !p.Critical && !p.Ending && p.Memory >= mi }
		if act.Victim == nil {
			if slices.ContainsFunc(pods, may) || !act.NoneFit {
				rt.Fatal("no pod is ended though one may be")
			}
			return
		}
		v := pods[slices.IndexFunc(pods, func(p Pod) bool { return p.UID == act.Victim.UID })]
		if !may(v) {
			rt.Fatalf("%+v may not be ended", v)
		}
		above := func(p Pod) bool { return p.Memory > p.MemoryRequest }
		for _, p := range pods {
			switch {
			case !may(p) || p.UID == v.UID:
			case above(p) && !above(v):
				rt.Fatalf("%+v is ended before %+v, which is above its request", v, p)
			case above(p) == above(v) && p.Priority < v.Priority:
				rt.Fatalf("%+v is ended before %+v, which has a lower priority", v, p)
			case above(p) == above(v) && p.Priority == v.Priority && p.Memory-p.MemoryRequest > v.Memory-v.MemoryRequest:
				rt.Fatalf("%+v is ended before %+v, which exceeds its request by more", v, p)
			}
		}
		shuffled := rapid.Permutation(pods).Draw(rt, "shuffled")
		if _, again := Decide(settings(hard(NodeMemory, 100*mi)), Memory{}, o, shuffled, 0); again.Victim.UID != v.UID {
			rt.Fatalf("in another order %s is ended instead of %s", again.Victim.UID, v.UID)
		}
	})
}

// conditionOf returns the node condition of a signal.
func conditionOf(s Signal) v1.NodeConditionType {
	switch s {
	case NodeMemory, PodsMemory:
		return v1.NodeMemoryPressure
	case Processes:
		return v1.NodePIDPressure
	default:
		return v1.NodeDiskPressure
	}
}

// usesOf are the use and the request of a pod that the order for a signal is made of, and how a pod gets both.
var usesOf = map[Signal]struct {
	requests bool
	set      func(p *Pod, use, request int64)
}{
	NodeMemory: {true, func(p *Pod, use, request int64) { p.Memory, p.MemoryRequest = use, request }},
	PodsMemory: {true, func(p *Pod, use, request int64) { p.Memory, p.MemoryRequest = use, request }},
	NodeBytes:  {true, func(p *Pod, use, request int64) { p.Volumes.Bytes, p.StorageRequest = use, request }},
	ImageBytes: {true, func(p *Pod, use, request int64) { p.Containers[0].Layer.Bytes, p.StorageRequest = use, request }},
	// There are no requests of the following: those of other resources don't count.
	NodeInodes: {false, func(p *Pod, use, request int64) { p.Containers[0].Logs.Inodes, p.StorageRequest = use, request }},
	ImageInodes: {false, func(p *Pod, use, request int64) {
		p.Containers[0].Layer.Inodes, p.StorageRequest, p.MemoryRequest = use, request, request
	}},
	Processes: {false, func(p *Pod, use, request int64) { p.Processes, p.MemoryRequest = use, request }},
}

// The law of ranks for each signal: pods above their requests first, where there are requests, then lower priorities, then
// larger uses. The whole order follows it, that of the pods after the victim too.
func TestRankLawOfAllSignals(t *testing.T) {
	for signal, of := range usesOf {
		t.Run(string(signal), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				type pod struct {
					use, request int64
					priority     int32
				}
				drawn, pods := map[string]pod{}, []Pod(nil)
				for i := range rapid.IntRange(1, 8).Draw(rt, "pods") {
					d := pod{rapid.Int64Range(2, 6).Draw(rt, "use"), rapid.Int64Range(0, 6).Draw(rt, "request"), rapid.Int32Range(-1, 1).Draw(rt, "priority")}
					p := Pod{UID: fmt.Sprint("p", i), Name: fmt.Sprint("p", i), Active: true, Priority: d.priority, Containers: []Container{{Name: "c"}}}
					of.set(&p, d.use, d.request)
					pods, drawn[p.UID] = append(pods, p), d
				}
				o := Observation{Readings: map[Signal]Reading{signal: {0, 1000}}, Layout: RuntimeApart}
				s := settings(hard(signal, 100))
				var m Memory
				var act Act
				for range 3 { // after what is reclaimed
					if m, act = Decide(s, m, o, pods, o.At); act.Victim != nil {
						break
					}
					o.At++
				}
				if act.Victim == nil || len(act.Next) != len(pods)-1 {
					rt.Fatalf("%+v", act)
				}
				order := []string{act.Victim.UID}
				for _, p := range act.Next {
					order = append(order, p.UID)
				}
				for i := 1; i < len(order); i++ {
					a, b := drawn[order[i-1]], drawn[order[i]]
					if !of.requests {
						a.request, b.request = 0, 0
					}
					aboveA, aboveB := a.use > a.request || !of.requests, b.use > b.request || !of.requests
					switch {
					case aboveB && !aboveA, aboveA == aboveB && b.priority < a.priority,
						aboveA == aboveB && a.priority == b.priority && b.use-b.request > a.use-a.request:
						rt.Fatalf("%s %+v comes before %s %+v", order[i-1], a, order[i], b)
					}
				}
			})
		})
	}
}

// The order in which pods are listed doesn't matter, also among pods that are alike.
func TestShuffledPods(t *testing.T) {
	var pods []Pod
	for i := range 30 {
		p := hog(fmt.Sprint("p", i), int64(i%3)*mi, int64(i%2)*mi, int32(i%2))
		p.Volumes, p.Processes = Space{int64(i%3) * mi, int64(i % 3)}, int64(i%3)
		pods = append(pods, p)
	}
	for signal := range usesOf {
		o := Observation{Readings: map[Signal]Reading{signal: {0, 1000}}, Layout: OneFileSystem}
		m := Memory{Reclaimed: map[Signal]int{signal: 2}}
		_, first := Decide(settings(hard(signal, 100)), m, o, pods, 0)
		for range 1000 {
			rand.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
			_, act := Decide(settings(hard(signal, 100)), m, o, pods, 0)
			if act.Victim == nil || first.Victim == nil || act.Victim.UID != first.Victim.UID {
				t.Fatalf("%s: %+v is ended, and before %+v", signal, act.Victim, first.Victim)
			}
		}
	}
}

// Walks of random amounts: at most one act at a time and none on old figures, no critical pod, no condition shorter
// than its period, and always another observation while there are thresholds.
func TestWalks(t *testing.T) {
	signals := []Signal{NodeMemory, PodsMemory, NodeBytes, NodeInodes, ImageBytes, ImageInodes, Processes}
	rapid.Check(t, func(rt *rapid.T) {
		var s Settings
		s.Transition = 30 * time.Second
		for _, name := range signals {
			if rapid.Bool().Draw(rt, "hard") {
				s.Thresholds = append(s.Thresholds, hard(name, 100))
			}
			if rapid.Bool().Draw(rt, "soft") {
				s.Thresholds = append(s.Thresholds, soft(name, 200, 20*time.Second))
			}
		}
		pods := []Pod{hog("a", 5, 1, 0), hog("b", 3, 0, 1), hog("c", 9, 0, 0)}
		pods[2].Critical = true
		var m Memory
		var now, lastAct time.Duration
		pressed := map[v1.NodeConditionType]time.Duration{}
		acted, ending := false, ""
		for range rapid.IntRange(5, 60).Draw(rt, "steps") {
			at := now
			if rapid.IntRange(0, 3).Draw(rt, "old figures") == 0 {
				at = max(0, now-rapid.SampledFrom([]time.Duration{time.Second, 15 * time.Second}).Draw(rt, "age"))
			}
			o := Observation{At: at, Readings: map[Signal]Reading{}, Holding: slices.ContainsFunc(pods, func(p Pod) bool { return p.UID == m.Ending && p.Active })}
			for _, name := range signals {
				if rapid.IntRange(0, 5).Draw(rt, "readable") > 0 {
					o.Readings[name] = Reading{rapid.Int64Range(0, 300).Draw(rt, "available"), 1000}
				}
			}
			before := m
			var act Act
			m, act = Decide(s, m, o, pods, now)
			if before.Ending != "" && ending != "" && act.Victim != nil && now < before.Until && !before.Soft &&
				slices.ContainsFunc(pods, func(p Pod) bool { return p.UID == ending && p.Active }) {
				rt.Fatal("a second pod is ended while the first one runs")
			}
			if (act.Victim != nil || act.Reclaim != "") && acted && at < lastAct {
				rt.Fatalf("acts on figures of %s, from before the last act at %s", at, lastAct)
			}
			if act.Victim != nil {
				if act.Victim.UID == "c" || act.Reclaim != "" {
					rt.Fatalf("%+v", act)
				}
				ending = act.Victim.UID
			}
			if act.Victim != nil || act.Reclaim != "" {
				acted, lastAct = true, now
			}
			for condition, holds := range map[v1.NodeConditionType]bool{v1.NodeMemoryPressure: act.Pressure.Memory,
				v1.NodeDiskPressure: act.Pressure.Disk, v1.NodePIDPressure: act.Pressure.PIDs} {
				last, seen := pressed[condition]
				if !holds && seen && now-last < s.Transition {
					rt.Fatalf("%s ends %s after it was last seen", condition, now-last)
				}
				for _, th := range s.Thresholds {
					r, readable := o.Readings[th.Signal]
					if readable && r.Available < th.Least.Of(r.Capacity) && conditionOf(th.Signal) == condition {
						pressed[condition] = max(last, at)
						if !holds && now-at < s.Transition {
							rt.Fatalf("%s is met and %s doesn't hold", th.Signal, condition)
						}
					}
				}
			}
			if len(s.Thresholds) > 0 && act.Observe < 0 || act.Observe > now+time.Minute {
				rt.Fatalf("at %s the next observation is due at %s", now, act.Observe)
			}
			now += rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 11 * time.Second}).Draw(rt, "time")
			if rapid.Bool().Draw(rt, "ended") {
				for i := range pods {
					if pods[i].UID == ending {
						pods[i].Active = false
					}
				}
			}
		}
	})
}

// TestAbsentSignals: a signal that can't be read is read again soon, one that this node doesn't have once a minute.
func TestAbsentSignals(t *testing.T) {
	s := settings(hard(NodeInodes, 5))
	for want, absent := range map[time.Duration][]Signal{10 * time.Second: nil, time.Minute: {NodeInodes}} {
		if _, act := Decide(s, Memory{}, Observation{Absent: absent}, nil, 0); act.Observe != want {
			t.Errorf("absent %v: observed again after %s, want %s", absent, act.Observe, want)
		}
	}
}

func TestCapacityOfZero(t *testing.T) {
	s := settings(Threshold{Signal: NodeInodes, Least: capacity.Amount{Percent: 5}}, hard(NodeInodes, 5))
	_, act := Decide(s, Memory{}, Observation{Readings: map[Signal]Reading{NodeInodes: {0, 0}}}, nil, 0)
	if act.Pressure.Disk || act.For != nil {
		t.Errorf("a file system that counts no inodes is full: %+v", act)
	}
}

// Time that nobody observed doesn't count: there was no agent, or the machine was suspended.
func TestGap(t *testing.T) {
	w := &world{T: t, now: time.Second, s: settings(soft(NodeMemory, 100*mi, 10*time.Minute)), free: map[Signal]int64{NodeMemory: 90 * mi},
		pods: []Pod{hog("a", 50*mi, 0, 0)}}
	w.decide()
	w.now += 8 * time.Hour
	if act := w.decide(); act.Victim != nil {
		t.Error("after 8 hours without an observation a pod is ended at once")
	}
	for end := w.now + 10*time.Minute; w.now < end; w.now += 10 * time.Second {
		if act := w.decide(); act.Victim != nil {
			t.Fatalf("ended %s too soon", end-w.now)
		}
	}
	if act := w.decide(); act.Victim == nil {
		t.Error("after the grace period nothing happens")
	}
}

// A pod that was given a long time to end doesn't switch off the hard thresholds.
func TestHardWhileSoftEnds(t *testing.T) {
	w := &world{T: t, now: time.Second, s: settings(hard(NodeMemory, 100*mi), soft(NodeBytes, gi, time.Second)),
		free: map[Signal]int64{NodeMemory: gi, NodeBytes: mi}, layout: RuntimeApart,
		pods: []Pod{{UID: "slow", Active: true, Grace: time.Hour, Volumes: Space{Bytes: gi}}, hog("hog", 50*mi, 0, 0)}}
	w.s.MaxPodGrace = -1
	w.decide()
	w.now += 2 * time.Second
	if act := w.decide(); act.Victim == nil || act.Victim.UID != "slow" || act.Victim.Grace != time.Hour {
		t.Fatalf("%+v", act)
	}
	w.pods[0].Ending = true
	w.now += time.Second
	w.free[NodeMemory] = 10 * mi
	if act := w.decide(); act.Victim == nil || act.Victim.UID != "hog" {
		t.Errorf("%+v", act)
	}
	w.pods[1].Ending = true
	w.now += time.Second
	if act := w.decide(); act.Victim != nil || act.Reclaim != "" {
		t.Errorf("a third one: %+v", act)
	}
}

// One resource that no pod can free doesn't keep another from being reclaimed.
func TestNoneFitForOneSignal(t *testing.T) {
	critical := hog("etcd", 500*mi, 0, 0)
	critical.Critical = true
	w := &world{T: t, now: time.Second, s: settings(hard(NodeMemory, 100*mi), hard(NodeBytes, gi)),
		free: map[Signal]int64{NodeMemory: mi, NodeBytes: mi}, pods: []Pod{critical}}
	if act := w.decide(); act.Reclaim != DeadContainers || act.For.Signal != NodeBytes {
		t.Errorf("%+v", act)
	}
}

// A node that is full of other things keeps the pods that hardly use any of it.
func TestBystandersStay(t *testing.T) {
	w := &world{T: t, now: time.Second, s: settings(hard(NodeBytes, 2*gi)), free: map[Signal]int64{NodeBytes: gi}, layout: RuntimeApart,
		pods: []Pod{{UID: "a", Active: true, Volumes: Space{Bytes: mi}}, {UID: "b", Active: true, Containers: []Container{{Logs: Space{Bytes: 10 * mi}}}}}}
	if act := w.decide(); act.Victim != nil || !act.NoneFit || !act.Pressure.Disk {
		t.Errorf("%+v", act)
	}
	w.pods[1].Containers[0].Logs.Bytes = 20 * mi
	w.now += time.Second
	if act := w.decide(); act.Victim == nil || act.Victim.UID != "b" {
		t.Errorf("%+v", act)
	}
}

// Without figures of pods it is said which are needed, and nothing is done.
func TestNeeds(t *testing.T) {
	for signal, want := range map[Signal]Needs{NodeMemory: {Memory: true}, Processes: {Processes: true}, NodeBytes: {Disk: true}, NodeInodes: {Disk: true}} {
		_, act := Decide(settings(hard(signal, 100)), Memory{}, Observation{Readings: map[Signal]Reading{signal: {1, 1000}}, Layout: RuntimeApart}, nil, time.Second)
		if act.Needs != want || act.Victim != nil || act.NoneFit {
			t.Errorf("%s: %+v", signal, act)
		}
	}
}
