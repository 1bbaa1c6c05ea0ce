package rotate

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
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

// noWrites is a kernel that doesn't report writes.
type noWrites struct{}

func (noWrites) Run(ctx context.Context)  { <-ctx.Done() }
func (noWrites) Watch(string) error       { return errors.New("no watches are left") }
func (noWrites) Written() <-chan []string { return nil }

// writes is a kernel that reports a write when the test says so.
type writes struct {
	noWrites
	mu      sync.Mutex
	watched []string
	written chan []string
}

func (w *writes) Watch(path string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watched = append(w.watched, path)
	return nil
}

func (w *writes) Written() <-chan []string { return w.written }

func TestQuietLogsCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, w := newHouse(t), &writes{written: make(chan []string)}
		h.rotator.writes = w
		start(t, h.rotator)
		time.Sleep(longest) // the first look tidies up
		synctest.Wait()
		if len(w.watched) != 1 || w.watched[0] != h.path {
			t.Fatalf("watched: %v, want %s", w.watched, h.path)
		}
		before := h.running.looks()
		time.Sleep(time.Hour)
		if n := h.running.looks() - before; n > int(time.Hour/interval) {
			t.Errorf("looked %d times in an hour, want once in %s", n, interval)
		}
		if len(w.watched) != 1 {
			t.Errorf("a quiet log was watched %d times", len(w.watched))
		}
		// A write is looked at within a second, and the new file is watched once it is quiet.
		for i := range 4 {
			h.print(30)
			w.written <- []string{h.path}
			time.Sleep(3 * longest / 2)
			synctest.Wait()
			if n := h.rotations(); n != i+1 {
				t.Fatalf("rotated %d times after %d floods", n, i+1)
			}
			time.Sleep(interval)
			synctest.Wait()
			if n := len(w.watched); n != i+2 {
				t.Fatalf("watched %d times after %d floods: each new file once", n, i+1)
			}
		}
		// Other containers may run: that is looked at within a second, however often it is said.
		before = h.running.looks()
		for range 100 {
			h.rotator.Wake()
			time.Sleep(longest / 10)
		}
		if n := h.running.looks() - before; n < 9 || n > 11 {
			t.Errorf("looked %d times in 10 s of changes, want about 10", n)
		}
	})
}

// TestWriteIsNoticed has the real kernel report the first write.
func TestWriteIsNoticed(t *testing.T) {
	h := newHouse(t)
	reopened := make(chan struct{}, 1)
	h.rotator = New(Config{Root: h.root, MaxSize: 1000, MaxFiles: 4, Interval: time.Hour, Workers: 1}, h.running, reopener{h, reopened}, filewatch.New(filewatch.Every, logr.Discard()).NewFirstWrites(), logr.Discard())
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- h.rotator.Run(ctx) }()
	h.print(30)
	select {
	case <-reopened:
	case <-time.After(time.Minute):
		t.Error("the log wasn't rotated")
	}
	stop()
	<-done
}

// reopener says when the log was reopened.
type reopener struct {
	*house
	reopened chan<- struct{}
}

func (r reopener) ReopenContainerLog(ctx context.Context, id string) error {
	err := r.house.ReopenContainerLog(ctx, id)
	r.reopened <- struct{}{}
	return err
}

func TestLimitsCountAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		start(t, h.rotator)
		h.print(15)
		time.Sleep(interval)
		synctest.Wait()
		h.expectFiles(`0\.log`)
		h.rotator.SetLimits(Config{MaxSize: 500, MaxFiles: 4, Workers: 1, Interval: interval})
		synctest.Wait()
		h.expectFiles(`0\.log`, stamp)
		for range 4 {
			h.print(15)
			time.Sleep(interval)
			synctest.Wait()
		}
		h.expectFiles(`0\.log`, packed, packed, stamp)
		h.rotator.SetLimits(Config{MaxSize: 500, MaxFiles: 2, Workers: 1, Interval: interval})
		synctest.Wait()
		h.expectFiles(`0\.log`, stamp)
		h.print(15)
		h.rotator.SetLimits(Config{MaxSize: 500, MaxFiles: 3, Workers: 1, Interval: time.Hour})
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
		h.rotator.SetLimits(Config{MaxSize: 1000, MaxFiles: 3, Workers: 1, Interval: time.Minute})
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
		h.rotator.SetLimits(Config{MaxSize: 0, MaxFiles: 4, Workers: 1, Interval: interval})
		h.print(100)
		time.Sleep(time.Hour)
		synctest.Wait()
		h.expectFiles(`0\.log`)
		h.rotator.SetLimits(Config{MaxSize: 1000, MaxFiles: 4, Workers: 1, Interval: interval})
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
		r.SetLimits(Config{MaxSize: 0, MaxFiles: 5, Workers: 2, Interval: interval})
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
		r.SetLimits(Config{MaxSize: 1000, MaxFiles: 5, Workers: 3, Interval: interval})
		expect("more workers", 3)
		r.SetLimits(Config{MaxSize: 1000, MaxFiles: 5, Workers: 100, Interval: interval})
		expect("as many as there are logs", 5)
		r.SetLimits(Config{MaxSize: 1000, MaxFiles: 5, Workers: 2, Interval: interval})
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
					r.SetLimits(Config{MaxSize: int64(i % 3 * 500), MaxFiles: 2 + i%4, Workers: 1 + (n+i)%5, Interval: time.Duration(1+i%7) * time.Second})
					time.Sleep(time.Duration(n*i) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		r.SetLimits(Config{MaxSize: 1000, MaxFiles: 5, Workers: 2, Interval: interval})
		time.Sleep(time.Hour)
		runtime.seen()
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, most := runtime.seen(); most == 0 || most > 2 || runtime.twice {
			t.Errorf("in the end %d at once, two on one container: %v", most, runtime.twice)
		}
	})
}
