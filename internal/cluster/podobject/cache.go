// Package podobject is the objects of this node's pods at an API server: a Cache of what there is, by a watch, and a
// Publisher, which writes their statuses and removes those of pods that have ended. Nobody else writes either.
package podobject

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/lastknown"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Pods are the pods of this node at an API server.
type Pods interface {
	// Watch tells what there is, until ctx ends (apiclient.Client.Watch).
	Watch(ctx context.Context, to apiclient.Sight)
	// PatchStatus applies a strategic merge patch to a pod's status, and returns the object as the server has it.
	PatchStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod, error)
	// Create makes a mirror pod; a node may make no other.
	Create(ctx context.Context, mirror *v1.Pod) (*v1.Pod, error)
	// Delete removes the object of this UID, at once.
	Delete(ctx context.Context, namespace, name string, uid types.UID) error
}

// Cache is what the API server has of this node's pods, by the newest of what a watch told and what writes were
// answered. Mirror pods, which stand for static pods, are kept apart. Its pods are read-only. Safe for concurrent use.
type Cache struct {
	pods Pods

	log logr.Logger

	mu     sync.RWMutex
	synced bool
	// malformed are the pods that can't be decoded, by namespace and name; away is why pods aren't seen, if they
	// aren't.
	malformed map[types.NamespacedName]trouble
	away      trouble
	byUID     map[types.UID]*v1.Pod
	byName    map[types.NamespacedName]types.UID

	changed  wake.KeyedGroup[types.UID]
	troubled wake.Group
}

// trouble is what is wrong, since when.
type trouble struct {
	err   error
	since time.Time
}

// NewCache returns an empty cache. It asks nobody before Run.
func NewCache(p Pods, log logr.Logger) *Cache {
	return &Cache{pods: p, log: log, malformed: map[types.NamespacedName]trouble{}, byUID: map[types.UID]*v1.Pod{},
		byName: map[types.NamespacedName]types.UID{}}
}

// Run follows what the API server has until ctx ends. The error is nil.
func (c *Cache) Run(ctx context.Context) error {
	c.pods.Watch(ctx, (*sight)(c))
	return nil
}

// Synced reports whether everything was told once.
func (c *Cache) Synced() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.synced
}

// Get returns the object of this UID, nil if there is none.
func (c *Cache) Get(uid types.UID) *v1.Pod {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byUID[uid]
}

// Pods returns all pods that are to run, in no order, and whether they are all there are.
func (c *Cache) Pods() ([]*v1.Pod, bool) { return c.list(false) }

// Mirrors returns all mirror pods, in no order, and whether they are all there are.
func (c *Cache) Mirrors() ([]*v1.Pod, bool) { return c.list(true) }

func (c *Cache) list(mirrors bool) ([]*v1.Pod, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	list := make([]*v1.Pod, 0, len(c.byUID))
	for _, p := range c.byUID {
		if Mirror(p) == mirrors {
			list = append(list, p)
		}
	}
	return list, c.synced
}

// mirrorOf returns the UID of the mirror pod of a static pod; empty if there is none.
func (c *Cache) mirrorOf(static *v1.Pod) types.UID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if m := c.byUID[c.byName[nameOf(static)]]; m != nil && mirrors(m, static) {
		return m.UID
	}
	return ""
}

// mirrors reports whether a mirror pod of the same name stands for this static pod, not for the one before.
func mirrors(m, static *v1.Pod) bool {
	hash, mirror := m.Annotations[v1.MirrorPodAnnotationKey]
	return mirror && hash == static.Annotations[pod.AnnotationConfigHash]
}

// Mirror reports whether a pod stands for a static pod.
func Mirror(p *v1.Pod) bool {
	_, mirror := p.Annotations[v1.MirrorPodAnnotationKey]
	return mirror
}

// Subscribe returns what is woken for the UIDs of pods that came, changed or went, mirror pods included, and for the
// empty UID when everything was told.
func (c *Cache) Subscribe() (changed *wake.Keyed[types.UID], stop func()) {
	return c.changed.Subscribe()
}

// Problems are what keeps pods from being seen as they are, without what makes the API server unusable, which its
// client tells. The channel of ProblemsChanged receives after they have changed; stop ends that.
func (c *Cache) Problems() []pod.Problem {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var list []pod.Problem
	if c.away.err != nil {
		list = append(list, pod.Problem{Source: pod.SourceAPI, Origin: lastknown.Origin,
			Message: "the node's pods aren't seen: " + c.away.err.Error() + "; those that were known go on",
			Since:   c.away.since})
	}
	for _, name := range slices.SortedFunc(maps.Keys(c.malformed), func(a, b types.NamespacedName) int {
		return cmp.Compare(a.String(), b.String())
	}) {
		t := c.malformed[name]
		list = append(list, pod.Problem{Source: pod.SourceAPI, Origin: lastknown.Origin, Pod: name.String(),
			Message: t.err.Error() +
				"; what was known of it goes on: correct it, or see that the agent isn't older than the API server",
			Since: t.since})
	}
	return list
}

// ProblemsChanged returns a channel that receives after Problems have changed. stop ends that.
func (c *Cache) ProblemsChanged() (changed <-chan struct{}, stop func()) {
	return c.troubled.Subscribe()
}

// Answered takes in an object that a write returned, unless a newer state of it was told.
func (c *Cache) Answered(p *v1.Pod) {
	c.mu.Lock()
	taken := false
	if old := c.byUID[p.UID]; old != nil { // else it was removed since
		if taken, _ = newer(p, old); taken {
			c.put(p)
		}
	}
	c.mu.Unlock()
	if taken {
		c.changed.Wake(p.UID)
	}
}

