package deadgc

import (
	"context"
	"time"
)

// every is how often remains are looked through at most ("Garbage Collection": "The kubelet
// performs garbage collection [...] on unused containers every minute"), and for how
// long logs have to be nobody's before they go.
const every = time.Minute

// pace says when to look again: when something has changed, but not too often.
type pace struct {
	wake chan struct{}
}

func newPace() pace { return pace{wake: make(chan struct{}, 1)} }

// Wake says that something has changed. It never blocks.
func (p pace) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// await waits until there is something to look for, once every minute at most: since a Wake,
// or when it is next (zero for never). It is false if ctx ended.
func (p pace) await(ctx context.Context, began, next time.Time) bool {
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
	soonest := time.NewTimer(time.Until(began.Add(every)))
	defer soonest.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-soonest.C:
		return true
	}
}
