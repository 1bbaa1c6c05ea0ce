package probe

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
)

// TestFirstTry: all times are relative to the manager's construction; the probe is
// wanted 5 s later, and its period is 10 s.
func TestFirstTry(t *testing.T) {
	at := func(d time.Duration) *time.Duration { return &d }
	for _, c := range []struct {
		name    string
		started *time.Duration
		delay   int32
		want    time.Duration
	}{
		{"no delay", at(4 * second), 0, 5 * second},
		{"the delay counts from the start", at(4 * second), 7, 11*second + slack},
		{"the delay is over", at(2 * second), 3, 5 * second},
		{"the runtime doesn't say", nil, 3, 8*second + slack},
		{"a start in the future", at(time.Hour), 3, 8*second + slack},
		{"the clock was set since", at(3*second - time.Hour), 7, 10*second + slack},
		{"found running: spread", at(-time.Hour), 0, 10 * second},
		{"found running: the delay is longer than the spread", at(-second), 20, 19*second + slack},
		{"found running: the spread is longer than the delay", at(-second), 8, 10 * second},
	} {
		t.Run(c.name, func(t *testing.T) {
			var steps []pod.ClockStep
			withRig(t, Options{ClockSteps: func() []pod.ClockStep { return steps }}, func(r *rig) {
				if c.name == "the clock was set since" {
					steps = []pod.ClockStep{{From: r.start.Round(0).Add(4*second - time.Hour), By: time.Hour}}
				}
				r.until(5 * second)
				o := &pod.Observed{}
				if c.started != nil {
					o = ran("id1", r.start.Add(*c.started))
				}
				spec := httpProbe(10)
				spec.InitialDelaySeconds = c.delay
				r.Want("u", podOf("u", v1.Container{LivenessProbe: spec}), o, "", []pod.Probe{liveness1})
				r.until(c.want + 15*second)
				r.wantTimes(liveness1, c.want, c.want+10*second)
			})
		})
	}
}

// TestReadinessAfterStartup: what waits for a startup probe is tried at once after
// it, also in a container that was found running.
func TestReadinessAfterStartup(t *testing.T) {
	for _, age := range []time.Duration{0, time.Hour} {
		withRig(t, Options{}, func(r *rig) {
			p := podOf("u", v1.Container{StartupProbe: httpProbe(10), LivenessProbe: httpProbe(10), ReadinessProbe: httpProbe(10)})
			o := ran("id1", r.start.Add(-age))
			r.Want("u", p, o, "", []pod.Probe{startup1})
			r.until(7 * second)
			r.Want("u", p, o, "", []pod.Probe{liveness1, readiness1})
			r.until(8 * second)
			r.wantTimes(readiness1, 7*second)
			r.wantTimes(liveness1, 7*second)
		})
	}
}

// TestStartupBesideReadiness: a startup probe that is only just wanted too has not succeeded.
func TestStartupBesideReadiness(t *testing.T) {
	withRig(t, Options{}, func(r *rig) {
		p := podOf("u", v1.Container{StartupProbe: httpProbe(10), ReadinessProbe: httpProbe(10)})
		r.Want("u", p, ran("id1", r.start.Add(-time.Hour)), "", []pod.Probe{startup1, readiness1})
		r.until(6 * second)
		r.wantTimes(readiness1, 5*second)
	})
}

// TestAdoptedAreSpread: after a restart of the agent, a node's probes aren't all
// tried at once, without another worker.
func TestAdoptedAreSpread(t *testing.T) {
	withRig(t, Options{Spread: New(Options{}).opts.Spread}, func(r *rig) {
		for i := range 1000 {
			uid := types.UID(fmt.Sprint(i))
			r.Want(uid, podOf(uid, v1.Container{LivenessProbe: httpProbe(10)}), ran("id1", r.start.Add(-second)), "", []pod.Probe{liveness1})
		}
		r.until(10 * second)
		perSecond := make([]int, 10)
		for _, x := range r.tries[:1000] {
			perSecond[x.at/second]++
		}
		if slices.Min(perSecond) < 50 || slices.Max(perSecond) > 170 {
			t.Errorf("tries in each second: %v", perSecond)
		}
	})
}

