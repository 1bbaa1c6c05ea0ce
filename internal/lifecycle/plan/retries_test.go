package plan_test

import (
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// TestRetryWithRoomOnTheDisk: an action that failed for a full disk is retried once there is room, others aren't.
func TestRetryWithRoomOnTheDisk(t *testing.T) {
	failed, freed := time.Unix(100, 0), time.Unix(50, 0)
	for name, tc := range map[string]struct {
		failure pod.Failure
		freed   time.Time
		want    bool
	}{
		"room, and the clock was set back": {pod.Failure{Disk: true}, freed.Add(1), true},
		"no room since the last try":       {pod.Failure{Disk: true}, freed, false},
		"another cause":                    {pod.Failure{}, freed.Add(1), false},
	} {
		a, retries := pod.Action{Kind: pod.StopSandbox, ID: "s"}, plan.Retries{}
		next := func(freed time.Time) *plan.Plan {
			return plan.New(failed.Add(2), nil, retries, map[string]plan.RetryTriggers{}, plan.RetryTriggers{Disk: freed})
		}
		next(freed).Failed(a, failed, tc.failure)
		p := next(tc.freed)
		if got := p.Do(a); got != tc.want {
			t.Errorf("%s: retried %v", name, got)
		}
	}
}
