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
	// tombstoneTime is how long the gone are remembered at least. No reading is under way for longer.
	tombstoneTime = 5 * time.Minute
	// reviveTime is how long a list may still show what is gone: containerd reports
	// that a sandbox is deleted shortly before it stops listing it.
	reviveTime = 10 * time.Second
)

// cache is the set of all pods the runtime has something of. Readings are merged per instance,
// and only ever forward: Created, Running, ended; Ready, not ready; gone. An instance that is
// known to be gone doesn't come back with a late reading. Its methods may be called
// concurrently.
type cache struct {
	wake func(types.UID)

	mu    sync.RWMutex
	pods  map[types.UID]*record
	owner map[string]types.UID
	// gone holds when IDs were learnt to be gone.
	gone map[string]time.Time
}

// newCache returns an empty cache. wake is called, outside locks, after a pod's
// snapshot changed, by whoever brought the change: it must not block.
func newCache(wake func(types.UID)) *cache {
	return &cache{
		wake:  wake,
		pods:  map[types.UID]*record{},
		owner: map[string]types.UID{},
		gone:  map[string]time.Time{},
	}
}

// reading is what the runtime, or one of the agent's own calls, reported at one time.
type reading struct {
	// AsOf is when it was true; of two readings of the same state the later counts.
	// Zero is for such calls: whatever the runtime itself reports takes precedence.
	AsOf       time.Time
	Sandboxes  []sandboxReading
	Containers []containerReading
}

// sandboxReading is a reading of one sandbox.
type sandboxReading struct {
	Pod     translate.Identity
	Sandbox pod.Sandbox
	// Detailed says that it is complete; otherwise only the state of a known one is taken from it.
	Detailed bool
}

// containerReading is a reading of one container; Detailed is as with sandboxReading. An
// empty SandboxID means that the reading doesn't have it.
type containerReading struct {
	Pod       translate.Identity
	Container pod.Container
	Detailed  bool
}

// Get returns the pod's snapshot, or nil if the runtime has nothing of it.
func (c *cache) Get(uid types.UID) *pod.Observed {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if r := c.pods[uid]; r != nil {
		return r.snapshot
	}
	return nil
}

// UIDs lists the pods the runtime has something of, in no order.
func (c *cache) UIDs() []types.UID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]types.UID, 0, len(c.pods))
	for uid := range c.pods {
		out = append(out, uid)
	}
	return out
}

// Knowledge is how well an instance is known.
type Knowledge struct {
	// UID is the pod's; empty if the instance is unknown.
	UID types.UID
	// Gone says that it is known to exist no more.
	Gone bool
	// Detailed says that a complete reading of its current state has been merged.
	Detailed bool
	// Sandbox and Container are its state; one of them is set for a known instance.
	Sandbox   pod.SandboxState
	Container pod.ContainerState
	// Instance is the container as it is known; nil for what is no known container. It is read-only.
	Instance *pod.Container
}

// Know reports how well the sandbox or container with this ID is known.
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

// Merge takes in a reading.
func (c *cache) Merge(rd reading) {
	// New names are to appear in the order of their creation, whatever order the runtime lists them in.
	slices.SortStableFunc(rd.Containers, func(a, b containerReading) int {
		return a.Container.CreatedAt.Compare(b.Container.CreatedAt)
	})
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
	for i := range rd.Containers {
		k := &rd.Containers[i]
		if c.isGone(k.Container.ID) || c.isGone(k.Container.SandboxID) {
			continue
		}
		if c.record(k.Pod, k.Container.ID).mergeContainer(k, rd.AsOf, now) {
			changed.add(k.Pod.UID)
		}
	}
	c.mu.Unlock()
	changed.each(c.wake)
}

// Advance moves a known instance on to a state, if that is forward. It does
// nothing for an unknown one.
func (c *cache) Advance(id string, change func(*pod.Sandbox, *pod.Container)) {
	c.mu.RLock()
	uid, ok := c.owner[id]
	if !ok {
		c.mu.RUnlock()
		return
	}
	r := c.pods[uid]
	who := translate.Identity{UID: uid, Name: r.snapshot.Name, Namespace: r.snapshot.Namespace}
	var rd reading
	if i := r.sandbox(id); i >= 0 {
		s := r.snapshot.Sandboxes[i]
		change(&s, nil)
		rd.Sandboxes = []sandboxReading{{Pod: who, Sandbox: s}}
	} else {
		k := r.snapshot.Containers[r.container(id)]
		change(nil, &k)
		rd.Containers = []containerReading{{Pod: who, Container: k}}
	}
	c.mu.RUnlock()
	c.Merge(rd)
}

// Remove takes in that a sandbox, with every container in it, or a container
// exists no more. It may be one that was never known.
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

// Listed takes in a complete list, begun at a time: whatever was known before
// and isn't in it exists no more. With a uid, the list was of that pod alone.
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

// Revive takes in that a list, begun at a time, shows an instance. If it was
// thought to be gone long before that, it is there after all.
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

// record returns the pod's record, made if need be, as the owner of id.
func (c *cache) record(who translate.Identity, id string) *record {
	r := c.pods[who.UID]
	if r == nil {
		r = &record{snapshot: &pod.Observed{UID: who.UID, Name: who.Name, Namespace: who.Namespace}}
		c.pods[who.UID] = r
	}
	c.owner[id] = who.UID
	return r
}

func (c *cache) forgetIfEmpty(uid types.UID) {
	if r := c.pods[uid]; r.snapshot.Empty() {
		delete(c.pods, uid)
	}
}

// uidSet is a set that costs nothing until it is used, for there is seldom more than one in it.
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
