package observed

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

const (
	// tombstoneTime is how long the IDs of removed instances are remembered at least. It is longer than any reading
	// takes, so that a late reading can't bring a removed instance back.
	tombstoneTime = 5 * time.Minute
	// reviveTime is how long a list may still include a removed instance: containerd sends the deletion event of a
	// sandbox shortly before it stops listing it.
	reviveTime = 10 * time.Second
)

// cache holds all pods that exist in the runtime. Readings are merged per instance, and states only move forward:
// Created, Running, Exited; Ready, NotReady; removed. A late reading doesn't bring a removed instance back. Its
// methods may be called concurrently.
type cache struct {
	wake func(types.UID)

	mu    sync.RWMutex
	pods  map[types.UID]*record
	owner map[string]types.UID
	// gone maps the IDs of removed instances to the time at which the cache learnt of the removal.
	gone map[string]time.Time
}

// newCache returns an empty cache. wake is called after a pod's snapshot changed, outside locks, in the goroutine
// that made the change: it must not block.
func newCache(wake func(types.UID)) *cache {
	return &cache{
		wake:  wake,
		pods:  map[types.UID]*record{},
		owner: map[string]types.UID{},
		gone:  map[string]time.Time{},
	}
}

// reading is the state that the runtime, or one of the agent's own calls, reported at one time.
type reading struct {
	// AsOf is the time at which the runtime had this state. Of two readings of the same state, the later one
	// counts. AsOf is zero for the results of the agent's own calls: any report of the runtime takes precedence
	// over them.
	AsOf       time.Time
	Sandboxes  []sandboxReading
	Containers []*containerReading
}

// sandboxReading is a reading of one sandbox.
type sandboxReading struct {
	Pod     translate.Identity
	Sandbox pod.Sandbox
	// Detailed means that the reading is complete; otherwise only the state of an instance that is already cached
	// is used.
	Detailed bool
}

// containerReading is a reading of one container; see sandboxReading for Detailed. SandboxID may be empty if the
// reading doesn't include it.
type containerReading struct {
	Pod       translate.Identity
	Container pod.Container
	Detailed  bool
}

// Get returns the pod's snapshot, or nil if the pod doesn't exist in the runtime.
func (c *cache) Get(uid types.UID) *pod.Observed {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if r := c.pods[uid]; r != nil {
		return r.snapshot
	}
	return nil
}

// UIDs lists the pods that exist in the runtime, unordered.
func (c *cache) UIDs() []types.UID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]types.UID, 0, len(c.pods))
	for uid := range c.pods {
		out = append(out, uid)
	}
	return out
}

// Knowledge is the cached state of one instance.
type Knowledge struct {
	// UID is the UID of the instance's pod; empty if the instance isn't cached.
	UID types.UID
	// Gone means that the instance was removed.
	Gone bool
	// Detailed means that a complete reading of its current state has been merged.
	Detailed bool
	// Sandbox and Container are the instance's state; exactly one of them is set if it is cached.
	Sandbox   pod.SandboxState
	Container pod.ContainerState
	// Instance is the cached container; nil for sandboxes and uncached containers. It is read-only.
	Instance *pod.Container
}

// Know returns the cached state of the sandbox or container with this ID.
func (c *cache) Know(id string) Knowledge {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if _, gone := c.gone[id]; gone {
		return Knowledge{Gone: true}
	}
	uid, ok := c.owner[id]
	if !ok {
		return Knowledge{}
	}
	r := c.pods[uid]
	k := Knowledge{UID: uid, Detailed: r.metaOf(id).detailed}
	if i := r.sandbox(id); i >= 0 {
		k.Sandbox = r.snapshot.Sandboxes[i].State
	} else {
		k.Instance = &r.snapshot.Containers[r.container(id)]
		k.Container = k.Instance.State
	}
	return k
}

// Merge merges a reading into the cached pods.
func (c *cache) Merge(rd reading) {
	sortForMerge(rd.Containers)
	now := time.Now()
	var changed uidSet
	c.mu.Lock()
	for i := range rd.Sandboxes {
		s := &rd.Sandboxes[i]
		if c.isGone(s.Sandbox.ID) {
			continue
		}
		if c.record(s.Pod, s.Sandbox.ID).mergeSandbox(s, rd.AsOf, now) {
			changed.add(s.Pod.UID)
		}
	}
	for i, k := range rd.Containers {
		if c.isGone(k.Container.ID) || c.isGone(k.Container.SandboxID) {
			continue
		}
		owner, known := c.owner[k.Container.ID]
		known = known && owner == k.Pod.UID
		r := c.record(k.Pod, k.Container.ID)
		switch {
		case known && r.mergeContainer(k, rd.AsOf, now):
		case !known:
			r.addContainer(k, rd.AsOf, now, rd.Containers[i:])
		default:
			continue
		}
		changed.add(k.Pod.UID)
	}
	for _, uid := range changed.list {
		c.pods[uid].draft = false
	}
	c.mu.Unlock()
	changed.each(c.wake)
}

