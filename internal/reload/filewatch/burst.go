package filewatch

import "time"

// burst is a number of changes that are told as one.
type burst struct {
	settle      time.Duration
	first, last time.Time
}

func (b *burst) add(now time.Time) {
	if b.first.IsZero() {
		b.first = now
	}
	b.last = now
}

func (b *burst) over() { b.first = time.Time{} }

// due is when it is to be told; zero if nothing happened.
func (b *burst) due() time.Time {
	if b.first.IsZero() {
		return time.Time{}
	}
	due := b.last.Add(b.settle)
	if latest := b.first.Add(settleAtMost); latest.Before(due) {
		return latest
	}
	return due
}
