package pod_test

import (
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/pod"
)

func TestOnClock(t *testing.T) {
	at := func(s string) time.Time {
		got, err := time.Parse("2006-01-02 15:04:05", s)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	forward := []pod.ClockStep{{From: at("2026-11-29 12:00:00"), By: time.Hour}}
	back := []pod.ClockStep{{From: at("2026-11-29 12:00:00"), By: -time.Hour}}
	century := at("2099-01-01 00:00:00").Sub(at("2026-11-29 12:00:00"))
	thereAndBack := []pod.ClockStep{{From: at("2026-11-29 12:00:00"), By: century},
		{From: at("2099-01-01 00:00:05"), By: -century}}
	for _, c := range []struct {
		name         string
		steps        []pod.ClockStep
		now, t, want string
	}{
		{"no step", nil, "2026-11-29 12:00:00", "2026-11-29 11:00:00", "2026-11-29 11:00:00"},
		{"before a step forward", forward, "2026-11-29 13:00:10", "2026-11-29 11:59:50", "2026-11-29 12:59:50"},
		{"after it", forward, "2026-11-29 13:00:10", "2026-11-29 13:00:05", "2026-11-29 13:00:05"},
		{"that the clock never showed", forward, "2026-11-29 13:00:10", "2026-11-29 12:30:00", "2026-11-29 12:30:00"},
		{"before a step back", back, "2026-11-29 11:00:10", "2026-11-29 11:59:50", "2026-11-29 10:59:50"},
		{"long before it", back, "2026-11-29 11:00:10", "2026-11-29 10:30:00", "2026-11-29 09:30:00"},
		{"after it", back, "2026-11-29 11:00:10", "2026-11-29 11:00:05", "2026-11-29 11:00:05"},
		{"just after the decision", back, "2026-11-29 11:00:10", "2026-11-29 11:00:11", "2026-11-29 11:00:11"},
		{"in the future", back, "2026-11-29 11:00:10", "2026-11-29 12:30:00", "2026-11-29 12:30:00"},
		{"before 2099 and back", thereAndBack, "2026-11-29 12:00:10", "2026-11-29 11:59:50", "2026-11-29 11:59:50"},
		{"in 2099", thereAndBack, "2026-11-29 12:00:10", "2099-01-01 00:00:02", "2026-11-29 12:00:02"},
		{"after 2099", thereAndBack, "2026-11-29 12:00:10", "2026-11-29 12:00:07", "2026-11-29 12:00:07"},
	} {
		if got := pod.OnClock(at(c.t), at(c.now), c.steps); !got.Equal(at(c.want)) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if now := time.Now(); pod.OnClock(now, now, []pod.ClockStep{{From: now.Add(-time.Minute).Round(0), By: time.Hour}}) != now {
		t.Error("a time with a monotonic reading changed")
	}
	if got := pod.OnClock(time.Time{}, at("2026-11-29 11:00:10"), back); !got.IsZero() {
		t.Errorf("a zero time became %v", got)
	}
}
