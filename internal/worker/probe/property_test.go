package probe

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
)

// step is one call of a pod's worker, after some time.
type step struct {
	after  time.Duration
	uid    types.UID
	forget bool
	wanted []pod.Probe
}

// answer is what a try comes to, and how long it takes.
type answer struct {
	state handler.State
	takes time.Duration
}

// TestAnyLife lets random pods want and forget probes at random times, with random
// outcomes: there are never two tries of one probe at once, none of one that isn't wanted,
// each is tried in time, and results are those of the thresholds, of what is wanted.
func TestAnyLife(t *testing.T) {
	keys := []pod.Probe{
		startup1, liveness1, readiness1,
		probeOf("id2", pod.ProbeStartup), probeOf("id2", pod.ProbeLiveness), probeOf("id2", pod.ProbeReadiness),
	}
	rapid.Check(t, func(rt *rapid.T) {
		specs := rapid.Custom(func(rt *rapid.T) *v1.Probe {
			p := httpProbe(rapid.Int32Range(1, 4).Draw(rt, "period"))
			if rapid.Bool().Draw(rt, "exec") {
				p = execProbe(p.PeriodSeconds)
			}
			p.TimeoutSeconds = rapid.Int32Range(1, 6).Draw(rt, "timeout")
			p.InitialDelaySeconds = rapid.Int32Range(0, 3).Draw(rt, "delay")
			p.FailureThreshold = rapid.Int32Range(1, 3).Draw(rt, "failures")
			p.SuccessThreshold = rapid.Int32Range(1, 3).Draw(rt, "successes")
			return p
		})
		container := v1.Container{StartupProbe: specs.Draw(rt, "startup"), LivenessProbe: specs.Draw(rt, "liveness"), ReadinessProbe: specs.Draw(rt, "readiness")}
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			s := step{
				after:  time.Duration(rapid.IntRange(0, 9000).Draw(rt, "ms")) * time.Millisecond,
				uid:    rapid.SampledFrom([]types.UID{"a", "b", "c"}).Draw(rt, "uid"),
				forget: rapid.IntRange(0, 4).Draw(rt, "forget") == 0,
			}
			for _, key := range keys {
				if !s.forget && rapid.Bool().Draw(rt, "wanted") {
					s.wanted = append(s.wanted, key)
				}
			}
			return s
		}), 1, 30).Draw(rt, "steps")
		outcomes := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) answer {
			return answer{
				state: rapid.SampledFrom([]handler.State{handler.Success, handler.Success, handler.Failure, handler.Failure, handler.Warning, handler.Unknown}).Draw(rt, "state"),
				takes: time.Duration(rapid.SampledFrom([]int{0, 0, 1, 300, 1000, 9000}).Draw(rt, "takes")) * time.Millisecond,
			}
		}), 1, 20).Draw(rt, "outcomes")
		slow := rapid.Bool().Draw(rt, "slow to be cut short")
		synctest.Test(t, func(t *testing.T) {
			l := &life{t: t, container: container, outcomes: outcomes, slow: slow, probes: map[lateKey]*model{}, underWay: map[lateKey]bool{}}
			l.run(steps)
		})
	})
}

// model is what is known of one wanted probe.
type model struct {
	// expected is when a try has to have begun by.
	expected time.Time
	outcomes []handler.State
}

// life drives a manager and keeps the model beside it.
type life struct {
	*rig
	t         *testing.T
	container v1.Container
	outcomes  []answer
	slow      bool
	next      int
	probes    map[lateKey]*model
	underWay  map[lateKey]bool
}

func (l *life) run(steps []step) {
	l.rig = &rig{t: l.t, start: time.Now(), count: map[pod.Probe]int{}, answer: l.try}
	// There is room for all that a pod may want; TestAnyCrowd is about what isn't so.
	l.Manager = New(Options{MaxExec: 4 * 12, Handler: l.rig, Recorder: l.rig, Meter: l.rig, Wake: l.woken, Log: logr.Discard()})
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	for _, s := range steps {
		time.Sleep(s.after)
		synctest.Wait()
		l.check()
		l.do(s)
		l.onlyWanted()
	}
	time.Sleep(20 * second)
	synctest.Wait()
	l.check()
	cancel()
	if err := <-ended; err != nil {
		l.t.Error(err)
	}
	if len(l.underWay) != 0 {
		l.t.Errorf("Run has returned while %v", l.underWay)
	}
}

