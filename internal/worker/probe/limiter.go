package probe

import "time"

const (
	// patience is how long a try may occupy a slot while other tries wait for one. Tries with the default
	// timeoutSeconds, 1, have ended by then; longer tries mostly just wait.
	patience = 2 * time.Second
	// penaltyFactor is the ratio of the time for which a pod's tries come after those of other pods to the time for
	// which the pod occupied a slot.
	penaltyFactor = 10
)

// limiter limits the number of concurrent tries of one kind, and shares the slots among the pods, so that a pod with
// hanging tries delays no other:
//
//   - A try needs a slot to begin. It releases the slot when it ends, or after patience if another try waits for one:
//     so the queues advance, however long tries hang.
//   - Waiting pods get slots in the order in which their tries became due, each for one try; a pod that held slots
//     for long is moved back.
//   - A pod has at most limiter.share tries under way, with and without a slot.
//   - Every pod may have one try under way. The node has at most limiter.spare tries in addition to these. That limits
//     the goroutines, and so the memory, of hanging tries.
type limiter struct {
	slots, share, spare int

	// busy has the workers with a slot, in the order in which their tries began.
	busy timeline[*worker]
	// extra counts the tries under way in addition to each pod's first one.
	extra int
	// none and some have the queues that wait for a slot: none has those of pods without a try under way, some those
	// of pods with at least one try under way. A further try of the latter counts against spare. A queue of a pod with
	// share tries under way is in neither.
	none, some timeline[*queue]
}

func newLimiter(slots int) limiter {
	return limiter{slots: slots, share: max(slots/4, 1), spare: 4 * slots}
}

// queue is one pod's queue at a limiter.
type queue struct {
	place
	limiter *limiter
	// in is the timeline in which the queue waits for a slot; nil if the queue doesn't wait.
	in *timeline[*queue]
	// entries are the pod's entries with tries that are due and haven't begun.
	entries timeline[*entry]
	// held counts the pod's tries under way, including those of probes that aren't requested any more.
	held int
	// penalizedUntil is when the penalty ends, for which the pod's tries come after those of other pods.
	penalizedUntil time.Duration
}

// add queues a due entry.
func (q *queue) add(e *entry) {
	e.phase, e.queue = queued, q
	q.entries.add(e.due, e)
	q.requeue()
}

// remove removes an entry that is queued.
func (q *queue) remove(e *entry) {
	q.entries.remove(e.place)
	q.requeue()
}

// requeue moves the queue to its place after a change.
func (q *queue) requeue() {
	if q.in != nil {
		q.in.remove(q.place)
		q.in = nil
	}
	if q.entries.len() == 0 || q.held >= q.limiter.share {
		return
	}
	q.in = &q.limiter.none
	if q.held > 0 {
		q.in = &q.limiter.some
	}
	_, due := q.entries.first()
	q.in.add(max(due, q.penalizedUntil), q)
}

// waiting returns the queue that may begin the next try; nil if no waiting queue may begin one.
func (l *limiter) waiting() *queue {
	q, at := l.none.first()
	if l.extra < l.spare {
		if other, earlier := l.some.first(); earlier < at {
			q = other
		}
	}
	return q
}

// relief returns when the waiting queues can get the slot of a long try, if no slot becomes free before. It returns the
// constant never if no queue waits.
func (l *limiter) relief() time.Duration {
	if l.waiting() == nil {
		return never
	}
	_, since := l.busy.first()
	return since + patience
}

// give assigns the next entry to w and returns it; nil if there is no entry or no slot.
func (l *limiter) give(w *worker, now time.Duration) *entry {
	if l.waiting() == nil || !l.freeSlot(now) {
		return nil
	}
	q := l.waiting() // freeSlot may have changed which queue is next
	e, _ := q.entries.first()
	q.entries.remove(e.place)
	e.phase, e.queue = assigned, nil
	q.held++
	if q.held > 1 {
		l.extra++
	}
	q.penalizedUntil = max(q.penalizedUntil, now) // the pod goes behind the pods that are already waiting
	q.requeue()
	w.queue, w.slot, w.since = q, true, now
	l.busy.add(now, w)
	return e
}

// freeSlot reports whether a slot is free. If none is, it frees the slot of a try that has had it for longer than
// patience.
func (l *limiter) freeSlot(now time.Duration) bool {
	if l.busy.len() < l.slots {
		return true
	}
	w, since := l.busy.first()
	if now-since < patience {
		return false
	}
	l.leave(w, now)
	w.queue.requeue()
	return true
}

// leave releases the slot of a worker.
func (l *limiter) leave(w *worker, now time.Duration) {
	l.busy.remove(w.place)
	w.slot = false
	w.queue.penalizedUntil = max(w.queue.penalizedUntil, now+penaltyFactor*(now-w.since))
}

// end records the end of w's try.
func (l *limiter) end(w *worker, now time.Duration) {
	q := w.queue
	if w.slot {
		l.leave(w, now)
	}
	if q.held > 1 {
		l.extra--
	}
	q.held--
	q.requeue()
	w.queue = nil
}
