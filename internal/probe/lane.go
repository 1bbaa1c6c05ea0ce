package probe

import "time"

const (
	// patience is how long a try holds a slot that others wait for. One that keeps to
	// the default timeoutSeconds, 1, is over by then; one that isn't mostly waits itself.
	patience = 2 * time.Second
	// standBack is how many times as long as it held a slot a pod lets others go first.
	standBack = 10
)

// lane bounds how many tries of one sort are under way at once, and shares that out
// among the pods, so that one whose tries hang delays nobody but itself:
//
//   - A try needs a slot to begin. It gives it up when it ends, and after patience if
//     somebody waits for one: so whoever waits moves on, however long tries hang.
//   - Pods that wait go in the order in which they came to be due, each with one try; who
//     held slots for long stands back.
//   - A pod has at most share tries under way, with and without a slot.
//   - Every pod may have one try under way. Beside these there are at most spare on the
//     node. With that, what hangs takes no more memory than so many goroutines.
type lane struct {
	slots, share, spare int

	// busy has the hands in a slot, by when they began.
	busy timeline[*hand]
	// extra counts the tries under way beside the first of each pod.
	extra int
	// none has the lines that wait of pods without a try under way, some those of pods
	// that have some, which need room in spare. A pod at its share is in neither.
	none, some timeline[*line]
}

func newLane(slots int) lane {
	return lane{slots: slots, share: max(slots/4, 1), spare: 4 * slots}
}

// line is one pod in a lane.
type line struct {
	place
	lane *lane
	// in is where it waits for a slot; nil if it doesn't.
	in *timeline[*line]
	// queue has what is due and hasn't begun.
	queue timeline[*entry]
	// held counts its tries under way, also those of probes that aren't wanted any more.
	held int
	// back is until when it stands back.
	back time.Duration
}

// add has a due entry wait for its turn.
func (q *line) add(e *entry) {
	e.phase, e.line = queued, q
	q.queue.add(e.due, e)
	q.settle()
}

// remove takes out an entry that waits.
func (q *line) remove(e *entry) {
	q.queue.remove(e.place)
	q.settle()
}

// settle puts the line where it belongs after something about it has changed.
func (q *line) settle() {
	if q.in != nil {
		q.in.remove(q.place)
		q.in = nil
	}
	if q.queue.len() == 0 || q.held >= q.lane.share {
		return
	}
	q.in = &q.lane.none
	if q.held > 0 {
		q.in = &q.lane.some
	}
	_, due := q.queue.first()
	q.in.add(max(due, q.back), q)
}

// waiting returns the line whose turn it is; nil if none waits that may go.
func (l *lane) waiting() *line {
	q, at := l.none.first()
	if l.extra < l.spare {
		if other, earlier := l.some.first(); earlier < at {
			q = other
		}
	}
	return q
}

// relief returns when a slot will be had for those that wait, if none is before:
// never if nobody waits.
func (l *lane) relief() time.Duration {
	if l.waiting() == nil {
		return never
	}
	_, since := l.busy.first()
	return since + patience
}

// give has h begin with the entry whose turn it is; nil if there is none, or no slot.
func (l *lane) give(h *hand, now time.Duration) *entry {
	if l.waiting() == nil || !l.room(now) {
		return nil
	}
	q := l.waiting() // making room may have changed whose turn it is
	e, _ := q.queue.first()
	q.queue.remove(e.place)
	e.phase, e.line = handed, nil
	q.held++
	if q.held > 1 {
		l.extra++
	}
	q.back = max(q.back, now) // behind who waits already
	q.settle()
	h.line, h.slot, h.since = q, true, now
	l.busy.add(now, h)
	return e
}

// room reports whether there is a slot; it takes one from a try that had it for long.
func (l *lane) room(now time.Duration) bool {
	if l.busy.len() < l.slots {
		return true
	}
	h, since := l.busy.first()
	if now-since < patience {
		return false
	}
	l.leave(h, now)
	h.line.settle()
	return true
}

// leave takes the slot of a hand.
func (l *lane) leave(h *hand, now time.Duration) {
	l.busy.remove(h.place)
	h.slot = false
	h.line.back = max(h.line.back, now+standBack*(now-h.since))
}

// end takes in that the try of h is over.
func (l *lane) end(h *hand, now time.Duration) {
	q := h.line
	if h.slot {
		l.leave(h, now)
	}
	if q.held > 1 {
		l.extra--
	}
	q.held--
	q.settle()
	h.line = nil
}
