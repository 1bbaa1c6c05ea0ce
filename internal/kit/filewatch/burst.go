package filewatch

import "time"

// burst is a series of changes that are reported together.
type burst struct {
	settle      time.Duration
	first, last time.Time
	// held is the time before which the burst is never reported. pause is the length of the last postponement.
	held  time.Time
	pause time.Duration
}

func (b *burst) add(now time.Time) {
	if b.first.IsZero() {
		b.first = now
	}
	b.last = now
}

// postpone delays the report, by a longer time on each call.
func (b *burst) postpone(now time.Time) {
	b.pause = min(max(2*b.pause, b.settle), settleAtMost)
	b.held = now.Add(b.pause)
}

func (b *burst) over() { *b = burst{settle: b.settle} }

// due is when to report the burst; zero if nothing has changed.
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
