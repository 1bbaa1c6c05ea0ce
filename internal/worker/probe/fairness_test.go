package probe

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
)

// neighbour is one pod among others on the node: n containers with a liveness probe of
// this period each, whose tries take so long.
type neighbour struct {
	n      int
	period int32
	takes  time.Duration
	exec   bool
}

// street is a rig with neighbours, and an account of what is under way.
type street struct {
	*rig
	pods []neighbour
	// now counts the tries under way of each pod, most is the most there were of all.
	now  map[types.UID]int
	all  int
	most int
	// inExec and inNetwork have when the tries under way at those limiters began.
	inExec, inNetwork map[pod.Probe]time.Time
	// last has when each probe was tried last, gap the longest time between two tries.
	last map[pod.Probe]time.Duration
	gap  map[types.UID]time.Duration
}

func newStreet(r *rig, pods []neighbour) *street {
	s := &street{rig: r, pods: pods, now: map[types.UID]int{}, inExec: map[pod.Probe]time.Time{}, inNetwork: map[pod.Probe]time.Time{}, last: map[pod.Probe]time.Duration{}, gap: map[types.UID]time.Duration{}}
	r.answers(s.try)
	return s
}

// moveIn has all probes of all pods wanted.
func (s *street) moveIn() {
	for i, x := range s.pods {
		uid := types.UID(fmt.Sprint(i))
		p := podOf(uid)
		o := &pod.Observed{}
		var keys []pod.Probe
		for j := range x.n {
			spec := httpProbe(x.period)
			if x.exec {
				spec = execProbe(x.period)
			}
			name, id := fmt.Sprint("c", j), fmt.Sprint(i, "-", j)
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name, LivenessProbe: spec})
			o.Containers = append(o.Containers, pod.Container{ID: id, Name: name, StartedAt: time.Now()})
			keys = append(keys, pod.Probe{Container: name, ID: id, Kind: pod.ProbeLiveness})
		}
		s.mu.Lock()
		for _, key := range keys {
			s.last[key] = time.Since(s.start)
		}
		s.mu.Unlock()
		s.Want(uid, p, o, "", keys)
	}
}

func (s *street) try(ctx context.Context, x try) handler.Outcome {
	uid, key := x.Pod.UID, x.key()
	var i int
	if _, err := fmt.Sscan(string(uid), &i); err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	s.tries = nil // there are many
	s.now[uid]++
	s.all++
	s.most = max(s.most, s.all)
	s.gap[uid] = max(s.gap[uid], x.at-s.last[key])
	s.last[key] = x.at
	l, began := &s.network, s.inNetwork
	if s.pods[i].exec {
		l, began = &s.exec, s.inExec
	}
	began[key] = time.Now()
	s.bounded(uid, l, began)
	s.mu.Unlock()
	select {
	case <-time.After(s.pods[i].takes):
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.now[uid]--
	s.all--
	delete(began, key)
	s.mu.Unlock()
	return handler.Outcome{State: handler.Success}
}

// bounded checks that a try of this pod may be under way beside the others at its limiter.
func (s *street) bounded(uid types.UID, l *limiter, began map[pod.Probe]time.Time) {
	young := 0
	for _, at := range began {
		if time.Since(at) < patience {
			young++
		}
	}
	if young > l.slots {
		s.t.Errorf("%d tries have begun within %v, in %d slots", young, patience, l.slots)
	}
	if s.now[uid] > l.share {
		s.t.Errorf("pod %s has %d tries under way, may have %d", uid, s.now[uid], l.share)
	}
	if len(began) > len(s.pods)+l.spare {
		s.t.Errorf("%d tries of %d pods are under way", len(began), len(s.pods))
	}
}

// atWork checks that nobody waits beside a slot that is free.
func (s *street) atWork() {
	s.t.Helper()
	s.Manager.mu.Lock()
	defer s.Manager.mu.Unlock()
	for _, l := range []*limiter{&s.network, &s.exec} {
		if l.waiting() != nil && l.busy.len() < l.slots {
			s.t.Errorf("%d of %d slots are in use while somebody waits", l.busy.len(), l.slots)
		}
	}
}

// worst returns the longest time that passed without a try of a probe of pod i, and
// begins anew.
func (s *street) worst(i int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid := types.UID(fmt.Sprint(i))
	worst := s.gap[uid]
	for j := range s.pods[i].n {
		worst = max(worst, time.Since(s.start)-s.last[pod.Probe{Container: fmt.Sprint("c", j), ID: fmt.Sprint(i, "-", j), Kind: pod.ProbeLiveness}])
	}
	s.gap[uid] = 0
	return worst
}

// TestHangingPods: pods full of probes that hang for a day, or as long as disturbs
// most, keep no other pod's from its time, and tie up only so much memory.
func TestHangingPods(t *testing.T) {
	const hostile = 100
	for name, c := range map[string]struct {
		takes time.Duration
		exec  bool
		// first bounds the time between tries while the hostile pods begin, later after that.
		first, later time.Duration
	}{
		"exec for a day":      {24 * time.Hour, true, second + slack + (hostile/16+2)*patience, second + slack},
		"exec for 2 s":        {patience - time.Millisecond, true, second + slack + (hostile/16+2)*patience, second + slack + patience},
		"exec for 4 s":        {2 * patience, true, second + slack + (hostile/16+2)*patience, second + slack + patience},
		"exec for 1 s":        {second, true, second + slack + (hostile/16+2)*second, second + slack + second},
		"network for a day":   {24 * time.Hour, false, second + slack + 2*patience, second + slack},
		"network for seconds": {2 * patience, false, second + slack + 2*patience, second + slack + patience},
	} {
		t.Run(name, func(t *testing.T) {
			withRig(t, Options{MaxExec: 16}, func(r *rig) {
				var pods []neighbour
				for range hostile {
					pods = append(pods, neighbour{n: 40, period: 1, takes: c.takes, exec: c.exec})
				}
				s := newStreet(r, append(pods, neighbour{n: 1, period: 1, takes: 10 * time.Millisecond, exec: c.exec}))
				s.moveIn()
				r.until(30 * second)
				if worst := s.worst(hostile); worst > c.first {
					t.Errorf("at first, there was no try for %v, want %v at most", worst, c.first)
				}
				r.until(50 * second)
				if worst := s.worst(hostile); worst > c.later {
					t.Errorf("later, there was no try for %v, want %v at most", worst, c.later)
				}
				// Besides tries and idle workers: the test, the manager, the timers' own.
				l := &r.network
				if c.exec {
					l = &r.exec
				}
				most := len(pods) + 1 + l.spare + len(r.idle) + 20
				if n := runtime.NumGoroutine(); n > most {
					t.Errorf("there are %d goroutines, want %d at most", n, most)
				}
				if c.takes > time.Hour && s.most < 4*16 {
					t.Errorf("only %d tries were ever under way: nothing was tested", s.most)
				}
			})
		})
	}
}

// TestAnyCrowd: among any pods at limiters of any size, no probe is left out. A pod waits for
// a slot no longer than it stands back and it takes to give one to each of the others;
// its own probes share what it may have under way.
func TestAnyCrowd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pods := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) neighbour {
			return neighbour{
				n:      rapid.IntRange(1, 8).Draw(rt, "probes"),
				period: rapid.Int32Range(1, 5).Draw(rt, "period"),
				takes:  time.Duration(rapid.SampledFrom([]int{0, 1, 50, 1000, 1990, 2500, 7000}).Draw(rt, "takes")) * time.Millisecond,
				exec:   rapid.Bool().Draw(rt, "exec"),
			}
		}), 1, 12).Draw(rt, "pods")
		slots := rapid.IntRange(1, 9).Draw(rt, "slots")
		hangs := rapid.IntRange(0, len(pods)).Draw(rt, "pods that hang")
		for i := range hangs {
			pods[i].takes = 24 * time.Hour
		}
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, Options{MaxExec: slots, MaxParallel: slots})
			defer r.stop()
			s := newStreet(r, pods)
			s.moveIn()
			for range 180 {
				time.Sleep(second)
				synctest.Wait()
				s.atWork()
			}
			turn := patience * time.Duration((len(pods)+slots-1)/slots+1)
			for i, x := range pods[hangs:] {
				bound := time.Duration(x.period)*second + slack + time.Duration(x.n)*(turn+x.takes+penaltyFactor*min(x.takes, patience))
				if worst := s.worst(hangs + i); worst > bound {
					t.Errorf("%d slots: a probe of pod %d, %+v, wasn't tried for %v, want %v at most, among %+v", slots, hangs+i, x, worst, bound, pods)
				}
			}
			for i := range pods {
				r.Forget(types.UID(fmt.Sprint(i)))
			}
			r.until(4 * time.Minute)
			for _, l := range []*limiter{&r.network, &r.exec} {
				if l.busy.len()+l.none.len()+l.some.len()+l.extra != 0 {
					t.Errorf("after all, %d are busy, %d and %d wait, %d are extra", l.busy.len(), l.none.len(), l.some.len(), l.extra)
				}
			}
		})
	})
}