func (l *life) do(s step) {
	l.mu.Lock()
	for k := range l.probes {
		if k.uid == s.uid && !slices.Contains(s.wanted, k.probe) {
			delete(l.probes, k)
		}
	}
	for _, key := range s.wanted {
		k := lateKey{s.uid, key}
		if l.probes[k] == nil {
			spec := specOf(&l.container, key.Kind)
			expected := time.Now().Add(time.Duration(spec.InitialDelaySeconds)*second + slack + period(spec))
			if l.underWay[k] {
				expected = expected.Add(l.longest(spec))
			}
			l.probes[k] = &model{expected: expected}
		}
	}
	l.mu.Unlock()
	if s.forget {
		l.Forget(s.uid)
		return
	}
	o := ran("id1", l.start.Add(-time.Minute)) // id1 was found running, id2 is new
	o.Containers = append(o.Containers, ran("id2", l.start.Add(time.Millisecond)).Containers...)
	l.Want(s.uid, podOf(s.uid, l.container), o, "", s.wanted)
}

// longest is how long a try may take. One that is slow to be cut short goes on for so long.
func (l *life) longest(spec *v1.Probe) time.Duration {
	return time.Duration(spec.TimeoutSeconds) * second
}

// try plays a handler that keeps to the timeout.
func (l *life) try(ctx context.Context, x try) handler.Outcome {
	k := lateKey{x.Pod.UID, x.key()}
	spec := specOf(x.Container, x.kind)
	l.mu.Lock()
	m := l.probes[k]
	switch {
	case m == nil:
		l.t.Errorf("a try of %v, which isn't wanted", k)
	case l.underWay[k]:
		l.t.Errorf("two tries of %v at once", k)
	case time.Now().After(m.expected):
		l.t.Errorf("a try of %v %v late", k, time.Since(m.expected))
	case final(k.probe, spec, m.outcomes):
		l.t.Errorf("a try of %v after %v", k, m.outcomes)
	default:
		m.expected = time.Now().Add(max(period(spec), l.longest(spec)) + slack)
	}
	l.underWay[k] = true
	a := l.outcomes[l.next%len(l.outcomes)]
	l.next++
	l.mu.Unlock()
	done := ctx.Done()
	if l.slow {
		done = nil
	}
	select {
	case <-time.After(min(a.takes, l.longest(spec))):
	case <-done:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.underWay, k)
	// The one that was wanted when the try began, and still is.
	if m != nil && l.probes[k] == m && ctx.Err() == nil {
		m.outcomes = append(m.outcomes, a.state)
	}
	return handler.Outcome{State: a.state, Message: fmt.Sprint("takes ", a.takes)}
}

// onlyWanted returns the results, which have to be of wanted probes.
func (l *life) onlyWanted() map[lateKey]bool {
	l.t.Helper()
	got := map[lateKey]bool{}
	for _, uid := range []types.UID{"a", "b", "c"} {
		for _, r := range l.Results(uid) {
			got[lateKey{uid, r.Probe}] = r.OK
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range got {
		if l.probes[k] == nil {
			l.t.Errorf("a result of %v, which isn't wanted", k)
		}
	}
	return got
}

// check compares the results, and looks for probes that are overdue.
func (l *life) check() {
	l.t.Helper()
	got := l.onlyWanted()
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, m := range l.probes {
		spec := specOf(&l.container, k.probe.Kind)
		want, known := resultOf(spec, m.outcomes)
		if ok, is := got[k]; is != known || ok != want {
			l.t.Errorf("the result of %v is %v (there: %v), want %v (there: %v) of %v", k, ok, is, want, known, m.outcomes)
		}
		if time.Now().After(m.expected) && !final(k.probe, spec, m.outcomes) {
			l.t.Errorf("%v should have been tried %v ago", k, time.Since(m.expected))
		}
	}
}

// resultOf is the plainest reading of the thresholds: the last outcome that had as many
// like it in a row as it needs.
func resultOf(spec *v1.Probe, outcomes []handler.State) (ok, known bool) {
	var counted []bool
	for _, s := range outcomes {
		if s != handler.Unknown {
			counted = append(counted, s != handler.Failure)
		}
	}
	for end := len(counted); end > 0; end-- {
		ok := counted[end-1]
		need := int(spec.FailureThreshold)
		if ok {
			need = int(spec.SuccessThreshold)
		}
		if end >= need && !slices.Contains(counted[end-need:end], !ok) {
			return ok, true
		}
	}
	return false, false
}

// final reports whether the probe isn't to be tried again.
func final(key pod.Probe, spec *v1.Probe, outcomes []handler.State) bool {
	ok, known := resultOf(spec, outcomes)
	return known && (key.Kind == pod.ProbeStartup || key.Kind == pod.ProbeLiveness && !ok)
}
