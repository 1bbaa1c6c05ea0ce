package wake

import (
	"maps"
	"slices"
	"sync"
)

// Keyed is a slot that remembers what it was filled for, each key once. Keys say where to look again, not what
// is there: as ever, who is woken reads the state itself. Safe for concurrent use.
type Keyed[K comparable] struct {
	slot Slot
	mu   sync.Mutex
	keys map[K]struct{}
}

// NewKeyed returns an empty one.
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

// Woken receives when there is something to Take.
func (k *Keyed[K]) Woken() <-chan struct{} { return k.slot }

// Take returns the keys since it was called last, in no order.
func (k *Keyed[K]) Take() []K {
	k.mu.Lock()
	defer k.mu.Unlock()
	keys := slices.Collect(maps.Keys(k.keys))
	clear(k.keys)
	return keys
}
