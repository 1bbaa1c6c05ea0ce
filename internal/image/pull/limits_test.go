package pull

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// crowd has n images pulled, which take a second each, in the order of their names. The
// returned function waits for all.
func crowd(t *testing.T, n int, limit func(*Config)) (rt *runtime, m *Manager, wait func()) {
	rt = &runtime{registry: map[string]string{}, pullTime: time.Second}
	cfg := config(rt)
	limit(&cfg)
	m = New(cfg)
	var wg sync.WaitGroup
	for i := range n {
		name := fmt.Sprintf("image-%02d:1", i)
		rt.registry[name] = "sha256:x"
		wg.Go(func() {
			if _, err := m.Ensure(t.Context(), Request{Image: name, Policy: v1.PullAlways}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // so that they come in this order
	}
	return rt, m, wg.Wait
}

// pullingNow is how many pulls are under way.
func (r *runtime) pullingNow() int {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulling
}

func TestMorePullsAtOnceFromNowOn(t *testing.T) {
	for limit, want := range map[int]int{1: 1, 3: 3, 0: 12} {
		synctest.Test(t, func(t *testing.T) {
			rt, m, wait := crowd(t, 12, func(c *Config) { c.MaxParallelPulls = 1 })
			m.SetLimits(limit, 0, 0)
			if n := rt.pullingNow(); n != want {
				t.Errorf("%d pulls at once with limit %d, want %d", n, limit, want)
			}
			wait()
			if limit == 1 && !slices.IsSorted(rt.order) {
				t.Errorf("pulled in the order %v", rt.order)
			}
		})
	}
}

func TestFewerPullsAtOnceStopNone(t *testing.T) {
	for _, before := range []int{0, 6} {
		synctest.Test(t, func(t *testing.T) {
			rt, m, wait := crowd(t, 6, func(c *Config) { c.MaxParallelPulls = before })
			m.SetLimits(2, 0, 0)
			if n := rt.pullingNow(); n != 6 {
				t.Errorf("%d of 6 pulls are left", n)
			}
			late := make(chan error, 3)
			for _, name := range []string{"x:1", "y:1", "z:1"} {
				rt.registry[name] = "sha256:x"
				go func() {
					_, err := m.Ensure(t.Context(), Request{Image: name})
					late <- err
				}()
			}
			if n := rt.pullingNow(); n != 6 {
				t.Errorf("%d pulls at once while more than 2 are under way", n)
			}
			wait()
			if n := rt.pullingNow(); n != 2 {
				t.Errorf("%d pulls at once after that, want 2", n)
			}
			for range 3 {
				if err := <-late; err != nil {
					t.Error(err)
				}
			}
			if n := rt.cancelled.Load(); n > 0 {
				t.Errorf("%d pulls were cancelled", n)
			}
		})
	}
}

func TestPullsWaitNoLongerThanTheNewRateAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		rt, m, wait := crowd(t, 10, func(c *Config) { c.PullsPerSecond, c.Burst = 1, 1 })
		m.SetLimits(0, 1, 1) // the same
		if n := rt.pullingNow(); n != 1 {
			t.Errorf("%d pulls have begun, want 1", n)
		}
		m.SetLimits(0, 10, 5)
		if n := rt.pullingNow(); n != 6 {
			t.Errorf("%d pulls have begun, want 5 more", n)
		}
		wait()
		if took := time.Since(began); took != 1400*time.Millisecond {
			t.Errorf("took %s, want 4 more pulls at 10 in a second, and one pull's second", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		rt, m, wait := crowd(t, 10, func(c *Config) { c.PullsPerSecond, c.Burst = 1, 1 })
		m.SetLimits(0, 0, 0)
		if n := rt.pullingNow(); n != 10 {
			t.Errorf("%d pulls have begun without a limit", n)
		}
		wait()
		m.SetLimits(0, 2, 1)
		began := time.Now()
		for range 3 {
			if _, err := m.Ensure(t.Context(), Request{Image: "image-00:1", Policy: v1.PullAlways}); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("three pulls of a second each, at 2 in a second, took %s", took)
		}
	})
}
