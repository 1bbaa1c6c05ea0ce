package rotate

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// start lets the rotator run beside the test, in a bubble, until its end.
func start(t *testing.T, r *Rotator) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	synctest.Wait()
}

func TestLimitsCountAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		start(t, h.rotator)
		h.print(15)
		time.Sleep(interval)
		synctest.Wait()
		h.expectFiles(`0\.log`)
		h.rotator.SetLimits(500, 4, 1, interval)
		synctest.Wait()
		h.expectFiles(`0\.log`, stamp)
		for range 4 {
			h.print(15)
			time.Sleep(interval)
			synctest.Wait()
		}
		h.expectFiles(`0\.log`, packed, packed, stamp)
		h.rotator.SetLimits(500, 2, 1, interval)
		synctest.Wait()
		h.expectFiles(`0\.log`, stamp)
		h.print(15)
		h.rotator.SetLimits(500, 3, 1, time.Hour)
		synctest.Wait()
		h.expectFiles(`0\.log`, packed, stamp)
		h.print(15)
		time.Sleep(longest)
		synctest.Wait()
		h.expectFiles(`0\.log`, packed, stamp)
		if n := h.rotations(); n != 7 {
			t.Errorf("rotated %d times, want 7: the interval of an hour is for logs that don't grow", n)
		}
		h.print(15)
		h.rotator.SetLimits(1000, 3, 1, time.Minute)
		time.Sleep(time.Minute)
		synctest.Wait()
		h.print(5)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := h.rotations(); n != 8 {
			t.Errorf("rotated %d times, want 8: by the new size and interval", n)
		}
		if len(h.messages) > 0 {
			t.Errorf("logged %v", h.messages)
		}
	})
}

func TestRotationIsTurnedOffAndOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		start(t, h.rotator)
		h.rotator.SetLimits(0, 4, 1, interval)
		h.print(100)
		time.Sleep(time.Hour)
		synctest.Wait()
		h.expectFiles(`0\.log`)
		h.rotator.SetLimits(1000, 4, 1, interval)
		synctest.Wait()
		h.expectFiles(`0\.log`, stamp)
		h.expectLines(100)
	})
}

// What waits for a worker when rotation is turned off isn't rotated any more.
func TestTurnedOffWithLogsInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, runtime := fiveLogs(t, 2)
		start(t, r)
		r.SetLimits(0, 5, 2, interval)
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, most := runtime.seen(); runtime.calls != 2 || most != 2 {
			t.Errorf("%d logs were rotated, %d at once, want only those that were begun", runtime.calls, most)
		}
	})
}

func TestWorkersComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, runtime := fiveLogs(t, 1)
		start(t, r)
		expect := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			if now, _ := runtime.seen(); now != want {
				t.Errorf("%s: %d at once, want %d", when, now, want)
			}
		}
		expect("at first", 1)
		r.SetLimits(1000, 5, 3, interval)
		expect("more workers", 3)
		r.SetLimits(1000, 5, 100, interval)
		expect("as many as there are logs", 5)
		r.SetLimits(1000, 5, 2, interval)
		expect("fewer, but none is stopped", 5)
		time.Sleep(3*interval + time.Second)
		expect("until they have ended", 0)
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, most := runtime.seen(); most != 2 || runtime.twice {
			t.Errorf("later %d at once, two on one container: %v", most, runtime.twice)
		}
	})
}

// For the race detector: everything happens at once.
func TestLimitsChangeAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, runtime := fiveLogs(t, 1)
		start(t, r)
		var wg sync.WaitGroup
		for n := range 4 {
			wg.Go(func() {
				for i := range 100 {
					r.SetLimits(int64(i%3*500), 2+i%4, 1+(n+i)%5, time.Duration(1+i%7)*time.Second)
					time.Sleep(time.Duration(n*i) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		r.SetLimits(1000, 5, 2, interval)
		time.Sleep(time.Hour)
		runtime.seen()
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, most := runtime.seen(); most == 0 || most > 2 || runtime.twice {
			t.Errorf("in the end %d at once, two on one container: %v", most, runtime.twice)
		}
	})
}
