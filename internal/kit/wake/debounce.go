package wake

import (
	"context"
	"time"
)

// Debounce says when one goroutine looks again: when it is woken or a time has come, but
// not too soon after its look before.
type Debounce struct {
	Slot
	gap time.Duration
}

// NewDebounce returns a Debounce with which looks begin at least gap apart.
func NewDebounce(gap time.Duration) Debounce { return Debounce{Slot: NewSlot(), gap: gap} }

// Await waits until another look is due after one that began at that time: since a Wake, or
// when it is next (zero for never). It is false if ctx ended.
func (d Debounce) Await(ctx context.Context, began, next time.Time) bool {
	var due <-chan time.Time
	if !next.IsZero() {
		timer := time.NewTimer(time.Until(next))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-d.Slot:
	case <-due:
	}
	soonest := time.NewTimer(time.Until(began.Add(d.gap)))
	defer soonest.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-soonest.C:
		return true
	}
}
