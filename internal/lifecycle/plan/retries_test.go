package plan_test

import (
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// TestRetryAtATrigger: an action that failed for a full disk is retried once there is room, one that the runtime didn't
// answer once that answers again, others aren't.
func TestRetryAtATrigger(t *testing.T) {
	failed, before := time.Unix(100, 0), time.Unix(50, 0)
	room := plan.RetryTriggers{Disk: before.Add(1), Runtime: before}
	answers := plan.RetryTriggers{Disk: before, Runtime: before.Add(1)}
	for name, tc := range map[string]struct {
		failure  pod.Failure
		triggers plan.RetryTriggers
		want     bool
	}{
		"room, and the clock was set back": {pod.Failure{Disk: true}, room, true},
		"no room since the last try":       {pod.Failure{Disk: true}, answers, false},
		"the runtime answers":              {pod.Failure{Unanswered: true}, answers, true},
		"it doesn't answer":                {pod.Failure{Unanswered: true}, room, false},
		"another cause, and room":          {pod.Failure{}, room, false},
		"another cause, and an answer":     {pod.Failure{}, answers, false},
	} {
		a, retries := pod.Action{Kind: pod.StopSandbox, ID: "s"}, plan.Retries{}
		next := func(triggers plan.RetryTriggers) *plan.Plan {
			return plan.New(failed.Add(2), nil, retries, map[string]plan.RetryTriggers{}, triggers)
		}
		next(plan.RetryTriggers{Disk: before, Runtime: before}).Failed(a, failed, tc.failure)
		p := next(tc.triggers)
		if got := p.Do(a); got != tc.want {
			t.Errorf("%s: retried %v", name, got)
		}
	}
}

// TestBackoffOnAFullDisk: an action that fails for a full disk is retried once a minute at last, others each half minute.
func TestBackoffOnAFullDisk(t *testing.T) {
	failed := time.Unix(100, 0)
	for disk, want := range map[bool]time.Duration{true: time.Minute, false: 30 * time.Second} {
		p := plan.New(failed, nil, plan.Retries{}, map[string]plan.RetryTriggers{}, plan.RetryTriggers{})
		a, last := pod.Action{Kind: pod.CreateContainer, Container: "c"}, time.Duration(0)
		for n := range 20 {
			wait := p.Failed(a, failed, pod.Failure{Disk: disk}).At.Sub(failed)
			if n == 0 && wait != time.Second || wait < last {
				t.Errorf("disk %v: after failure %d it waits %s, after the one before %s", disk, n, wait, last)
			}
			last = wait
		}
		if last != want {
			t.Errorf("disk %v: at last it waits %s, want %s", disk, last, want)
		}
	}
}

// TestBackoffOfAVolume: a container that waits for a volume of its own is retried as a pod is that waits for one, whatever
// becomes of images, and at once after an edit.
func TestBackoffOfAVolume(t *testing.T) {
	failed, a := time.Unix(100, 0), pod.Action{Kind: pod.EnsureImage, Container: "c", Image: "a:1"}
	for reason, want := range map[pod.Reason]time.Duration{
		pod.ReasonFailedMount: 1 * time.Second, pod.ReasonFailedMapVolume: 1 * time.Second, pod.ReasonErrImagePull: 10 * time.Second,
	} {
		ofVolume := reason != pod.ReasonErrImagePull
		retries := plan.Retries{}
		p := plan.New(failed, nil, retries, map[string]plan.RetryTriggers{}, plan.RetryTriggers{})
		if wait := p.Failed(a, failed, pod.Failure{Reason: reason}).At.Sub(failed); wait != want {
			t.Errorf("%s: it waits %s, want %s", reason, wait, want)
		}
		p = plan.New(failed, nil, retries, map[string]plan.RetryTriggers{}, plan.RetryTriggers{Images: failed})
		if _, waits := p.Waits(a); waits != ofVolume {
			t.Errorf("%s: another image is there: it waits %v", reason, waits)
		}
		retries.ForgetSpec([]pod.Action{a})
		if _, waits := p.Retrying(a); waits == ofVolume {
			t.Errorf("%s: the spec was edited: its failure counts %v", reason, waits)
		}
	}
}