// TestOwnShare: a pod whose tries hang delays its own other probes until one ends.
func TestOwnShare(t *testing.T) {
	withRig(t, Options{MaxExec: 8}, func(r *rig) {
		s := newStreet(r, []neighbour{{n: 5, period: 1, takes: 10 * second, exec: true}})
		s.moveIn()
		r.until(9 * second)
		if s.most != 2 {
			t.Errorf("%d tries were under way, want 2", s.most)
		}
		if worst := s.worst(0); worst != 9*second {
			t.Errorf("the last one waits %v", worst)
		}
		r.until(60 * second)
		if worst := s.worst(0); worst > 30*second {
			t.Errorf("one of five waited %v for two places of 10 s", worst)
		}
	})
}

// TestRoomAfterShare: who gets room in its share again, and finds no slot, has one as
// soon as another try has had its for long enough, though nothing else happens then.
func TestRoomAfterShare(t *testing.T) {
	withRig(t, Options{MaxExec: 4}, func(r *rig) {
		r.answers(func(ctx context.Context, x try) handler.Outcome {
			if x.ID != "first" {
				return untilCut(ctx, x)
			}
			time.Sleep(10 * second)
			return handler.Outcome{State: handler.Success}
		})
		o := ran("first", time.Now())
		first, second1 := probeOf("first", pod.ProbeLiveness), probeOf("second", pod.ProbeLiveness)
		p := podOf("u", v1.Container{LivenessProbe: execProbe(3600)})
		r.Want("u", p, o, "", []pod.Probe{first})
		r.until(0)
		r.Want("u", p, o, "", []pod.Probe{first, second1}) // its share is 1
		r.until(9 * second)
		for i := range 4 {
			uid := types.UID(fmt.Sprint(i))
			r.Want(uid, podOf(uid, v1.Container{LivenessProbe: execProbe(3600)}), o, "", []pod.Probe{probeOf(string(uid), pod.ProbeLiveness)})
		}
		// Something is due before the worker that ended is idle for long, but later than that.
		later := httpProbe(3600)
		later.InitialDelaySeconds = 10
		r.Want("v", podOf("v", v1.Container{LivenessProbe: later}), nil, "", []pod.Probe{probeOf("later", pod.ProbeLiveness)})
		r.until(30 * second)
		r.wantTimes(first, 0)
		r.wantTimes(second1, 9*second+patience)
	})
}
