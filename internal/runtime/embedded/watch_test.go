package embedded

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded/child"
)

// A silent containerd is hung after a minute in which it stands still, or five in which it works; never while it answers,
// nor while a disk keeps it.
func TestWhenContainerdIsHung(t *testing.T) {
	// cpu is how much of a CPU it uses, blocked says when the kernel holds it.
	for name, c := range map[string]struct {
		cpu     float64
		blocked func(time.Duration) bool
		answers time.Duration // 0 for never
		want    time.Duration // when it counts as hung; 0 for never
	}{
		"stopped":                          {want: time.Minute},
		"as good as stopped":               {cpu: 0.002, want: time.Minute},
		"stopped, and goes on":             {answers: 59 * time.Second},
		"slow on a busy machine":           {cpu: 0.03, answers: 4*time.Minute + 50*time.Second},
		"in a loop":                        {cpu: 1, want: 5 * time.Minute},
		"the disk doesn't answer":          {blocked: func(time.Duration) bool { return true }},
		"the disk is back, and it stopped": {blocked: func(d time.Duration) bool { return d <= time.Hour }, want: time.Hour + time.Minute},
		"it answers after an hour":         {blocked: func(d time.Duration) bool { return d < time.Hour }, answers: time.Hour + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
				defer cancel()
				answered := make(chan struct{})
				if c.answers > 0 {
					time.AfterFunc(c.answers, func() { close(answered) })
				}
				err := listen(ctx, answered, func() child.Activity {
					d := time.Since(began)
					return child.Activity{CPU: time.Duration(c.cpu * float64(d)), Blocked: c.blocked != nil && c.blocked(d)}
				})
				took := time.Since(began)
				switch {
				case c.want > 0:
					if err == nil || !strings.Contains(err.Error(), "it has answered nothing for") || took != c.want {
						t.Errorf("after %s: %v, want it to be hung after %s", took, err, c.want)
					}
				case c.answers > 0:
					if err != nil || took != c.answers {
						t.Errorf("after %s: %v, want an answer after %s", took, err, c.answers)
					}
				case !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("after %s: %v", took, err)
				}
			})
		})
	}
}

// While the agent stood still nobody looked at what containerd did.
func TestATimeWithoutTheAgentDoesntCount(t *testing.T) {
	var s silence
	if s.add(24*time.Hour, child.Activity{}) {
		t.Error("a machine that wakes up kills containerd")
	}
	for range stillFor/lookEvery - 2 {
		if s.add(lookEvery, child.Activity{}) {
			t.Error("too soon")
		}
	}
	if !s.add(lookEvery, child.Activity{}) {
		t.Error("it isn't hung after a minute")
	}
}
