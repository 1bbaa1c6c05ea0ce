// Package pace says when whoever looks after something looks again: when it is woken or a
// time has come, but not too soon after the look before.
package pace

import (
	"context"
	"time"
)

// Pace is for one goroutine that looks; Wake may be called by any.
type Pace struct {
	gap  time.Duration
	wake chan struct{}
}

// New returns a pace at which looks begin at least gap apart.
func New(gap time.Duration) Pace { return Pace{gap: gap, wake: make(chan struct{}, 1)} }

// Wake says that something has changed. It never blocks.
func (p Pace) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Await waits until another look is due after one that began at that time: since a Wake, or
// when it is next (zero for never). It is false if ctx ended.
func (p Pace) Await(ctx context.Context, began, next time.Time) bool {
	var due <-chan time.Time
	if !next.IsZero() {
		timer := time.NewTimer(time.Until(next))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-p.wake:
	case <-due:
	}
	soonest := time.NewTimer(time.Until(began.Add(p.gap)))
	defer soonest.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-soonest.C:
		return true
	}
}
