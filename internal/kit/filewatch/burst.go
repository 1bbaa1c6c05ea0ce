package filewatch

import "time"

// burst is a number of changes that are reported as one.
type burst struct {
	settle      time.Duration
	first, last time.Time
	// held is until when it isn't reported in any case, pause how long it was put off for last.
	held  time.Time
	pause time.Duration
}

func (b *burst) add(now time.Time) {
	if b.first.IsZero() {
		b.first = now
	}
	b.last = now
}

// postpone puts it off, for longer each time.
func (b *burst) postpone(now time.Time) {
	b.pause = min(max(2*b.pause, b.settle), settleAtMost)
	b.held = now.Add(b.pause)
}

func (b *burst) over() { *b = burst{settle: b.settle} }

// due is when it is to be reported; zero if nothing happened.
func (b *burst) due() time.Time {
	if b.first.IsZero() {
		return time.Time{}
	}
	due := b.last.Add(b.settle)
	if latest := b.first.Add(settleAtMost); latest.Before(due) {
		due = latest
	}
	if due.Before(b.held) {
		return b.held
	}
	return due
}
