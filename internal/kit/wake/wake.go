// Package wake wakes goroutines, which then read the state again. A wake-up carries no data, so it doesn't matter if
// wake-ups are merged, repeated or out of order.
package wake

import "sync"

// Slot holds at most one wake-up for one goroutine, which receives it from the channel.
type Slot chan struct{}

// NewSlot returns an empty slot.
func NewSlot() Slot { return make(Slot, 1) }

// Wake fills the slot unless it is full. It never blocks and may be called by any goroutine.
func (s Slot) Wake() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Group wakes all its subscribers. The zero Group has none. It is safe for concurrent use.
type Group struct {
	mu    sync.Mutex
	slots map[Slot]struct{}
}

// Subscribe returns a channel that receives after each Wake; while one wake-up waits to be received, further ones are
// merged with it. The channel is never closed. stop ends the subscription and may be called repeatedly.
func (g *Group) Subscribe() (woken <-chan struct{}, stop func()) {
	s := NewSlot()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.slots == nil {
		g.slots = map[Slot]struct{}{}
	}
	g.slots[s] = struct{}{}
	return s, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.slots, s)
	}
}

// Count returns how many subscribers there are.
func (g *Group) Count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.slots)
}

// Wake wakes all subscribers. It never waits for one of them.
func (g *Group) Wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s := range g.slots {
		s.Wake()
	}
}
