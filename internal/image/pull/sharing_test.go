package pull

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
)

func TestManyPodsShareOneLookAndOnePull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{registry: map[string]string{"a:1": "sha256:a"}, pullTime: time.Second, lookTime: time.Second}
		m := New(config(rt))
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				got, err := m.Ensure(t.Context(), Request{Image: "a:1", Pod: named(fmt.Sprint(i))})
				if err != nil || got.Ref != "sha256:a" || got.Took != time.Second || got.Waited != 3*time.Second {
					t.Errorf("got %+v, %v", got, err)
				}
			})
		}
		wg.Wait()
		// One look whether it is there, one more when the pull's turn comes, one at its size.
		if rt.looks.Load() != 3 || rt.pulls.Load() != 1 {
			t.Errorf("%d looks and %d pulls, want three and one", rt.looks.Load(), rt.pulls.Load())
		}
	})
}

// TestPodsThatComeWhileAPullEnds never cause a second pull, whenever they come.
func TestPodsThatComeWhileAPullEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{registry: map[string]string{"a:1": "sha256:a"}, locked: map[string][]string{"a:1": {"good"}}, pullTime: 50 * time.Millisecond, lookTime: 7 * time.Millisecond}
		cfg := config(rt)
		cfg.Access, cfg.Keyring = records(t, t.TempDir()), keyring{"": {secretLogin("n", "s", "good")}}
		m := New(cfg)
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if _, err := m.Ensure(t.Context(), Request{Image: "a:1"}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if rt.pulls.Load() != 1 {
			t.Errorf("%d pulls", rt.pulls.Load())
		}
	})
}

func TestWhoWaitsForAPullSeesThatItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{registry: map[string]string{"a:1": "sha256:a", "b:1": "sha256:b"}, pullTime: 10 * time.Second}
		cfg := config(rt)
		cfg.MaxParallelPulls = 1
		m := New(cfg)
		begun := time.Now()
		var wg sync.WaitGroup
		ensure := func(image string, at, took, waited time.Duration) {
			wg.Go(func() {
				time.Sleep(at)
				var told []time.Duration
				got, err := m.Ensure(t.Context(), Request{Image: image, Policy: v1.PullAlways, Pulling: func() { told = append(told, time.Since(begun)) }})
				if err != nil || got.Took != took || got.Waited != waited || !slices.Equal(told, []time.Duration{at}) {
					t.Errorf("%s wanted at %s: told at %v, %+v, %v", image, at, told, got, err)
				}
			})
		}
		ensure("a:1", 0, 10*time.Second, 10*time.Second)
		ensure("a:1", 4*time.Second, 6*time.Second, 6*time.Second)
		ensure("b:1", time.Second, 10*time.Second, 19*time.Second)
		wg.Wait()
	})
}

func TestPullGoesOnWhileOneWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{registry: map[string]string{"a:1": "sha256:a"}, pullTime: time.Minute}
		m := New(config(rt))
		first, cancelFirst := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := m.Ensure(first, Request{Image: "a:1", Policy: v1.PullAlways}); !errors.Is(err, context.Canceled) {
				t.Errorf("who gave up got %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if _, err := m.Ensure(t.Context(), Request{Image: "a:1", Policy: v1.PullAlways}); err != nil {
				t.Errorf("who stayed got %v", err)
			}
		})
		synctest.Wait()
		cancelFirst()
		wg.Wait()
		if rt.pulls.Load() != 1 || rt.cancelled.Load() != 0 {
			t.Errorf("%d pulls, %d cancelled", rt.pulls.Load(), rt.cancelled.Load())
		}
	})
}

func TestPullEndsWhenNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{registry: map[string]string{"a:1": "sha256:a"}, pullTime: time.Minute}
		m := New(config(rt))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if _, err := m.Ensure(ctx, Request{Image: "a:1", Policy: v1.PullAlways}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			})
		}
		wg.Wait()
		if rt.cancelled.Load() != 1 {
			t.Errorf("%d pulls cancelled, want 1", rt.cancelled.Load())
		}
		if _, err := m.Ensure(t.Context(), Request{Image: "a:1", Policy: v1.PullAlways}); err != nil {
			t.Errorf("a pull that was given up held off the next one: %v", err)
		}
	})
}

func TestParallelPullsAreLimitedAndInOrder(t *testing.T) {
	for _, parallel := range []int{1, 2, 0} {
		synctest.Test(t, func(t *testing.T) {
			rt := &runtime{registry: map[string]string{}, pullTime: time.Second}
			var images []string
			for i := range 10 {
				images = append(images, fmt.Sprintf("image-%d:1", i))
				rt.registry[images[i]] = "sha256:x"
			}
			cfg := config(rt)
			cfg.MaxParallelPulls = parallel
			m := New(cfg)
			var wg sync.WaitGroup
			for i, image := range images {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					if _, err := m.Ensure(t.Context(), Request{Image: image, Policy: v1.PullAlways}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			most := parallel
			if parallel == 0 {
				most = len(images)
			}
			if rt.mostPulling != most || !slices.Equal(rt.order, images) {
				t.Errorf("limit %d: %d at once, in the order %v", parallel, rt.mostPulling, rt.order)
			}
		})
	}
}

// TestNobodyRidesOnAnothersCredentials: pods with different passwords each get their own answer.
func TestNobodyRidesOnAnothersCredentials(t *testing.T) {
	for _, parallel := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			rt := &runtime{registry: map[string]string{"a:1": "sha256:a"}, locked: map[string][]string{"a:1": {"good"}}, pullTime: time.Second}
			cfg := config(rt)
			cfg.MaxParallelPulls = parallel
			cfg.Access = records(t, t.TempDir())
			cfg.Keyring = keyring{"tenant": {secretLogin("n", "s", "good")}, "twin": {secretLogin("m", "other", "good")}, "guest": {secretLogin("n", "t", "wrong")}, "nobody": {}}
			m := New(cfg)
			var wg sync.WaitGroup
			for pod, ok := range map[string]bool{"tenant": true, "twin": true, "guest": false, "nobody": false} {
				for range 3 {
					wg.Go(func() {
						_, err := m.Ensure(t.Context(), Request{Image: "a:1", Pod: named(pod)})
						if (err == nil) != ok {
							t.Errorf("%s: %v", pod, err)
						}
					})
				}
			}
			wg.Wait()
			if n := rt.pulls.Load(); n != 3 {
				t.Errorf("%d pulls, want one for each password and one without", n)
			}
		})
	}
}

