package agent

import (
	"sync/atomic"
	"time"
)

// moment is when something happened last. It moves strictly forward, though the clock may
// be set back: whoever waits for it compares it with what it was before. Safe for concurrent use.
type moment struct{ nanoseconds atomic.Int64 }

// now says that it happened.
func (m *moment) now() {
	for {
		before := m.nanoseconds.Load()
		if m.nanoseconds.CompareAndSwap(before, max(before+1, time.Now().UnixNano())) {
			return
		}
	}
}

func (m *moment) time() time.Time { return time.Unix(0, m.nanoseconds.Load()) }
