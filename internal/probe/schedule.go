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
	// idleFor is how long a hand stays without work before it is sent away.
	idleFor = 10 * time.Second
)

// hand is a goroutine that carries out tries.
type hand struct {
	// place is that in busy of the lane while it has a slot.
	place
	// jobs has room for one. Closing it sends the hand away.
	jobs chan *entry
	// line is whose try it carries out; nil when idle.
	line *line
	// slot says that it has a slot of its lane.
	slot bool
	// since is when it began with that try, or became idle.
	since time.Duration
}

// Run tries the wanted probes when they are due, until ctx ends; then it cuts
// short what is under way, and returns once every goroutine has ended. The error is
// always nil. It can be called once.
func (m *Manager) Run(ctx context.Context) error {
	defer m.crew.Wait()
	defer m.dismiss()
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

// turn begins what is due and sends away who has been idle for long. It returns
// when to look again.
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
			// go on at their next beat, each at its own time.
			e.due = e.beatAfter(now)
			m.due.add(e.due, e)
			continue
		}
		q := m.lineOf(e)
		q.add(e)
		m.serve(ctx, q.lane, now)
	}
	m.serve(ctx, &m.network, now)
	m.serve(ctx, &m.exec, now)
	_, next := m.due.first()
	m.armed = min(next, m.network.relief(), m.exec.relief())
	m.reap(now)
	return m.armed
}

// lineOf returns where an entry that is due waits.
func (m *Manager) lineOf(e *entry) *line {
	l, q := &m.network, &e.owner.network
	if e.spec.Exec != nil {
		l, q = &m.exec, &e.owner.exec
	}
	if *q == nil {
		*q = &line{lane: l}
	}
	return *q
}

// serve hands to hands what waits in a lane, as far as there are slots.
func (m *Manager) serve(ctx context.Context, l *lane, now time.Duration) {
	for l.waiting() != nil && l.room(now) {
		h := m.hire(ctx)
		h.jobs <- l.give(h, now)
	}
}

// hire returns a hand without work. It takes the one that worked last, so that those
// that aren't needed stay idle.
func (m *Manager) hire(ctx context.Context) *hand {
	if last := len(m.idle) - 1; last >= 0 {
		h := m.idle[last]
		m.idle[last] = nil
		m.idle = m.idle[:last]
		return h
	}
	h := &hand{jobs: make(chan *entry, 1)}
	m.crew.Go(func() { m.work(ctx, h) })
	return h
}

// work carries out tries until the hand is sent away.
func (m *Manager) work(ctx context.Context, h *hand) {
	for e := range h.jobs {
		for e != nil {
			m.try(ctx, e)
			e = m.next(h)
		}
	}
}

// next returns what a hand whose try is done goes on with; nil makes it idle.
func (m *Manager) next(h *hand) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	l := h.line.lane
	l.end(h, now)
	if m.stopped {
		close(h.jobs)
		return nil
	}
	e := l.give(h, now)
	m.lookBy(l.relief()) // the end of one may have let others in
	if e == nil {
		h.since = now
		m.idle = append(m.idle, h)
		m.lookBy(now + idleFor)
	}
	return e
}

// reap sends away the hands that have been idle for long.
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

// dismiss sends away every hand: the idle ones now, the others after their try.
func (m *Manager) dismiss() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	for _, h := range m.idle {
		close(h.jobs)
	}
	m.idle = nil
}
