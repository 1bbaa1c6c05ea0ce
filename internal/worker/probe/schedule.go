package probe

import (
	"context"
	"slices"
	"time"
)

const (
	// slack is how much too early a try may begin, other than the first. What is due that
	// soon is dealt with in one go: with 1,000 probes a second, waking up for each by
	// itself costs more than all the rest.
	slack = 25 * time.Millisecond
	// idleFor is how long a worker stays without work before it is stopped.
	idleFor = 10 * time.Second
)

// worker is a goroutine that carries out tries.
type worker struct {
	// place is its index in busy of the limiter while it has a slot.
	place
	// jobs has room for one. Closing it stops the worker.
	jobs chan *entry
	// queue is that of the pod whose try it carries out; nil when idle.
	queue *queue
	// slot says that it has a slot of its limiter.
	slot bool
	// since is when it began with that try, or became idle.
	since time.Duration
}

// Run tries the wanted probes when they are due, until ctx ends; then it cancels
// the tries under way, and returns once every goroutine has ended. The error is
// always nil. It can be called once.
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

// turn begins the tries that are due and stops the workers that have been idle for long. It
// returns when to look again.
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
			// The agent stood still for a period or more. All probes are due now: they
			// go on at their next deadline, each at its own time.
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

// queueOf returns the queue in which an entry waits when it is due.
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

// serve assigns the entries that wait at a limiter to workers, as far as there are slots.
func (m *Manager) serve(ctx context.Context, l *limiter, now time.Duration) {
	for l.waiting() != nil && l.freeSlot(now) {
		w := m.startWorker(ctx)
		w.jobs <- l.give(w, now)
	}
}

// startWorker returns a worker without work. It takes the one that worked last, so that those
// that aren't needed stay idle, and starts another one if none is idle.
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

// next returns the next entry for a worker whose try is done; nil makes it idle.
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
	m.lookBy(l.relief()) // the end of one may have let others begin
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

// stopWorkers stops every worker: the idle ones now, the others after their try.
func (m *Manager) stopWorkers() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	for _, w := range m.idle {
		close(w.jobs)
	}
	m.idle = nil
}
