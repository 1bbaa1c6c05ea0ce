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

// lane bounds how many tries of one sort are under way at once.
type lane struct {
	limit, busy int
	// queue has what is due and finds no room, first come first served.
	queue []*entry
}

// hand is a goroutine that carries out tries.
type hand struct {
	// jobs has room for one. Closing it sends the hand away.
	jobs chan *entry
	// lane is where it works.
	lane *lane
	// since is when it became idle.
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
		e := m.due.first()
		if e == nil || e.due > now+slack {
			break
		}
		m.due.remove(e)
		if now-e.due >= period(e.spec) {
			// The agent stood still for a period or more. All probes are due now: they
			// go on at their next beat, each at its own time.
			e.due = e.beatAfter(now)
			m.due.add(e)
			continue
		}
		m.start(ctx, e)
	}
	m.armed = never
	if e := m.due.first(); e != nil {
		m.armed = e.due
	}
	m.reap(now)
	return m.armed
}

// start hands a due entry to a hand, or has it wait for room in its lane.
func (m *Manager) start(ctx context.Context, e *entry) {
	e.phase = queued
	l := &m.network
	if e.spec.Exec != nil {
		l = &m.exec
	}
	if l.busy == l.limit {
		l.queue = append(l.queue, e)
		return
	}
	l.busy++
	h := m.hire(ctx)
	h.lane = l
	h.jobs <- e
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

// next returns what waits for the room of a hand whose try is done; nil gives that
// room up and makes the hand idle.
func (m *Manager) next(h *hand) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := h.lane
	if len(l.queue) > 0 {
		e := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		return e
	}
	l.busy--
	if m.stopped {
		close(h.jobs)
		return nil
	}
	h.since = m.now()
	m.idle = append(m.idle, h)
	m.lookBy(h.since + idleFor)
	return nil
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
