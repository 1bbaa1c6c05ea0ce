package wake

import (
	"maps"
	"slices"
	"sync"
)

// Keyed is a slot that stores the keys for which it was filled, each once. Keys say which objects to read again, not
// their state: the woken goroutine reads the state itself. Keyed is safe for concurrent use.
type Keyed[K comparable] struct {
	slot Slot
	mu   sync.Mutex
	keys map[K]struct{}
}

// NewKeyed returns an empty Keyed.
func NewKeyed[K comparable]() *Keyed[K] { return &Keyed[K]{slot: NewSlot(), keys: map[K]struct{}{}} }

// Wake fills the slot for these keys, if there are any. It never blocks.
func (k *Keyed[K]) Wake(keys ...K) {
	if len(keys) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		k.keys[key] = struct{}{}
	}
	k.slot.Wake()
}

// Woken returns a channel that receives when there are keys to Drain.
func (k *Keyed[K]) Woken() <-chan struct{} { return k.slot }

// Drain returns the keys of all calls of Wake since the previous Drain, in no order.
func (k *Keyed[K]) Drain() []K {
	k.mu.Lock()
	defer k.mu.Unlock()
	keys := slices.Collect(maps.Keys(k.keys))
	clear(k.keys)
	return keys
}

// KeyedGroup wakes all its subscribers for keys. The zero KeyedGroup has none. It is safe for concurrent use.
type KeyedGroup[K comparable] struct {
	mu   sync.Mutex
	subs map[*Keyed[K]]struct{}
}

// Subscribe returns a slot that is woken for keys from now on. stop ends the subscription and may be called repeatedly.
func (g *KeyedGroup[K]) Subscribe() (k *Keyed[K], stop func()) {
	k = NewKeyed[K]()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.subs == nil {
		g.subs = map[*Keyed[K]]struct{}{}
	}
	g.subs[k] = struct{}{}
	return k, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.subs, k)
	}
}

// Wake wakes all subscribers for these keys. It never waits for one of them.
func (g *KeyedGroup[K]) Wake(keys ...K) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for k := range g.subs {
		k.Wake(keys...)
	}
}
