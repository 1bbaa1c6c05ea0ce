package wake

import (
	"context"
	"time"
)

// Debounce schedules the checks of one goroutine: a check is due when the goroutine is woken or at a given time, but
// not too soon after the previous check.
type Debounce struct {
	Slot
	gap time.Duration
}

// NewDebounce returns a Debounce with which checks begin at least gap apart.
func NewDebounce(gap time.Duration) Debounce { return Debounce{Slot: NewSlot(), gap: gap} }

// Await waits until the next check is due: after a Wake or at the time next (zero for never), but at least gap after
// began, the begin of the previous check. It returns false if ctx ended.
func (d Debounce) Await(ctx context.Context, began, next time.Time) bool {
	var due <-chan time.Time
	if !next.IsZero() {
		due = time.After(time.Until(next))
	}
	select {
	case <-ctx.Done():
		return false
	case <-d.Slot:
	case <-due:
	}
	return Sleep(ctx, time.Until(began.Add(d.gap)))
}

// Sleep waits for the duration d, and returns false if ctx ends before.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
