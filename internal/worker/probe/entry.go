package probe

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
)

// phase is the state of an entry between and during its tries.
type phase int

const (
	// waiting: the deadline of the entry's next try is in the heap.
	waiting phase = iota
	// queued: a try is due, and the entry is in its pod's queue.
	queued
	// assigned: a worker has the entry, but the try hasn't begun yet.
	assigned
	// running: a try is under way.
	running
	// held: the probe has a final result and isn't tried again.
	held
)

// entry is one probe of one container instance. The manager's lock guards it.
type entry struct {
	// place is the entry's index in the heap of deadlines while waiting, or in its queue while queued.
	place
	key       pod.Probe
	owner     *subject
	container *v1.Container
	spec      *v1.Probe

	phase  phase
	wanted bool
	// since and last are the first and the last round (subject.round) in which the pod's worker requested the probe.
	since, last uint32
	// due is the scheduled time of the next try, or of the try under way.
	due time.Duration
	// queue is the queue that has the entry while its phase is queued.
	queue *queue
	// cancel cancels the try under way.
	cancel context.CancelFunc

	// run is the number of consecutive tries with the outcome lastOK, up to the threshold.
	run    int32
	lastOK bool
	result *pod.ProbeResult
	// failures are the failures since the last success; nil if there are none.
	failures *pod.ProbeFailures
}

// period is the time between two tries.
func period(spec *v1.Probe) time.Duration {
	return pod.Seconds(max(spec.PeriodSeconds, 1))
}

// count adds the outcome of a try, and reports whether the probe's result has changed.
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

// note adds the outcome of a try to failures; a success clears them.
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

// final reports whether the probe needs no further tries: a started container stays started, and a container whose
// startup or liveness probe failed is killed.
func (e *entry) final() bool {
	if e.result == nil {
		return false
	}
	return e.key.Kind == pod.ProbeStartup || e.key.Kind == pod.ProbeLiveness && !e.result.OK
}

// after returns the due time of the try that follows one from start to end. Missed tries aren't made up for. The next
// try keeps to the probe's own schedule, so that probes that were delayed at the same time don't continue in step.
func (e *entry) after(start, end time.Duration) time.Duration {
	return max(end, e.scheduledAfter(start))
}

// scheduledAfter returns the first scheduled time after t.
func (e *entry) scheduledAfter(t time.Duration) time.Duration {
	p := period(e.spec)
	missed := max(t-e.due, 0) / p
	return e.due + (missed+1)*p
}
