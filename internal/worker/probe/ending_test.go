package probe

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
)

// untilCut answers with a failure once ctx has ended.
func untilCut(ctx context.Context, _ try) handler.Outcome {
	<-ctx.Done()
	return handler.Outcome{State: handler.Failure, Message: ctx.Err().Error()}
}

// TestLateOutcomeIsDropped: the try under way is cut short, and what it says of a pod or
// container that isn't probed any more goes nowhere.
func TestLateOutcomeIsDropped(t *testing.T) {
	for name, end := range map[string]func(r *rig, p *v1.Pod){
		"forgotten": func(r *rig, _ *v1.Pod) { r.Forget("u") },
		"unwanted":  func(r *rig, p *v1.Pod) { r.Want("u", p, nil, "", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			withRig(t, Options{}, func(r *rig) {
				r.answers(func(ctx context.Context, x try) handler.Outcome {
					out := untilCut(ctx, x)
					time.Sleep(second) // it doesn't end at once
					return out
				})
				p := podOf("u", v1.Container{LivenessProbe: httpProbe(1)})
				r.Want("u", p, ran("id1", time.Now()), "", []pod.Probe{liveness1})
				r.until(2 * second)
				end(r, p)
				r.until(10 * second)
				r.wantTimes(liveness1, 0)
				if len(r.events) != 0 || len(r.wakes) != 0 || r.Results("u") != nil || len(r.late) != 0 {
					t.Errorf("events %v, wake-ups %v, results %v, late %v", r.events, r.wakes, r.Results("u"), r.late)
				}
				r.until(13 * second)
				if len(r.idle) != 0 {
					t.Error("an idle goroutine stays")
				}
				r.Forget("u")
				if want := []string{"c liveness dropped"}; !slices.Equal(r.meter, want) {
					t.Errorf("metered %v, want %v", r.meter, want)
				}
			})
		})
	}
}

// TestWantedAnewDuringATry: there is no second try beside the old one, whose outcome
// doesn't count.
func TestWantedAnewDuringATry(t *testing.T) {
	withRig(t, Options{}, func(r *rig) {
		var underWay atomic.Int32
		r.answers(func(_ context.Context, x try) handler.Outcome {
			if underWay.Add(1) > 1 {
				t.Error("two tries at once")
			}
			defer underWay.Add(-1)
			if x.n == 1 {
				time.Sleep(4 * second)
				return handler.Outcome{State: handler.Failure}
			}
			return handler.Outcome{State: handler.Success}
		})
		p := podOf("u", v1.Container{LivenessProbe: httpProbe(1)})
		o := ran("id1", time.Now())
		for i := range 3 {
			r.until(time.Duration(i) * second)
			r.Want("u", p, o, "", []pod.Probe{liveness1})
			r.until(time.Duration(i)*second + second/2)
			if i < 2 {
				r.Forget("u")
			}
		}
		r.until(5 * second)
		r.wantTimes(liveness1, 0, 4*second, 5*second)
		if !r.okays("u")[pod.ProbeLiveness] || len(r.events) != 0 {
			t.Errorf("results %v, events %v", r.Results("u"), r.events)
		}
	})
}

// TestEndCutsShort: what is under way is cancelled, waited for, and not told: an agent
// that stops must not make its pods look sick.
func TestEndCutsShort(t *testing.T) {
	withRig(t, Options{MaxExec: 1}, func(r *rig) {
		r.answers(untilCut)
		for i := range 3 { // of which two are waiting for room
			uid := types.UID(fmt.Sprint(i))
			r.Want(uid, podOf(uid, v1.Container{LivenessProbe: execProbe(1)}), ran("id1", time.Now()), "", []pod.Probe{liveness1})
		}
		r.until(second)
		r.stop()
		if took := time.Since(r.start); took != second {
			t.Errorf("Run returned %v after its end", took-second)
		}
		if len(r.tries) != 1 || len(r.events) != 0 || len(r.meter) != 0 || len(r.wakes) != 0 {
			t.Errorf("%d tries, events %v, metered %v, wake-ups %v", len(r.tries), r.events, r.meter, r.wakes)
		}
		r.Want("v", podOf("v", v1.Container{LivenessProbe: httpProbe(1)}), nil, "", []pod.Probe{liveness1})
		r.Forget("v") // nothing blocks, nothing breaks
		r.until(5 * second)
		if len(r.tries) != 1 {
			t.Errorf("%d tries after the end", len(r.tries)-1)
		}
	})
}