// TestSharedWithAnyPatience lets callers come and give up at random: the answer is
// either the value or the own context's error, and at the end nothing runs.
func TestSharedWithAnyPatience(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type caller struct{ at, patience int }
		callers := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) caller {
			return caller{rapid.IntRange(0, 20).Draw(rt, "at"), rapid.IntRange(1, 20).Draw(rt, "patience")}
		}), 1, 20).Draw(rt, "callers")
		synctest.Test(t, func(t *testing.T) {
			var s shared[string, string]
			var running atomic.Int32
			var wg sync.WaitGroup
			for _, c := range callers {
				wg.Go(func() {
					time.Sleep(time.Duration(c.at) * time.Second)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(c.patience)*time.Second)
					defer cancel()
					ref, err := s.do(ctx, "key", func(ctx context.Context) (string, error) {
						running.Add(1)
						defer running.Add(-1)
						return "ref", sleep(ctx, 7*time.Second)
					})
					if err == nil && ref != "ref" || err != nil && !errors.Is(err, ctx.Err()) {
						t.Errorf("got %q, %v", ref, err)
					}
				})
			}
			wg.Wait()
			if running.Load() != 0 || len(s.calls) != 0 {
				t.Errorf("%d calls run, %d are remembered", running.Load(), len(s.calls))
			}
		})
	})
}

// TestAnyPodsAnyPasswords: at any time and in any order, a pod gets the image if and only
// if its own credentials open it, and the limit holds.
func TestAnyPodsAnyPasswords(t *testing.T) {
	passwords := []string{"", "wrong-one", "right-one", "right-two"}
	rapid.Check(t, func(rt *rapid.T) {
		type caller struct {
			at, password, image int
			always              bool
		}
		callers := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) caller {
			return caller{rapid.IntRange(0, 9).Draw(rt, "at"), rapid.IntRange(0, 3).Draw(rt, "password"), rapid.IntRange(0, 2).Draw(rt, "image"), rapid.Bool().Draw(rt, "always")}
		}), 1, 15).Draw(rt, "callers")
		parallel := rapid.IntRange(0, 2).Draw(rt, "parallel")
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			locked := []string{"right-one", "right-two"}
			node := &runtime{registry: map[string]string{"i0:1": "r0", "i1:1": "r1", "i2:1": "r2"}, locked: map[string][]string{"i0:1": locked, "i1:1": locked}, pullTime: 3 * time.Second, lookTime: time.Second}
			cfg := config(node)
			cfg.MaxParallelPulls, cfg.Access = parallel, records(t, dir)
			ring := keyring{}
			for i, password := range passwords {
				ring[fmt.Sprint(i)] = []credentials.Credential{secretLogin("n", fmt.Sprint(i), password)}
			}
			ring["0"] = nil
			cfg.Keyring = ring
			m := New(cfg)
			var wg sync.WaitGroup
			for _, c := range callers {
				wg.Go(func() {
					time.Sleep(time.Duration(c.at) * time.Second)
					r := Request{Image: fmt.Sprintf("i%d:1", c.image), Pod: named(fmt.Sprint(c.password))}
					if c.always {
						r.Policy = v1.PullAlways
					}
					_, err := m.Ensure(t.Context(), r)
					if ok := c.image == 2 || c.password >= 2; ok != (err == nil) {
						t.Errorf("%+v: %v", c, err)
					}
				})
			}
			wg.Wait()
			if parallel > 0 && node.mostPulling > parallel {
				t.Errorf("%d at once, want %d", node.mostPulling, parallel)
			}
			if left := m.Progress(t.Context()); len(left) != 0 {
				t.Errorf("left: %+v", left)
			}
		})
	})
}

// TestAnImageThatCameMeanwhile: who has waited in the queue for an image that is now open
// to all doesn't pull it again.
func TestAnImageThatCameMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{registry: map[string]string{"free:1": "sha256:free"}, pullTime: time.Second}
		cfg := config(rt)
		cfg.MaxParallelPulls, cfg.Access = 1, records(t, t.TempDir())
		cfg.Keyring = keyring{"other": {secretLogin("n", "s", "any")}}
		m := New(cfg)
		var wg sync.WaitGroup
		for i, pod := range []string{"first", "other"} {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				got, err := m.Ensure(t.Context(), Request{Image: "free:1", Pod: named(pod)})
				if err != nil || got.Ref != "sha256:free" || got.Pulled != (i == 0) {
					t.Errorf("%s: %+v, %v", pod, got, err)
				}
			})
		}
		wg.Wait()
		if rt.pulls.Load() != 1 {
			t.Errorf("%d pulls", rt.pulls.Load())
		}
	})
}