// sortForMerge sorts the containers of a list, which may be in any order, so that new container names appear in the
// order of creation. The instances of each container become adjacent, newest first, as in a record: then each instance
// is appended to the record's instances instead of being inserted, which matters if there are hundreds.
func sortForMerge(list []*containerReading) {
	slices.SortStableFunc(list, func(a, b *containerReading) int {
		return a.Container.CreatedAt.Compare(b.Container.CreatedAt)
	})
	index, groups := map[slot]int{}, [][]*containerReading{}
	for _, k := range list {
		s := slot{k.Pod.UID, k.Container.Name}
		i, ok := index[s]
		if !ok {
			i = len(groups)
			index[s], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], k)
	}
	list = list[:0]
	for _, group := range groups {
		slices.Reverse(group)
		list = append(list, group...)
	}
}

// Advance changes the state of a cached instance, if that moves it forward. It does nothing for others.
func (c *cache) Advance(id string, change func(*pod.Sandbox, *pod.Container)) {
	c.mu.RLock()
	uid, ok := c.owner[id]
	if !ok {
		c.mu.RUnlock()
		return
	}
	r := c.pods[uid]
	identity := translate.Identity{UID: uid, Name: r.snapshot.Name, Namespace: r.snapshot.Namespace}
	var rd reading
	if i := r.sandbox(id); i >= 0 {
		s := r.snapshot.Sandboxes[i]
		change(&s, nil)
		rd.Sandboxes = []sandboxReading{{Pod: identity, Sandbox: s}}
	} else {
		k := r.snapshot.Containers[r.container(id)]
		change(nil, &k)
		rd.Containers = []*containerReading{{Pod: identity, Container: k}}
	}
	c.mu.RUnlock()
	c.Merge(rd)
}

// Remove records that a container, or a sandbox with every container in it, was removed. The ID needn't be cached.
func (c *cache) Remove(id string) {
	now := time.Now()
	c.mu.Lock()
	uid, known := c.owner[id]
	c.bury(id, now)
	if known {
		r := c.pods[uid]
		if r.sandbox(id) >= 0 {
			for _, inside := range r.inSandbox(id) {
				c.bury(inside, now)
			}
		}
		r.drop(func(i string) bool { return c.isGone(i) })
		c.forgetIfEmpty(uid)
	}
	c.mu.Unlock()
	if known {
		c.wake(uid)
	}
}

// Listed applies a complete list that was started at begun. Cached instances that were added before begun but
// aren't in the list are removed. If uid isn't empty, the list was of that pod alone.
func (c *cache) Listed(begun time.Time, uid types.UID, listed func(id string) bool) {
	now := time.Now()
	var changed uidSet
	c.mu.Lock()
	for u, r := range c.pods {
		if uid != "" && u != uid {
			continue
		}
		missing := false
		for i := range r.meta {
			m := &r.meta[i]
			if m.learnt.Before(begun) && !listed(m.id) {
				c.bury(m.id, now)
				missing = true
			}
		}
		if missing {
			r.drop(func(id string) bool { return c.isGone(id) })
			c.forgetIfEmpty(u)
			changed.add(u)
		}
	}
	for id, at := range c.gone {
		if begun.Sub(at) > tombstoneTime {
			delete(c.gone, id)
		}
	}
	c.mu.Unlock()
	changed.each(c.wake)
}

// Revive reports that a list, started at begun, includes an instance. If the instance was recorded as removed more than
// reviveTime before begun, it exists after all.
func (c *cache) Revive(begun time.Time, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, gone := c.gone[id]; gone && begun.Sub(at) > reviveTime {
		delete(c.gone, id)
	}
}

func (c *cache) isGone(id string) bool {
	_, gone := c.gone[id]
	return gone
}

func (c *cache) bury(id string, now time.Time) {
	c.gone[id] = now
	delete(c.owner, id)
}

// record returns the pod's record, created if necessary, and makes the pod the owner of id.
func (c *cache) record(identity translate.Identity, id string) *record {
	r := c.pods[identity.UID]
	if r == nil {
		r = &record{snapshot: &pod.Observed{UID: identity.UID, Name: identity.Name, Namespace: identity.Namespace}}
		c.pods[identity.UID] = r
	}
	c.owner[id] = identity.UID
	return r
}

func (c *cache) forgetIfEmpty(uid types.UID) {
	if r := c.pods[uid]; r.snapshot.Empty() {
		delete(c.pods, uid)
	}
}

// uidSet is a set of UIDs that allocates nothing until it is used; it seldom has more than one element.
type uidSet struct{ list []types.UID }

func (s *uidSet) add(uid types.UID) {
	if n := len(s.list); n == 0 || s.list[n-1] != uid {
		s.list = append(s.list, uid)
	}
}

func (s *uidSet) each(f func(types.UID)) {
	slices.Sort(s.list)
	for _, uid := range slices.Compact(s.list) {
		f(uid)
	}
}