// TestNoPileUp: while a try hangs, its probe isn't tried again and others are; what
// was missed isn't made up for.
func TestNoPileUp(t *testing.T) {
	withRig(t, Options{}, func(r *rig) {
		r.answers(func(_ context.Context, x try) handler.Outcome {
			if x.kind == pod.ProbeLiveness && x.n == 1 {
				time.Sleep(3500 * time.Millisecond)
			}
			return handler.Outcome{State: handler.Success}
		})
		p := podOf("u", v1.Container{LivenessProbe: execProbe(1), ReadinessProbe: httpProbe(1)})
		r.Want("u", p, ran("id1", time.Now()), "", []pod.Probe{liveness1, readiness1})
		r.until(6 * second)
		r.wantTimes(liveness1, 0, 3500*time.Millisecond, 4500*time.Millisecond, 5500*time.Millisecond)
		r.wantTimes(readiness1, 0, second, 2*second, 3*second, 4*second, 5*second, 6*second)
	})
}

// TestStandstill: when the whole agent stood still (stopped, starved, or its host
// asleep), probes go on at their own deadlines instead of all at once.
func TestStandstill(t *testing.T) {
	withRig(t, Options{}, func(r *rig) {
		const n = 100
		for i := range n {
			uid := types.UID(fmt.Sprint(i))
			r.Want(uid, podOf(uid, v1.Container{LivenessProbe: httpProbe(10)}), ran(string(uid), time.Now()), "", []pod.Probe{probeOf(string(uid), pod.ProbeLiveness)})
			time.Sleep(100 * time.Millisecond)
		}
		r.until(20*second - 50*time.Millisecond)
		r.mu.Lock()
		r.tries = nil
		r.mu.Unlock()
		r.Manager.mu.Lock()
		r.born = r.born.Add(-57050 * time.Millisecond) // time jumps
		r.Manager.mu.Unlock()
		r.until(30*second - 50*time.Millisecond)
		for i := range n {
			// It was due at i tenths of a second in each ten seconds.
			want := 12950*time.Millisecond + time.Duration(i)*100*time.Millisecond
			if want < 20*second {
				want += 10 * second
			}
			r.wantTimes(probeOf(fmt.Sprint(i), pod.ProbeLiveness), want)
		}
	})
}

// TestThousands: every probe is tried at its times, by few goroutines, and nothing of
// them stays.
func TestThousands(t *testing.T) {
	withRig(t, Options{Spread: func(time.Duration) time.Duration { return 0 }}, func(r *rig) {
		const n = 4000
		for i := range n {
			uid := types.UID(fmt.Sprint(i))
			r.Want(uid, podOf(uid, v1.Container{ReadinessProbe: httpProbe(10)}), ran(string(uid), time.Now()), "", []pod.Probe{probeOf(string(uid), pod.ProbeReadiness)})
			time.Sleep(2 * time.Millisecond)
		}
		r.until(29 * second)
		count := map[string]int{}
		for _, x := range r.tries {
			count[x.ID]++
		}
		for id, tries := range count {
			if tries != 3 {
				t.Errorf("probe %s was tried %d times", id, tries)
			}
		}
		if len(count) != n {
			t.Errorf("%d of %d probes were tried", len(count), n)
		}
		// What is due within slack is begun at once, each by a worker of its own.
		if workers, most := len(r.idle), int(slack/(2*time.Millisecond))+3; workers == 0 || workers > most {
			t.Errorf("there are %d workers for tries that take no time, want at most %d", workers, most)
		}
		for i := range n {
			r.Forget(types.UID(fmt.Sprint(i)))
		}
		r.until(29*second + idleFor)
		if len(r.idle)+len(r.pods)+r.due.len()+len(r.late) != 0 || r.armed != never {
			t.Errorf("left: %d idle workers, %d pods, %d deadlines, %d late, the next at %v", len(r.idle), len(r.pods), r.due.len(), len(r.late), r.armed)
		}
	})
}
