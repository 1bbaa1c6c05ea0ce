package probe

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// crowd makes a pod of n containers with a liveness and a readiness probe each, what is
// observed of it, and those probes.
func crowd(n int) (*v1.Pod, *pod.Observed, []pod.Probe) {
	var containers []v1.Container
	var keys []pod.Probe
	o := &pod.Observed{}
	for i := range n {
		name, id := fmt.Sprint("container-", i), fmt.Sprintf("%064d", i)
		containers = append(containers, v1.Container{Name: name, LivenessProbe: httpProbe(10), ReadinessProbe: httpProbe(10)})
		o.Containers = append(o.Containers, pod.Container{ID: id, Name: name, StartedAt: time.Now()})
		keys = append(keys, pod.Probe{Container: name, ID: id, Kind: pod.ProbeLiveness}, pod.Probe{Container: name, ID: id, Kind: pod.ProbeReadiness})
	}
	return podOf("u", containers...), o, keys
}

// BenchmarkWant measures what one change to the 5,000 probes of a pod costs. On a busy
// machine, its cpu-ms say more than its time.
func BenchmarkWant(b *testing.B) {
	m := New((&nothing{}).options())
	p, o, keys := crowd(2500)
	start, turn := cpu(b), 0
	for ; b.Loop(); turn++ {
		wantAllBut(m, p, o, keys, turn)
	}
	b.ReportMetric((cpu(b)-start).Seconds()*1000/float64(turn), "cpu-ms/op")
}

// wantAllBut wants all of keys but one: another one each time.
func wantAllBut(m *Manager, p *v1.Pod, o *pod.Observed, keys []pod.Probe, turn int) {
	gone := turn % (len(keys) - 1)
	keys[gone], keys[len(keys)-1] = keys[len(keys)-1], keys[gone]
	m.Want("u", p, o, "", keys[:len(keys)-1])
}

// TestWantOfThousands: every worker waits while one pod's probes are looked through, so
// that must not take the square of their number.
func TestWantOfThousands(t *testing.T) {
	m := New((&nothing{}).options())
	p, o, keys := crowd(2500)
	least := time.Hour
	for turn := range 8 { // the first of which has them all to begin
		start := time.Now()
		wantAllBut(m, p, o, keys, turn)
		least = min(least, time.Since(start))
		if s := m.pods["u"]; len(s.entries) != len(keys)-1 || m.due.len() != len(keys)-1 {
			t.Fatalf("%d probes, %d deadlines", len(s.entries), m.due.len())
		}
	}
	// It takes 1 or 2 ms of CPU, 10 with the race detector; looking for each among all took 140.
	if least > 50*time.Millisecond {
		t.Errorf("one change took %v at least", least)
	}
}

// TestResultsAreMadeOnce: reading them again, or wanting the same, makes no new ones.
func TestResultsAreMadeOnce(t *testing.T) {
	withRig(t, Options{}, func(r *rig) {
		p, o, keys := crowd(20)
		r.Want("u", p, o, "", keys)
		r.until(second)
		before := r.Results("u")
		r.Want("u", p, o, "", keys)
		if after := r.Results("u"); len(before) != 40 || &after[0] != &before[0] {
			t.Errorf("there were %d results, which were made anew", len(before))
		}
		r.Want("u", p, o, "", keys[1:])
		if after := r.Results("u"); len(after) != 39 || after[0].Probe != keys[1] {
			t.Errorf("%d results are left", len(after))
		}
	})
}

// TestDroppedLeavesTheQueue: what isn't wanted any more is gone at once, also while its
// limiter is full: it would keep its pod's spec.
func TestDroppedLeavesTheQueue(t *testing.T) {
	withRig(t, Options{MaxExec: 1}, func(r *rig) {
		r.answers(untilCut)
		r.Want("full", podOf("full", v1.Container{LivenessProbe: execProbe(1)}), ran("id1", time.Now()), "", []pod.Probe{liveness1})
		r.until(0)
		for i := range 1000 {
			p := podOf("u", v1.Container{LivenessProbe: execProbe(1)})
			id := fmt.Sprint("instance", i)
			r.Want("u", p, ran(id, time.Now()), "", []pod.Probe{probeOf(id, pod.ProbeLiveness)})
			r.until(time.Duration(i+1) * time.Millisecond)
		}
		q := r.pods["u"].exec
		if q.entries.len() != 1 || q.in == nil || r.exec.none.len() != 1 {
			t.Errorf("%d entries wait for the one that is wanted, in %d queues", q.entries.len(), r.exec.none.len())
		}
		r.Forget("u")
		if q.entries.len() != 0 || r.exec.none.len()+r.exec.some.len() != 0 {
			t.Errorf("after the end of the pod, %d entries wait", q.entries.len())
		}
		r.until(10 * second)
		if len(r.tries) != 1 {
			t.Errorf("%d tries", len(r.tries)-1)
		}
	})
}
