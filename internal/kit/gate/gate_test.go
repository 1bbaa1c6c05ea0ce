package gate

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHigherPriorityFirstThenArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(1)
		hold, err := g.Acquire(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		for _, w := range []struct {
			name     string
			priority int
		}{{"low-1", 1}, {"high-1", 5}, {"low-2", 1}, {"high-2", 5}, {"lowest", -3}} {
			go func() {
				release, err := g.Acquire(t.Context(), w.priority)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, w.name)
				mu.Unlock()
				release()
			}()
			synctest.Wait() // so that they arrive in this order
		}
		if got := waitersAt(g); got != 5 {
			t.Errorf("%d are waiting, want 5", got)
		}
		hold()
		synctest.Wait()
		want := []string{"high-1", "high-2", "low-1", "low-2", "lowest"}
		if !slices.Equal(order, want) {
			t.Errorf("admitted %v, want %v", order, want)
		}
	})
}

func TestReleaseTwiceGivesOnePlaceBack(t *testing.T) {
	g := New(1)
	release, err := g.Acquire(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	release()
	release()
	if _, err := g.Acquire(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := g.Acquire(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second holder got in: %v", err)
	}
}

func TestEndedContextNeverGetsAPlace(t *testing.T) {
	g := New(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Acquire(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if _, err := g.Acquire(t.Context(), 0); err != nil {
		t.Errorf("the place was lost: %v", err)
	}
}

// TestAnySchedule runs random callers that hold for random times and give up at
// random times, in virtual time: never too many hold at once, everyone gets an
// answer, and no place is lost or made.
func TestAnySchedule(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		places := rapid.IntRange(1, 4).Draw(rt, "places")
		type caller struct{ at, hold, patience, priority int }
		callers := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) caller {
			return caller{
				at:       rapid.IntRange(0, 20).Draw(rt, "at"),
				hold:     rapid.IntRange(0, 10).Draw(rt, "hold"),
				patience: rapid.IntRange(1, 30).Draw(rt, "patience"),
				priority: rapid.IntRange(0, 2).Draw(rt, "priority"),
			}
		}), 1, 30).Draw(rt, "callers")

		synctest.Test(t, func(t *testing.T) {
			g := New(places)
			var holding atomic.Int32
			var wg sync.WaitGroup
			for _, c := range callers {
				wg.Go(func() {
					time.Sleep(time.Duration(c.at) * time.Second)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(c.patience)*time.Second)
					defer cancel()
					release, err := g.Acquire(ctx, c.priority)
					if err != nil {
						return
					}
					if n := int(holding.Add(1)); n > places {
						t.Errorf("%d hold one of %d places at once", n, places)
					}
					time.Sleep(time.Duration(c.hold) * time.Second)
					holding.Add(-1)
					release()
				})
			}
			wg.Wait()
			if n := waitersAt(g); n != 0 {
				t.Errorf("%d are still in line", n)
			}
			for range places {
				if _, err := g.Acquire(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := g.Acquire(ctx, 0); err == nil {
				t.Error("a place appeared from nowhere")
			}
		})
	})
}

// TestHandOverRacesWithGivingUp makes real goroutines give up at the very moment
// they are admitted: a place lost there would hang the last caller.
func TestHandOverRacesWithGivingUp(t *testing.T) {
	g := New(1)
	for range 2000 {
		hold, err := g.Acquire(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if release, err := g.Acquire(ctx, 1); err == nil {
					release()
				}
			})
		}
		wg.Go(cancel)
		hold()
		wg.Wait()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := g.Acquire(ctx, 0); err != nil {
		t.Fatalf("the place was lost: %v", err)
	}
}

func BenchmarkUncontended(b *testing.B) {
	g := New(1)
	for b.Loop() {
		release, err := g.Acquire(b.Context(), 0)
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
}

// waitersAt is the number of callers waiting for a place.
func waitersAt(g *Gate) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

func TestResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(3)
		var releases []func()
		for range 3 {
			release, err := g.Acquire(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			releases = append(releases, release)
		}
		var admitted atomic.Int32
		for range 3 {
			go func() {
				if _, err := g.Acquire(t.Context(), 0); err == nil {
					admitted.Add(1)
				}
			}()
		}
		want := func(what string, n int32) {
			t.Helper()
			synctest.Wait()
			if got := admitted.Load(); got != n {
				t.Errorf("%s: %d admitted, want %d", what, got, n)
			}
		}
		g.Resize(0)
		releases[0]()
		releases[1]()
		want("a smaller gate has too many holders", 0)
		releases[2]()
		want("its last holder has gone", 1)
		g.Resize(3)
		want("a larger gate", 3)
	})
}

// TestResizeAtAnyTime: whatever the sizes, and whoever gives up, a gate never admits beyond its size of that time, and
// loses no place.
func TestResizeAtAnyTime(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type caller struct{ at, hold, patience int }
		callers := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) caller {
			return caller{rapid.IntRange(0, 20).Draw(rt, "at"), rapid.IntRange(0, 10).Draw(rt, "hold"), rapid.IntRange(1, 30).Draw(rt, "patience")}
		}), 1, 20).Draw(rt, "callers")
		sizes := rapid.SliceOfN(rapid.IntRange(1, 4), 1, 10).Draw(rt, "sizes")
		synctest.Test(t, func(t *testing.T) {
			g := New(sizes[0])
			var holding, size atomic.Int32
			size.Store(int32(sizes[0]))
			var wg sync.WaitGroup
			for _, c := range callers {
				wg.Go(func() {
					time.Sleep(time.Duration(c.at) * time.Second)
					ctx, done := context.WithTimeout(t.Context(), time.Duration(c.patience)*time.Second)
					defer done()
					release, err := g.Acquire(ctx, 0)
					if err != nil {
						return
					}
					if n := holding.Add(1); n > size.Load() {
						t.Errorf("%d hold a place of %d", n, size.Load())
					}
					time.Sleep(time.Duration(c.hold) * time.Second)
					holding.Add(-1)
					release()
				})
			}
			for _, n := range sizes {
				time.Sleep(2501 * time.Millisecond) // never when a caller comes or goes
				size.Store(int32(n))
				g.Resize(n)
			}
			wg.Wait()
			if g.free != g.size || len(g.waiting) != 0 {
				t.Errorf("%d of %d places are free in the end, %d wait", g.free, g.size, len(g.waiting))
			}
		})
	})
}
