package plan_test

import (
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// TestRetryWithRoomOnTheDisk: an action that failed for a full disk is retried once there is room, others aren't.
func TestRetryWithRoomOnTheDisk(t *testing.T) {
	failed := time.Unix(100, 0)
	for name, tc := range map[string]struct {
		failure pod.Failure
		freed   time.Time
		want    bool
	}{
		"room":          {pod.Failure{Disk: true}, failed.Add(1), true},
		"no room yet":   {pod.Failure{Disk: true}, failed.Add(-1), false},
		"another cause": {pod.Failure{}, failed.Add(1), false},
	} {
		a, retries := pod.Action{Kind: pod.StopSandbox, ID: "s"}, plan.Retries{}
		retries.Fail(a, failed, tc.failure)
		p := plan.New(failed.Add(2), nil, retries, map[string]plan.RetryTriggers{}, plan.RetryTriggers{Disk: tc.freed})
		if got := p.Do(a); got != tc.want {
			t.Errorf("%s: retried %v", name, got)
		}
	}
}
