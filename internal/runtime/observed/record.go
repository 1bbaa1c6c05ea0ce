package observed

import (
	"cmp"
	"slices"
	"time"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// record is one pod. Its snapshot is replaced, never changed, so callers may hold on to it.
type record struct {
	snapshot *pod.Observed
	// draft means that the snapshot isn't published yet: it is a copy that the current merge may change.
	draft bool
	meta  []meta
}

// edit returns the snapshot to be changed. It copies the snapshot once per merge: a pod may have hundreds of dead
// containers.
func (r *record) edit() *pod.Observed {
	if !r.draft {
		o := *r.snapshot
		o.Sandboxes, o.Containers = slices.Clone(o.Sandboxes), slices.Clone(o.Containers)
		r.snapshot, r.draft = &o, true
	}
	return r.snapshot
}

// meta has data about an instance that isn't part of the snapshot.
type meta struct {
	id string
	// learnt is when the instance was added to the cache.
	learnt   time.Time
	asOf     time.Time
	detailed bool
}

func (r *record) metaOf(id string) *meta {
	for i := range r.meta {
		if r.meta[i].id == id {
			return &r.meta[i]
		}
	}
	return nil
}

func (r *record) sandbox(id string) int {
	return slices.IndexFunc(r.snapshot.Sandboxes, func(s pod.Sandbox) bool { return s.ID == id })
}

func (r *record) container(id string) int {
	return slices.IndexFunc(r.snapshot.Containers, func(k pod.Container) bool { return k.ID == id })
}

func (r *record) inSandbox(id string) []string {
	var out []string
	for i := range r.snapshot.Containers {
		if r.snapshot.Containers[i].SandboxID == id {
			out = append(out, r.snapshot.Containers[i].ID)
		}
	}
	return out
}

// mergeSandbox merges a reading of a sandbox, and reports whether the snapshot changed.
func (r *record) mergeSandbox(s *sandboxReading, asOf, now time.Time) bool {
	next := s.Sandbox
	if next.State == pod.SandboxNotReady {
		// The runtime tears down the network after this change of the state, without another event. So the
		// addresses are cleared now.
		next.IPs = nil
	}
	i := r.sandbox(next.ID)
	if i < 0 {
		r.meta = append(r.meta, meta{id: next.ID, learnt: now, asOf: asOf, detailed: s.Detailed})
		r.insertSandbox(next)
		return true
	}
	old := &r.snapshot.Sandboxes[i]
	if !r.accept(next.ID, sandboxRank(next.State)-sandboxRank(old.State), asOf, s.Detailed) {
		return false
	}
	next = completeSandbox(next, old, s.Detailed)
	if sameSandbox(&next, old) {
		return false
	}
	r.edit().Sandboxes[i] = next
	return true
}

// addContainer adds a container that isn't in the record. list has the readings from this one on: a pod may have
// hundreds, for which there is room at once.
func (r *record) addContainer(k *containerReading, asOf, now time.Time, list []*containerReading) {
	if o := r.edit(); len(o.Containers) == cap(o.Containers) {
		more := slices.IndexFunc(list, func(other *containerReading) bool { return other.Pod.UID != k.Pod.UID })
		if more < 0 {
			more = len(list)
		}
		o.Containers, r.meta = slices.Grow(o.Containers, more), slices.Grow(r.meta, more)
	}
	r.meta = append(r.meta, meta{id: k.Container.ID, learnt: now, asOf: asOf, detailed: k.Detailed})
	r.insertContainer(k.Container)
}

// mergeContainer merges a reading of a container in the record, and reports whether the snapshot changed.
func (r *record) mergeContainer(k *containerReading, asOf, now time.Time) bool {
	next := k.Container
	i := r.container(next.ID)
	old := &r.snapshot.Containers[i]
	if !r.accept(next.ID, containerRank(next.State)-containerRank(old.State), asOf, k.Detailed) {
		return false
	}
	next = completeContainer(next, old, k.Detailed)
	if sameContainer(&next, old) {
		return false
	}
	r.edit().Containers[i] = next
	return true
}

// accept reports whether a reading of an instance is used. forward is the number of ranks by which the reading moves
// the state of the instance forward. If the reading is used, accept records its time, and whether it is detailed.
func (r *record) accept(id string, forward int, asOf time.Time, detailed bool) bool {
	m := r.metaOf(id)
	switch {
	case forward < 0:
		return false
	case forward > 0:
		m.asOf, m.detailed = asOf, detailed
		return true
	case !detailed, m.detailed && asOf.Before(m.asOf):
		return false
	}
	m.asOf, m.detailed = asOf, true
	return true
}

// drop removes the instances that gone selects by ID.
func (r *record) drop(gone func(id string) bool) {
	o := *r.snapshot
	o.Sandboxes = slices.DeleteFunc(slices.Clone(o.Sandboxes), func(s pod.Sandbox) bool { return gone(s.ID) })
	o.Containers = slices.DeleteFunc(slices.Clone(o.Containers), func(k pod.Container) bool { return gone(k.ID) })
	r.meta = slices.DeleteFunc(r.meta, func(m meta) bool { return gone(m.id) })
	r.snapshot = &o
}

// insertSandbox inserts a sandbox; sandboxes are sorted by attempt, newest first.
func (r *record) insertSandbox(s pod.Sandbox) {
	o := r.edit()
	at := len(o.Sandboxes)
	for i := range o.Sandboxes {
		if newer(s.Attempt, s.CreatedAt, s.ID, o.Sandboxes[i].Attempt, o.Sandboxes[i].CreatedAt, o.Sandboxes[i].ID) {
			at = i
			break
		}
	}
	o.Sandboxes = slices.Insert(o.Sandboxes, at, s)
}

// insertContainer inserts a container instance. Instances of one container are adjacent, newest attempt first. The
// containers are in the order in which they appeared.
func (r *record) insertContainer(k pod.Container) {
	o := r.edit()
	at := len(o.Containers)
	for at > 0 && o.Containers[at-1].Name != k.Name {
		at--
	}
	if at == 0 {
		at = len(o.Containers)
	}
	for ; at > 0 && o.Containers[at-1].Name == k.Name; at-- {
		if c := &o.Containers[at-1]; !newer(k.Attempt, k.CreatedAt, k.ID, c.Attempt, c.CreatedAt, c.ID) {
			break
		}
	}
	o.Containers = slices.Insert(o.Containers, at, k)
}

func newer[N cmp.Ordered](attempt N, at time.Time, id string, attempt2 N, at2 time.Time, id2 string) bool {
	return cmp.Or(cmp.Compare(attempt, attempt2), at.Compare(at2), cmp.Compare(id, id2)) > 0
}
