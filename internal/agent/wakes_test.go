package agent

import (
	"testing"
	"time"
)

// What waits for objects, or images, is woken by later changes also after the clock was set back.
func TestMomentOnlyMovesForward(t *testing.T) {
	var m moment
	m.now()
	if age := time.Since(m.time()); age < 0 || age > time.Minute {
		t.Errorf("it was %v ago", age)
	}
	m.nanoseconds.Store(time.Now().Add(time.Hour).UnixNano()) // it was later then
	for range 3 {
		before := m.time()
		if m.now(); !m.time().After(before) {
			t.Errorf("%v came after %v", m.time(), before)
		}
	}
}