// newer reports whether an object is of a later time than another; known is false if their versions don't say.
func newer(p, than *v1.Pod) (later, known bool) {
	order, err := resourceversion.CompareResourceVersion(p.ResourceVersion, than.ResourceVersion)
	return order > 0, err == nil
}

// put keeps an object. mu is held.
func (c *Cache) put(p *v1.Pod) {
	// Who wrote which field is as large as the rest, and no use here.
	p.ManagedFields = nil
	c.byUID[p.UID] = p
	c.byName[nameOf(p)] = p.UID
}

// drop forgets an object. mu is held.
func (c *Cache) drop(uid types.UID) {
	p := c.byUID[uid]
	if p == nil {
		return
	}
	delete(c.byUID, uid)
	if name := nameOf(p); c.byName[name] == uid {
		delete(c.byName, name)
	}
}

func nameOf(p *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// sight takes in what the watch tells.
type sight Cache

// Listed takes in everything there is. It counts whatever its version: a store that was restored from a backup is older
// than what was told before (kubernetes/kubernetes#131115).
func (s *sight) Listed(all apiclient.List) {
	c := (*Cache)(s)
	c.mu.Lock()
	had := c.malformed
	c.malformed = make(map[types.NamespacedName]trouble, len(all.Malformed))
	changed := []types.UID{""}
	gone := make(map[types.UID]bool, len(c.byUID))
	for uid := range c.byUID {
		gone[uid] = true
	}
	unidentified := false
	for _, m := range all.Malformed {
		delete(gone, c.refuse(m, had))
		unidentified = unidentified || !m.Identified()
	}
	for _, o := range all.Objects {
		p, ok := o.(*v1.Pod)
		if !ok {
			continue
		}
		delete(gone, p.UID)
		p.ManagedFields = nil
		// A restored store has had versions twice.
		if old := c.byUID[p.UID]; old != nil && old.ResourceVersion == p.ResourceVersion &&
			equality.Semantic.DeepEqual(old, p) {
			continue
		}
		c.put(p)
		changed = append(changed, p.UID)
	}
	for uid := range gone {
		// One that can't be decoded nor identified may be any of those, unless another has its name by now.
		if unidentified && c.byName[nameOf(c.byUID[uid])] == uid {
			continue
		}
		c.drop(uid)
		changed = append(changed, uid)
	}
	c.synced = true
	c.mu.Unlock()
	c.changed.Wake(changed...)
	if len(had)+len(all.Malformed) > 0 {
		c.troubled.Wake()
	}
}

// refuse takes in a pod that can't be decoded, and returns the UID of the one that it is as far as that is known. had
// has what was told. mu is held.
func (c *Cache) refuse(m apiclient.Malformed, had map[types.NamespacedName]trouble) types.UID {
	name := types.NamespacedName{Namespace: m.Namespace, Name: m.Name}
	since := time.Now()
	if t, told := had[name]; told && t.err.Error() == m.Error() {
		since = t.since
	}
	if len(c.malformed) < maxMalformed {
		c.malformed[name] = trouble{m, since}
	}
	return cmp.Or(m.UID, c.byName[name])
}

// maxMalformed is how many pods are told of that can't be decoded.
const maxMalformed = 100

// Malformed takes in a change that can't be decoded: what was known before goes on.
func (s *sight) Malformed(m apiclient.Malformed) {
	c := (*Cache)(s)
	c.mu.Lock()
	uid := c.refuse(m, c.malformed)
	if m.Deleted {
		delete(c.malformed, types.NamespacedName{Namespace: m.Namespace, Name: m.Name})
		c.drop(uid)
	}
	c.mu.Unlock()
	if m.Deleted {
		c.changed.Wake(uid)
	}
	c.troubled.Wake()
}

// Changed takes in one change. A change from before what a write was answered says nothing new.
func (s *sight) Changed(kind watch.EventType, o kruntime.Object) {
	p, ok := o.(*v1.Pod)
	if !ok {
		return
	}
	c := (*Cache)(s)
	changed := []types.UID{p.UID}
	c.mu.Lock()
	if _, was := c.malformed[nameOf(p)]; was { // it was corrected, or has gone
		delete(c.malformed, nameOf(p))
		defer c.troubled.Wake()
	}
	known, later := false, true
	if old := c.byUID[p.UID]; old != nil {
		later, known = newer(p, old)
	}
	switch {
	case kind == watch.Deleted:
		c.drop(p.UID)
	case known && !later:
		changed = nil
	default:
		if other, taken := c.byName[nameOf(p)]; taken && other != p.UID { // whose removal was missed
			c.drop(other)
			changed = append(changed, other)
		}
		c.put(p)
	}
	c.mu.Unlock()
	c.changed.Wake(changed...)
}

// Away tells why pods aren't seen. What is known stays, and pods run on.
func (s *sight) Away(err error) {
	c := (*Cache)(s)
	own := err != nil && !apiclient.Unusable(err)
	c.mu.Lock()
	had := c.away
	c.away = trouble{}
	if own {
		c.away = trouble{err, time.Now()}
		if had.err != nil {
			c.away.since = had.since
		}
	}
	c.mu.Unlock()
	switch {
	case own:
		c.log.Error(err, "The node's pods aren't seen; those that were known go on")
	case had.err != nil && err == nil:
		c.log.Info("The node's pods are seen again", "duration", time.Since(had.since).Round(time.Second))
	}
	if own || had.err != nil {
		c.troubled.Wake()
	}
}
