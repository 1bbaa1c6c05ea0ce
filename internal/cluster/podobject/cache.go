// Package podobject is the objects of this node's pods at an API server: a Cache of what there is, by a watch, and a
// Publisher, which writes their statuses and removes those of pods that have ended. Nobody else writes either.
package podobject

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
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

	mu     sync.RWMutex
	synced bool
	byUID  map[types.UID]*v1.Pod
	byName map[types.NamespacedName]types.UID

	changed wake.KeyedGroup[types.UID]
}

// NewCache returns an empty cache. It asks nobody before Run.
func NewCache(p Pods) *Cache {
	return &Cache{pods: p, byUID: map[types.UID]*v1.Pod{}, byName: map[types.NamespacedName]types.UID{}}
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

// Listed takes in everything there is. It counts whatever its version: a store that was restored from a backup is older than what
// was told before (kubernetes/kubernetes#131115).
func (s *sight) Listed(objects []kruntime.Object, _ string) {
	c := (*Cache)(s)
	c.mu.Lock()
	changed := []types.UID{""}
	gone := make(map[types.UID]bool, len(c.byUID))
	for uid := range c.byUID {
		gone[uid] = true
	}
	for _, o := range objects {
		p, ok := o.(*v1.Pod)
		if !ok {
			continue
		}
		delete(gone, p.UID)
		p.ManagedFields = nil
		// A restored store has had versions twice.
		if old := c.byUID[p.UID]; old != nil && old.ResourceVersion == p.ResourceVersion && equality.Semantic.DeepEqual(old, p) {
			continue
		}
		c.put(p)
		changed = append(changed, p.UID)
	}
	for uid := range gone {
		c.drop(uid)
		changed = append(changed, uid)
	}
	c.synced = true
	c.mu.Unlock()
	c.changed.Wake(changed...)
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

// Away does nothing: what is known stays, and pods run on.
func (s *sight) Away(error) {}
