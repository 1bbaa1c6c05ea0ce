package events

import (
	"container/list"
	"iter"
)

// lru keeps the most recently used values; size is their largest number.
type lru[V any] struct {
	size  int
	index map[uint64]*list.Element
	order *list.List // of *slot[V], the one used last in front
}

type slot[V any] struct {
	key   uint64
	value V
}

func newLRU[V any](size int) *lru[V] {
	return &lru[V]{size: size, index: map[uint64]*list.Element{}, order: list.New()}
}

func (l *lru[V]) len() int { return l.order.Len() }

// get returns the value of a key and marks it as used; nil if there is none.
func (l *lru[V]) get(key uint64) *V {
	e, ok := l.index[key]
	if !ok {
		return nil
	}
	l.order.MoveToFront(e)
	return valueOf[V](e)
}

// add stores a value under a key that has none. It returns a pointer to the stored value, and the value that was
// evicted to make room, if any.
func (l *lru[V]) add(key uint64, value V) (added, removed *V) {
	if l.order.Len() == l.size {
		oldest := l.order.Back()
		s := l.order.Remove(oldest).(*slot[V])
		delete(l.index, s.key)
		removed = &s.value
	}
	s := &slot[V]{key, value}
	l.index[key] = l.order.PushFront(s)
	return &s.value, removed
}

func (l *lru[V]) newestFirst() iter.Seq[*V] {
	return func(yield func(*V) bool) {
		for e := l.order.Front(); e != nil; e = e.Next() {
			if !yield(valueOf[V](e)) {
				return
			}
		}
	}
}

func valueOf[V any](e *list.Element) *V { return &e.Value.(*slot[V]).value }
