package worker

import (
	"testing"
	"time"
)

// TestALoopThatStandsStill: two periods without a turn are too long, and never less than 10 s.
func TestALoopThatStandsStill(t *testing.T) {
	begun := time.Now()
	for _, c := range []struct {
		resync, still time.Duration
		healthy       bool
	}{
		{time.Minute, 2 * time.Minute, true},
		{time.Minute, 2*time.Minute + time.Second, false},
		{time.Second, 10 * time.Second, true},
		{time.Second, 11 * time.Second, false},
	} {
		p := New(NewWaker(), Config{Resync: c.resync})
		if err := p.Healthy(begun.Add(time.Hour)); err != nil {
			t.Errorf("before it has begun: %v", err)
		}
		p.heartbeat = begun
		if err := p.Healthy(begun.Add(c.still)); (err == nil) != c.healthy {
			t.Errorf("after %v with a resync each %v: %v", c.still, c.resync, err)
		}
	}
}

// TestWakingNobody: what is woken before there is a worker isn't lost.
func TestWakingNobody(t *testing.T) {
	w := NewWaker()
	for range 3 {
		w.Wake("a")
		w.WakeAll()
		w.WakeAwaiting()
	}
	p := New(w, Config{})
	select {
	case <-p.look:
	default:
		t.Error("the pool that is built after it doesn't look")
	}
}
