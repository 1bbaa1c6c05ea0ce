package events

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// lines are entries as "COUNT OBJECT REASON: MESSAGE".
func lines(entries []Entry) []string {
	var list []string
	for _, e := range entries {
		list = append(list, fmt.Sprintf("%d %s %s: %s", e.Count, e.Object.Name, e.Reason, e.Message))
	}
	return list
}

func expect(t *testing.T, what string, got []Entry, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, lines(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func warning(reason pod.Reason, message string) pod.Event {
	return pod.Event{Type: v1.EventTypeWarning, Reason: reason, Message: message}
}

func TestIdenticalEventsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, begun := New(10), time.Now()
		a, b := podNamed("a"), podNamed("b")
		for range 3 {
			r.Event(a, warning("BackOff", "m"))
			time.Sleep(time.Minute)
		}
		r.Event(b, warning("BackOff", "m"))
		r.Event(a, warning("Failed", "m"))
		r.Event(a, pod.Event{Type: v1.EventTypeNormal, Reason: "Failed", Message: "m"})
		r.Event(a, pod.Event{Type: v1.EventTypeWarning, Reason: "Failed", Message: "m", Container: "web"})
		r.Event(a, warning("BackOff", "m"))
		expect(t, "one for each pod, container, type and reason, the newest last", r.List(),
			"1 b BackOff: m", "1 a Failed: m", "1 a Failed: m", "1 a Failed: m", "4 a BackOff: m")
		e := r.List()[4]
		if e.ID != 1 || !e.First.Equal(begun) || !e.Last.Equal(begun.Add(3*time.Minute)) {
			t.Errorf("seen from %s to %s, ID %d", e.First, e.Last, e.ID)
		}
		if got := r.Stats(); got != (Stats{Taken: 8, Repeated: 3}) {
			t.Errorf("%+v", got)
		}
	})
}

// TestEventsOfOtherAnnotations: what is annotated otherwise is another event, and an entry of many has no annotations.
func TestEventsOfOtherAnnotations(t *testing.T) {
	r, a := New(100), podNamed("a")
	evicted := func(annotations ...string) {
		e := warning("Evicted", "m")
		for i := 0; i < len(annotations); i += 2 {
			if e.Annotations == nil {
				e.Annotations = map[string]string{}
			}
			e.Annotations[annotations[i]] = annotations[i+1]
		}
		r.Event(a, e)
	}
	for range 2 {
		evicted("starved_resource", "memory", "offending_containers", "web")
		evicted("starved_resource", "memory")
		evicted("starved_resource", "memoryoffending_containersweb")
		evicted()
	}
	var got []string
	for _, e := range r.List() {
		got = append(got, fmt.Sprintf("%d%v", e.Count, e.Annotations))
	}
	want := []string{"2map[offending_containers:web starved_resource:memory]", "2map[starved_resource:memory]", "2map[starved_resource:memoryoffending_containersweb]", "2map[]"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for i := range maxAlike {
		evicted("i", fmt.Sprint(i))
	}
	list := r.List()
	if e := list[len(list)-1]; e.Message != combinedPrefix+"m" || e.Annotations != nil || e.Count != 4 {
		t.Errorf("of many: %+v", e)
	}
	long := strings.Repeat("é", maxMessage)
	r.Event(podNamed("b"), pod.Event{Reason: "Evicted", Annotations: map[string]string{"offending_containers": long}})
	list = r.List()
	if short := list[len(list)-1].Annotations["offending_containers"]; len(short) > maxMessage || !strings.HasPrefix(short, "éé") {
		t.Errorf("kept %d bytes", len(short))
	}
	Node{Recorder: r, Name: "n"}.Event(pod.Event{Reason: "Any", Annotations: map[string]string{"k": "v"}})
	list = r.List()
	if e := list[len(list)-1]; e.Annotations["k"] != "v" {
		t.Errorf("of the node: %+v", e)
	}
}

func TestAPodCreatedAnewIsAnotherOne(t *testing.T) {
	r := New(10)
	before, after := podNamed("a"), podNamed("a")
	after.UID = "another"
	r.Event(before, warning("BackOff", "m"))
	r.Event(after, warning("BackOff", "m"))
	expect(t, "entries", r.List(), "1 a BackOff: m", "1 a BackOff: m")
}

func TestSimilarEventsAreCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := New(100), podNamed("a")
		for i := range maxAlike + 3 {
			r.Event(a, warning("Unhealthy", fmt.Sprint(i)))
		}
		r.Event(podNamed("b"), warning("Unhealthy", "of another pod"))
		r.Event(a, warning("Other", "for another reason"))
		r.Event(a, warning("Unhealthy", "0")) // known
		list := r.List()
		expect(t, "the end", list[len(list)-4:],
			"3 a Unhealthy: (combined from similar events): 12", "1 b Unhealthy: of another pod", "1 a Other: for another reason", "2 a Unhealthy: 0")
		if got := r.Stats(); got.Combined != 3 || got.Repeated != 1 {
			t.Errorf("%+v", got)
		}

		time.Sleep(alikeInterval)
		r.Event(a, warning("Unhealthy", "within the interval"))
		list = r.List()
		expect(t, "the end", list[len(list)-1:], "4 a Unhealthy: (combined from similar events): within the interval")
		time.Sleep(alikeInterval + 1)
		r.Event(a, warning("Unhealthy", "after it"))
		list = r.List()
		expect(t, "the end", list[len(list)-1:], "1 a Unhealthy: after it")
	})
}

func TestOneObjectIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := New(100), podNamed("a")
		for i := range burst + 4 {
			r.Event(a, warning(pod.Reason(fmt.Sprint("Reason", i)), "m"))
		}
		if n, dropped := len(r.List()), r.Stats().Dropped; n != burst || dropped != 4 {
			t.Errorf("%d entries, %d dropped", n, dropped)
		}
		// Neither other objects nor the other type are kept from telling.
		r.Event(podNamed("b"), warning("Told", "m"))
		r.Event(a, pod.Event{Type: v1.EventTypeNormal, Reason: "Told", Message: "m"})
		if n := len(r.List()); n != burst+2 {
			t.Errorf("%d entries", n)
		}
		time.Sleep(refill - 1)
		r.Event(a, warning("TooEarly", "m"))
		time.Sleep(time.Nanosecond)
		r.Event(a, pod.Event{Type: v1.EventTypeWarning, Reason: "OneMore", Message: "m", Container: "web"})
		r.Event(a, warning("TooMuch", "m"))
		time.Sleep(3 * refill)
		for i := range 4 {
			r.Event(a, warning(pod.Reason(fmt.Sprint("Later", i)), "m"))
		}
		list := r.List()
		expect(t, "the end", list[len(list)-4:], "1 a OneMore: m", "1 a Later0: m", "1 a Later1: m", "1 a Later2: m")
	})
}

// What is always unhealthy is counted, but told seldom.
func TestRepetitionsBeyondTheLimitAreCountedButNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := New(100), podNamed("a")
		changed, cancel := r.Watch()
		defer cancel()
		for range burst {
			r.Event(a, warning("Unhealthy", "m"))
		}
		<-changed
		seq := r.Since(0)[0].Seq
		r.Event(podNamed("b"), warning("Told", "m"))
		<-changed
		for range 29 {
			time.Sleep(10 * time.Second)
			r.Event(a, warning("Unhealthy", "m"))
		}
		select {
		case <-changed:
			t.Error("told beyond the limit")
		default:
		}
		expect(t, "told", r.Since(seq), "1 b Told: m")
		expect(t, "listed", r.List(), "1 b Told: m", "54 a Unhealthy: m")
		time.Sleep(10 * time.Second)
		r.Event(a, warning("Unhealthy", "m"))
		<-changed
		expect(t, "told", r.Since(seq), "1 b Told: m", "55 a Unhealthy: m")
		if got := r.Stats(); got.Withheld != 29 || got.Dropped != 0 {
			t.Errorf("%+v", got)
		}
	})
}

func TestReadingOn(t *testing.T) {
	r := New(3)
	for _, name := range []string{"a", "b", "c", "a", "d"} { // b has to make room
		r.Event(podNamed(name), warning("R", "m"))
	}
	expect(t, "all", r.Since(0), "1 c R: m", "2 a R: m", "1 d R: m")
	all := r.Since(0)
	expect(t, "after the first", r.Since(all[0].Seq), "2 a R: m", "1 d R: m")
	expect(t, "after the last", r.Since(all[2].Seq))
	if got := r.Stats(); got.Forgotten != 1 {
		t.Errorf("%+v", got)
	}
	r.Event(podNamed("b"), warning("R", "m"))
	again := r.Since(all[2].Seq)
	expect(t, "anew", again, "1 b R: m")
	if again[0].ID != again[0].Seq {
		t.Errorf("an entry made anew has ID %d, Seq %d", again[0].ID, again[0].Seq)
	}
}

func TestWatchersGetEventsUntilTheyLeave(t *testing.T) {
	r := New(3)
	first, cancelFirst := r.Watch()
	second, cancelSecond := r.Watch()
	defer cancelSecond()
	r.Add(Entry{Reason: "InvalidManifest", Object: v1.ObjectReference{Name: "/m/a.yaml"}})
	r.Add(Entry{Reason: "InvalidManifest", Object: v1.ObjectReference{Name: "/m/b.yaml"}}) // never waits for a watcher
	<-first
	<-second
	cancelFirst()
	r.Event(podNamed("a"), warning("R", "m"))
	<-second
	select {
	case <-first:
		t.Error("woken after it has left")
	default:
	}
}

func TestConcurrentUse(t *testing.T) {
	r := New(50)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			changed, cancel := r.Watch()
			defer cancel()
			for j := range burst { // what is beyond the limit wakes nobody
				r.Event(podNamed(fmt.Sprint(i)), warning("R", fmt.Sprint(j)))
				<-changed
				r.Since(uint64(j))
			}
		})
	}
	wg.Wait()
	if got := r.Stats(); got.Taken != 8*burst || inEntries(r)+got.Dropped+got.Forgotten != got.Taken {
		t.Errorf("%+v, %d in entries", got, inEntries(r))
	}
}

