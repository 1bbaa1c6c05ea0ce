package probe

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
)

// phase says where an entry is.
type phase int

const (
	// waiting: it has a deadline in the heap.
	waiting phase = iota
	// queued: it is due, and waits in its pod's queue.
	queued
	// assigned: a worker has it, and hasn't begun yet.
	assigned
	// running: a try is under way.
	running
	// held: it has a result after which it isn't tried again.
	held
)

// entry is one probe of one container instance. The manager's lock guards it.
type entry struct {
	// place is its index in the heap of deadlines while it waits, in its queue while queued.
	place
	key       pod.Probe
	owner     *subject
	container *v1.Container
	spec      *v1.Probe

	phase  phase
	wanted bool
	// since and last are the first and the last of its pod's rounds in which it was wanted.
	since, last uint32
	// due is when the next try should begin, or the one under way should have.
	due time.Duration
	// queue is where it is queued.
	queue *queue
	// cancel ends the try under way.
	cancel context.CancelFunc

	// run counts the last tries in a row with the same outcome, lastOK.
	run    int32
	lastOK bool
	result *pod.ProbeResult
	// failures are those since the last success; nil if there are none.
	failures *pod.ProbeFailures
}

// period is the time from one try to the next.
func period(spec *v1.Probe) time.Duration {
	return pod.Seconds(max(spec.PeriodSeconds, 1))
}

// count takes in the outcome of a try and reports whether the result changed.
func (e *entry) count(out handler.Outcome) bool {
	if out.State == handler.Unknown {
		return false
	}
	ok := out.State != handler.Failure
	e.note(ok, out.Message)
	if e.run == 0 || e.lastOK != ok {
		e.run, e.lastOK = 0, ok
	}
	threshold := e.spec.FailureThreshold
	if ok {
		threshold = e.spec.SuccessThreshold
	}
	if threshold = max(threshold, 1); e.run < threshold {
		e.run++
	}
	if e.run < threshold || e.result != nil && e.result.OK == ok {
		return false
	}
	e.result = &pod.ProbeResult{Probe: e.key, OK: ok, At: time.Now()}
	if !ok {
		e.result.Message = e.failures.Message
	}
	return true
}

// note counts failures.
func (e *entry) note(ok bool, message string) {
	if ok {
		e.failures = nil
		return
	}
	now := time.Now()
	if e.failures == nil {
		e.failures = &pod.ProbeFailures{Probe: e.key, Since: now}
	}
	e.failures.Count++
	e.failures.Last, e.failures.Message = now, bounded(message)
}

// final reports whether the result is one after which trying again is of no use: a
// container that has started stays started, and one that failed gets killed.
func (e *entry) final() bool {
	if e.result == nil {
		return false
	}
	return e.key.Kind == pod.ProbeStartup || e.key.Kind == pod.ProbeLiveness && !e.result.OK
}

// after returns when the next try is due, following one that took from start to
// end. Tries that were missed meanwhile aren't made up for, and the next one keeps to
// the probe's schedule, so that probes that were delayed together don't stay together.
func (e *entry) after(start, end time.Duration) time.Duration {
	return max(end, e.scheduledAfter(start))
}

// scheduledAfter returns the first of its deadlines, counted on from the last, after t.
func (e *entry) scheduledAfter(t time.Duration) time.Duration {
	p := period(e.spec)
	missed := max(t-e.due, 0) / p
	return e.due + (missed+1)*p
}
