package probe

import "time"

// timeline is a heap of items, each with a time; the earliest item is at the top. container/heap isn't used, because
// each add would allocate.
type timeline[T placed] struct{ marks []mark[T] }

// placed is an item of a timeline: it stores its index in the heap. Type place implements it.
type placed interface{ moved(to place) }

// place is an index into a timeline. Items embed it.
type place int

func (p *place) moved(to place) { *p = to }

// mark is one item of a timeline. The time is next to the pointer because a heap mostly compares times.
type mark[T placed] struct {
	at   time.Duration
	item T
}

func (t *timeline[T]) len() int { return len(t.marks) }

// first returns the item with the earliest time, and that time; never if there is none.
func (t *timeline[T]) first() (item T, at time.Duration) {
	if len(t.marks) == 0 {
		return item, never
	}
	return t.marks[0].item, t.marks[0].at
}

func (t *timeline[T]) add(at time.Duration, item T) {
	t.marks = append(t.marks, mark[T]{})
	t.rise(len(t.marks)-1, mark[T]{at, item})
}

// remove removes the item at p.
func (t *timeline[T]) remove(p place) {
	last := len(t.marks) - 1
	m := t.marks[last]
	t.marks[last] = mark[T]{}
	t.marks = t.marks[:last]
	if i := int(p); i < last {
		t.sink(i, m)
	}
}

// rise puts m at i, or further up if it is earlier than the items there.
func (t *timeline[T]) rise(i int, m mark[T]) {
	for i > 0 {
		parent := (i - 1) / 2
		if t.marks[parent].at <= m.at {
			break
		}
		t.put(i, t.marks[parent])
		i = parent
	}
	t.put(i, m)
}

// sink puts m at i, or further down if it is later than the items there, or else further up.
func (t *timeline[T]) sink(i int, m mark[T]) {
	for {
		child := 2*i + 1
		if child >= len(t.marks) {
			break
		}
		if child+1 < len(t.marks) && t.marks[child+1].at < t.marks[child].at {
			child++
		}
		if t.marks[child].at >= m.at {
			break
		}
		t.put(i, t.marks[child])
		i = child
	}
	t.rise(i, m)
}

func (t *timeline[T]) put(i int, m mark[T]) {
	t.marks[i] = m
	m.item.moved(place(i))
}