func inEntries(r *Recorder) (n uint64) {
	for _, e := range r.List() {
		n += uint64(e.Count)
	}
	return n
}

// TestNothingIsLost has random events come at random times: each is in an entry's
// count, or in one of the counters; a reader who reads on has at last what is
// listed; and nobody tells more than the limit.
func TestNothingIsLost(t *testing.T) {
	type step struct {
		pause                         time.Duration
		pod, reason, message, warning int
		read                          bool
	}
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			pause: rapid.SampledFrom([]time.Duration{0, 0, time.Second, time.Minute, 11 * time.Minute}).Draw(t, "pause"),
			pod:   rapid.IntRange(0, 3).Draw(t, "pod"), reason: rapid.IntRange(0, 2).Draw(t, "reason"),
			message: rapid.IntRange(0, 14).Draw(t, "message"), warning: rapid.IntRange(0, 1).Draw(t, "warning"),
			read: rapid.Bool().Draw(t, "read"),
		}
	}), 0, 300)
	rapid.Check(t, func(rt *rapid.T) {
		size, history := rapid.IntRange(1, 60).Draw(rt, "size"), steps.Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			r, begun := New(size), time.Now()
			known := map[uint64]Entry{}
			var seq uint64
			var told [4][2]int
			for i, s := range history {
				time.Sleep(s.pause)
				before := r.seq
				r.Event(podNamed(fmt.Sprint(s.pod)), pod.Event{Type: []string{"Normal", "Warning"}[s.warning], Reason: pod.Reason(fmt.Sprint("R", s.reason)), Message: fmt.Sprint(s.message)})
				if r.seq > before {
					told[s.pod][s.warning]++
				}
				if s.read {
					seq = readOn(t, r, seq, known)
				}
				if got := r.Stats(); got.Taken != uint64(i+1) || inEntries(r)+got.Dropped+got.Forgotten != got.Taken {
					t.Fatalf("%+v, %d in entries, after %d", got, inEntries(r), i+1)
				}
			}
			readOn(t, r, seq, known)
			checkList(t, r, size, known)
			for _, n := range slices.Concat(told[0][:], told[1][:], told[2][:], told[3][:]) {
				if limit := burst + int(time.Since(begun)/refill); n > limit {
					t.Errorf("one told %d events, %d are allowed", n, limit)
				}
			}
		})
	})
}

func readOn(t *testing.T, r *Recorder, seq uint64, known map[uint64]Entry) uint64 {
	for _, e := range r.Since(seq) {
		if e.Seq <= seq || known[e.ID].Count > e.Count {
			t.Fatalf("read %+v after %d, knew %+v", e, seq, known[e.ID])
		}
		seq, known[e.ID] = e.Seq, e
	}
	return seq
}

func checkList(t *testing.T, r *Recorder, size int, known map[uint64]Entry) {
	list := r.List()
	if len(list) > size {
		t.Errorf("%d entries, want %d at most", len(list), size)
	}
	combined := map[string]bool{}
	for i, e := range list {
		if i > 0 && e.Last.Before(list[i-1].Last) || e.Last.Before(e.First) {
			t.Errorf("%+v comes after %+v", e, list[i-1])
		}
		if k := known[e.ID]; k.Seq != e.Seq || !k.First.Equal(e.First) || k.Reason != e.Reason || k.Object != e.Object {
			t.Errorf("who read on knows %+v, listed is %+v", k, e)
		}
		if kind := e.Object.Name + e.Type + string(e.Reason); strings.HasPrefix(e.Message, combinedPrefix) {
			if combined[kind] {
				t.Errorf("a second entry stands for several messages: %+v", e)
			}
			combined[kind] = true
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	r := New(100)
	for i := range 2*maxRemembered + 1 {
		for range 2 {
			r.Event(podNamed(fmt.Sprint(i)), warning("R", fmt.Sprint(i)))
		}
	}
	for what, n := range map[string][3]int{
		"entries": {r.entries.len(), len(r.entries.index), 100},
		"similar": {r.similar.len(), len(r.similar.index), maxRemembered},
		"budgets": {r.budgets.len(), len(r.budgets.index), maxRemembered},
	} {
		if n[0] != n[2] || n[1] != n[2] {
			t.Errorf("%s: %d in order, %d by key, want %d", what, n[0], n[1], n[2])
		}
	}
	if got := r.Stats(); got.Taken != 4*maxRemembered+2 || got.Forgotten != got.Taken-200 {
		t.Errorf("%+v", got)
	}
}

func BenchmarkEvent(b *testing.B) {
	r := New(1000)
	pods := make([]*v1.Pod, 2000)
	for i := range pods {
		pods[i] = podNamed(fmt.Sprint(i))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Event(pods[i%len(pods)], pod.Event{Type: "Normal", Reason: "Started", Message: "Container started", Container: "web"})
	}
}
