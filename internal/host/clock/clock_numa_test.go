//go:build numa

package clock

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// counted counts the calls of await.
type counted struct {
	*timer
	waits atomic.Int32
}

func (c *counted) await() error {
	c.waits.Add(1)
	return c.timer.await()
}

// TestSetClock sets the clock of the machine, which has to be test/numa's: the kernel reports each step, with its size.
func TestSetClock(t *testing.T) {
	steps, slept := make(chan pod.ClockStep, 10), make(chan struct{}, 10)
	ctx, cancel := context.WithCancel(t.Context())
	c, done := New(), make(chan error)
	real, err := openSource()
	if err != nil {
		t.Fatal(err)
	}
	s := &counted{timer: real}
	go func() {
		done <- c.follow(ctx, s, func(s pod.ClockStep) { steps <- s }, func() { slept <- struct{}{} })
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(steps) > 0 || len(slept) > 0 {
			t.Errorf("%d more steps, %d suspensions", len(steps), len(slept))
		}
	}()
	set := func(to time.Time) {
		t.Helper()
		tv := unix.NsecToTimeval(to.UnixNano())
		if err := unix.Settimeofday(&tv); err != nil {
			t.Fatal(err)
		}
	}
	now := func() time.Time { return time.Now().Round(0) }
	for _, by := range []time.Duration{time.Second, -time.Second} {
		set(now().Add(by))
	}
	for _, to := range []time.Time{now().Add(time.Hour), now(), time.Unix(86400, 0), time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC), now()} {
		before := now()
		set(to)
		select {
		case s := <-steps:
			if off := s.By - to.Sub(before); off.Abs() > time.Second {
				t.Errorf("the step from %v to %v is told as one of %v", before, to, s.By)
			}
			if off := s.From.Sub(before); off.Abs() > time.Second {
				t.Errorf("the step from %v is told as one from %v", before, s.From)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("the step to %v isn't told", to)
		}
	}
	if n := len(c.Steps()); n != 5 {
		t.Errorf("%d steps", n)
	}
	if n := s.waits.Load(); n > 20 {
		t.Errorf("it waited %d times for 7 changes of the clock", n)
	}
}
