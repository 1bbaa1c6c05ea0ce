package allocation

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// wish is a resize that had to be deferred.
type wish struct {
	uid  types.UID
	need amount
	// priority, qos and turn say whose turn it is.
	priority int32
	qos      int
	turn     uint64
	// offered says that the pod was woken since the wish began to fit.
	offered bool
}

// before orders wishes as documented for deferred resizes ("How kubelet retries
// Deferred resizes", https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/):
// the higher PriorityClass, the better QoS class, the longer deferred.
func before(a, b *wish) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(b.qos, a.qos), cmp.Compare(a.turn, b.turn))
}

// line are the deferred wishes, the first one first.
type line struct {
	wishes []*wish
	turns  uint64
}

// wishOf is the pod's wish, in its present place or the last one among its equals.
func (l *line) wishOf(p *v1.Pod, need amount) *wish {
	w := &wish{uid: p.UID, need: need}
	if p.Spec.Priority != nil {
		w.priority = *p.Spec.Priority
	}
	switch p.Status.QOSClass {
	case v1.PodQOSGuaranteed:
		w.qos = 2
	case v1.PodQOSBurstable:
		w.qos = 1
	}
	if i := l.index(p.UID); i >= 0 {
		w.turn = l.wishes[i].turn
		return w
	}
	l.turns++
	w.turn = l.turns
	return w
}

func (l *line) index(uid types.UID) int {
	return slices.IndexFunc(l.wishes, func(w *wish) bool { return w.uid == uid })
}

// put queues the wish in place of an earlier one of its pod.
func (l *line) put(w *wish) {
	l.drop(w.uid)
	i, _ := slices.BinarySearchFunc(l.wishes, w, before)
	l.wishes = slices.Insert(l.wishes, i, w)
}

func (l *line) drop(uid types.UID) {
	l.wishes = slices.DeleteFunc(l.wishes, func(w *wish) bool { return w.uid == uid })
}

// room is what nobody holds. It is below zero where pods were let in beyond capacity.
func (m *Manager) room() amount {
	free := m.capacity
	for _, e := range m.pods {
		free = free.minus(e.takes())
	}
	return free
}

// walk goes through the line from its head and gives each wish that fits its part
// of the room; seen is told of every wish. One that doesn't fit keeps nobody
// behind it from trying. It ends where seen returns false, and returns the room left.
func (m *Manager) walk(seen func(w *wish, fits bool) bool) amount {
	room := m.room()
	for _, w := range m.line.wishes {
		growth := w.need.minus(m.pods[w.uid].takes()).atLeast(amount{})
		fits := len(growth.short(room)) == 0
		if !seen(w, fits) {
			break
		}
		if fits {
			room = room.minus(growth)
		}
	}
	return room
}

// roomFor is the room that a wish finds beside what others hold, and beside the
// wishes that go before it and fit.
func (m *Manager) roomFor(w *wish) amount {
	return m.walk(func(other *wish, _ bool) bool { return before(other, w) < 0 })
}

// offer returns the pods whose wishes have come to fit: they are to be woken.
// appeared says that there is more room than before.
func (m *Manager) offer(appeared bool) []types.UID {
	var woken []types.UID
	if len(m.line.wishes) > 0 {
		m.walk(func(w *wish, fits bool) bool {
			if fits && !w.offered {
				woken = append(woken, w.uid)
			}
			w.offered = fits
			return true
		})
	}
	if appeared || len(woken) > 0 {
		// Strictly later than before, whatever the clock's resolution.
		now := time.Now()
		if !now.After(m.roomAt) {
			now = m.roomAt.Add(time.Nanosecond)
		}
		m.roomAt = now
	}
	return woken
}
