package probe

import (
	"context"
	"slices"
	"time"
)

const (
	// slack is how much before its due time a try may begin, except for a first try. Tries that are due within slack
	// begin together: with 1,000 probes a second, a separate wake-up for each try would cost more than everything else.
	slack = 25 * time.Millisecond
	// idleFor is how long a worker is kept without work.
	idleFor = 10 * time.Second
)

// worker is a goroutine that carries out tries.
type worker struct {
	// place is the worker's index in limiter.busy while the worker has a slot.
	place
	// jobs has capacity 1. Closing it stops the worker.
	jobs chan *entry
	// queue is the queue that the worker's current try is from; nil when idle.
	queue *queue
	// slot says that the worker has a slot of the limiter.
	slot bool
	// since is when the worker's current try began, or when the worker became idle.
	since time.Duration
}

// Run tries the requested probes when they are due, until ctx is done. Then it cancels the tries under way, and
// returns once every goroutine has ended. The error is always nil. It can be called once.
func (m *Manager) Run(ctx context.Context) error {
	defer m.workers.Wait()
	defer m.stopWorkers()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.kick:
		case <-timer.C:
		}
		if next := m.turn(ctx); next == never {
			timer.Stop()
		} else {
			timer.Reset(next - m.now())
		}
	}
}

// turn begins the tries that are due and stops workers that have been idle for long. It returns the time of the next
// turn.
func (m *Manager) turn(ctx context.Context) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for {
		e, due := m.due.first()
		if e == nil || due > now+slack {
			break
		}
		m.due.remove(e.place)
		if now-e.due >= period(e.spec) {
			// The agent was suspended for a period or more, so that all probes are due now. They continue at their next
			// scheduled times instead, which differ.
			e.due = e.scheduledAfter(now)
			m.due.add(e.due, e)
			continue
		}
		q := m.queueOf(e)
		q.add(e)
		m.serve(ctx, q.limiter, now)
	}
	m.serve(ctx, &m.network, now)
	m.serve(ctx, &m.exec, now)
	_, next := m.due.first()
	m.armed = min(next, m.network.relief(), m.exec.relief())
	m.reap(now)
	return m.armed
}

// queueOf returns the queue of an entry that is due.
func (m *Manager) queueOf(e *entry) *queue {
	l, q := &m.network, &e.owner.network
	if e.spec.Exec != nil {
		l, q = &m.exec, &e.owner.exec
	}
	if *q == nil {
		*q = &queue{limiter: l}
	}
	return *q
}

// serve assigns the entries that wait at a limiter to workers while there are slots.
func (m *Manager) serve(ctx context.Context, l *limiter, now time.Duration) {
	for l.waiting() != nil && l.freeSlot(now) {
		w := m.startWorker(ctx)
		w.jobs <- l.give(w, now)
	}
}

// startWorker returns an idle worker, or starts one if none is idle. It prefers the worker that worked last, so that
// superfluous workers stay idle and are stopped.
func (m *Manager) startWorker(ctx context.Context) *worker {
	if last := len(m.idle) - 1; last >= 0 {
		w := m.idle[last]
		m.idle[last] = nil
		m.idle = m.idle[:last]
		return w
	}
	w := &worker{jobs: make(chan *entry, 1)}
	m.workers.Go(func() { m.work(ctx, w) })
	return w
}

// work carries out tries until the worker is stopped.
func (m *Manager) work(ctx context.Context, w *worker) {
	for e := range w.jobs {
		for e != nil {
			m.try(ctx, e)
			e = m.next(w)
		}
	}
}

// next returns the next entry for a worker after its try; nil makes it idle.
func (m *Manager) next(w *worker) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	l := w.queue.limiter
	l.end(w, now)
	if m.stopped {
		close(w.jobs)
		return nil
	}
	e := l.give(w, now)
	m.lookBy(l.relief()) // the end of this try may allow others to begin
	if e == nil {
		w.since = now
		m.idle = append(m.idle, w)
		m.lookBy(now + idleFor)
	}
	return e
}

// reap stops the workers that have been idle for long.
func (m *Manager) reap(now time.Duration) {
	n := 0
	for n < len(m.idle) && now-m.idle[n].since >= idleFor {
		close(m.idle[n].jobs)
		n++
	}
	m.idle = slices.Delete(m.idle, 0, n)
	if len(m.idle) > 0 {
		m.armed = min(m.armed, m.idle[0].since+idleFor)
	}
}

// stopWorkers stops every worker: idle ones now, the others after their try.
func (m *Manager) stopWorkers() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	for _, w := range m.idle {
		close(w.jobs)
	}
	m.idle = nil
}
