package probe

import "time"

const (
	// patience is how long a try holds a slot that others wait for. One with the default
	// timeoutSeconds, 1, is over by then; one that isn't mostly waits itself.
	patience = 2 * time.Second
	// penaltyFactor times the time that a pod held a slot is how long it lets others go first.
	penaltyFactor = 10
)

// limiter limits how many tries of one kind are under way at once, and shares the slots
// among the pods, so that a pod whose tries hang delays no other:
//
//   - A try needs a slot to begin. It gives it up when it ends, and after patience if
//     another try waits for one: so the queues advance, however long tries hang.
//   - Pods that wait get slots in the order in which their tries became due, each for one
//     try; a pod that held slots for long is moved back.
//   - A pod has at most share tries under way, with and without a slot.
//   - Every pod may have one try under way. Beside these there are at most spare on the
//     node, which limits the goroutines, and so the memory, of tries that hang.
type limiter struct {
	slots, share, spare int

	// busy has the workers with a slot, by when they began.
	busy timeline[*worker]
	// extra counts the tries under way beside the first of each pod.
	extra int
	// none has the waiting queues of pods without a try under way, some those of pods
	// that have some, which count against spare. A pod at its share is in neither.
	none, some timeline[*queue]
}

func newLimiter(slots int) limiter {
	return limiter{slots: slots, share: max(slots/4, 1), spare: 4 * slots}
}

// queue is one pod's queue at a limiter.
type queue struct {
	place
	limiter *limiter
	// in is where it waits for a slot; nil if it doesn't.
	in *timeline[*queue]
	// entries are due and haven't begun.
	entries timeline[*entry]
	// held counts its tries under way, also those of probes that aren't wanted any more.
	held int
	// penalizedUntil is until when it lets others go first.
	penalizedUntil time.Duration
}

// add queues a due entry.
func (q *queue) add(e *entry) {
	e.phase, e.queue = queued, q
	q.entries.add(e.due, e)
	q.requeue()
}

// remove takes out a queued entry.
func (q *queue) remove(e *entry) {
	q.entries.remove(e.place)
	q.requeue()
}

// requeue puts the queue where it belongs after it has changed.
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

// waiting returns the queue whose turn it is; nil if none waits that may begin a try.
func (l *limiter) waiting() *queue {
	q, at := l.none.first()
	if l.extra < l.spare {
		if other, earlier := l.some.first(); earlier < at {
			q = other
		}
	}
	return q
}

// relief returns when a slot can be taken for the waiting queues, if none becomes free before:
// never if none waits.
func (l *limiter) relief() time.Duration {
	if l.waiting() == nil {
		return never
	}
	_, since := l.busy.first()
	return since + patience
}

// give assigns to w the entry whose turn it is, and returns it; nil if there is none, or no slot.
func (l *limiter) give(w *worker, now time.Duration) *entry {
	if l.waiting() == nil || !l.freeSlot(now) {
		return nil
	}
	q := l.waiting() // freeSlot may have changed whose turn it is
	e, _ := q.entries.first()
	q.entries.remove(e.place)
	e.phase, e.queue = assigned, nil
	q.held++
	if q.held > 1 {
		l.extra++
	}
	q.penalizedUntil = max(q.penalizedUntil, now) // behind those that wait already
	q.requeue()
	w.queue, w.slot, w.since = q, true, now
	l.busy.add(now, w)
	return e
}

// freeSlot takes a slot from a try that had it for long if none is free, and reports whether there is one.
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

// leave takes the slot of a worker.
func (l *limiter) leave(w *worker, now time.Duration) {
	l.busy.remove(w.place)
	w.slot = false
	w.queue.penalizedUntil = max(w.queue.penalizedUntil, now+penaltyFactor*(now-w.since))
}

// end records that the try of w is over.
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