// TestExecLimit: exec tries are bounded on their own, in the order they came due, and
// keep no http try from its time. They take a little less than patience.
func TestExecLimit(t *testing.T) {
	const n, execTakes = 12, 1900 * time.Millisecond
	withRig(t, Options{MaxExec: 2, MaxParallel: 3}, func(r *rig) {
		var exec, network, most, mostNetwork atomic.Int32
		r.answers(func(_ context.Context, x try) handler.Outcome {
			now, top, takes := &network, &mostNetwork, 10*time.Millisecond
			if x.Container.LivenessProbe.Exec != nil {
				now, top, takes = &exec, &most, execTakes
			}
			top.Store(max(top.Load(), now.Add(1)))
			time.Sleep(takes)
			now.Add(-1)
			return handler.Outcome{State: handler.Success}
		})
		for i := range n {
			for name, spec := range map[string]*v1.Probe{"e": execProbe(1), "h": httpProbe(1)} {
				uid := types.UID(fmt.Sprint(name, i))
				r.Want(uid, podOf(uid, v1.Container{LivenessProbe: spec}), ran(string(uid), time.Now()), "", []pod.Probe{probeOf(string(uid), pod.ProbeLiveness)})
			}
			time.Sleep(time.Microsecond)
		}
		r.until(10*second - time.Millisecond)
		if most.Load() != 2 || mostNetwork.Load() != 3 {
			t.Errorf("up to %d exec and %d http tries at once", most.Load(), mostNetwork.Load())
		}
		for i := range n {
			if got := r.times(probeOf(fmt.Sprint("e", i), pod.ProbeLiveness)); len(got) != 1 || got[0].Round(time.Millisecond) != time.Duration(i/2)*execTakes {
				t.Errorf("exec %d was tried at %v", i, got)
			}
			got := r.times(probeOf(fmt.Sprint("h", i), pod.ProbeLiveness))
			for j, at := range got {
				if late := at - time.Duration(j)*second; late < 0 || late > 40*time.Millisecond {
					t.Errorf("http try %d of %d was %v late", j, i, late)
				}
			}
			if len(got) != 10 {
				t.Errorf("http %d was tried at %v", i, got)
			}
		}
		r.Forget("e0")
		r.Forget("e5")
		r.until(60 * second)
		if n := len(r.times(probeOf("e5", pod.ProbeLiveness))); n != 1 {
			t.Errorf("a probe that was forgotten in the queue was tried %d times", n)
		}
	})
}

// TestOddRequests: a probe that the pod doesn't have isn't run, one named twice runs once,
// and a pod that wants none costs nothing.
func TestOddRequests(t *testing.T) {
	withRig(t, Options{}, func(r *rig) {
		p := podOf("u", v1.Container{LivenessProbe: httpProbe(1)})
		r.Want("u", p, nil, "", []pod.Probe{liveness1, liveness1, readiness1, {Container: "x", ID: "id1", Kind: pod.ProbeLiveness}, {Container: "c", ID: "id1", Kind: "odd"}})
		r.until(1500 * time.Millisecond)
		r.wantTimes(liveness1, 0, second)
		if len(r.tries) != 2 {
			t.Errorf("%d tries", len(r.tries))
		}
		r.Want("u", nil, nil, "", nil)
		r.Want("none", podOf("none", v1.Container{}), nil, "", nil)
		r.Forget("u")
		r.Forget("never heard of")
		if len(r.pods) != 0 || r.Results("none") != nil {
			t.Errorf("%d pods are kept", len(r.pods))
		}
	})
}
