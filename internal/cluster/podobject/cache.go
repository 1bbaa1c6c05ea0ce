// Package podobject maintains the objects of this node's pods at an API server: a Cache follows them by a watch, and
// a Publisher writes their statuses and deletes the objects of pods that have ended. No other package does either.
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
	"k8s.io/apimachinery/pkg/watch"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/lastknown"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Pods are the pods of this node at an API server.
type Pods interface {
	// Watch passes the pods, and their changes, until ctx ends (apiclient.Client.Watch).
	Watch(ctx context.Context, to apiclient.Sight)
	// PatchStatus applies a strategic merge patch to a pod's status, and returns the object as the server has it.
	PatchStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod, error)
	// Create creates a mirror pod. A node may not create other pods.
	Create(ctx context.Context, mirror *v1.Pod) (*v1.Pod, error)
	// Delete deletes the object with this UID immediately, without a grace period.
	Delete(ctx context.Context, namespace, name string, uid types.UID) error
}

// Cache holds the newest state of this node's pods at the API server, from the watch and from the answers to writes.
// Mirror pods, which represent static pods, are listed separately. Its pods are read-only. Safe for concurrent use.
type Cache struct {
	pods Pods

	log logr.Logger

	mu     sync.RWMutex
	synced bool
	// malformed are the pods that can't be decoded, by namespace and name. away is why the watch fails; its err is
	// nil if the watch works.
	malformed map[types.NamespacedName]trouble
	away      trouble
	byUID     map[types.UID]*v1.Pod
	byName    map[types.NamespacedName]types.UID

	changed  wake.KeyedGroup[types.UID]
	troubled wake.Group
}

// trouble is an error, and since when it lasts.
type trouble struct {
	err   error
	since time.Time
}

// NewCache returns an empty cache. It makes no calls before Run.
func NewCache(p Pods, log logr.Logger) *Cache {
	return &Cache{pods: p, log: log, malformed: map[types.NamespacedName]trouble{}, byUID: map[types.UID]*v1.Pod{},
		byName: map[types.NamespacedName]types.UID{}}
}

// Run follows the API server's objects until ctx ends. The error is nil.
func (c *Cache) Run(ctx context.Context) error {
	c.pods.Watch(ctx, (*sight)(c))
	return nil
}

// Synced reports whether all pods were listed at least once.
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

// Pods returns all pods to run, in no order, and whether the list is complete.
func (c *Cache) Pods() ([]*v1.Pod, bool) { return c.list(false) }

// Mirrors returns all mirror pods, in no order, and whether the list is complete.
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

// mirrors reports whether a mirror pod represents this static pod, and not an earlier one of the same name.
func mirrors(m, static *v1.Pod) bool {
	hash, mirror := m.Annotations[v1.MirrorPodAnnotationKey]
	return mirror && hash == static.Annotations[pod.AnnotationConfigHash]
}

// Mirror reports whether a pod is a mirror pod.
func Mirror(p *v1.Pod) bool {
	_, mirror := p.Annotations[v1.MirrorPodAnnotationKey]
	return mirror
}

// Subscribe returns a slot that is woken for the UIDs of pods that were added, changed or deleted, mirror pods
// included, and for the empty UID after each list.
func (c *Cache) Subscribe() (changed *wake.Keyed[types.UID], stop func()) {
	return c.changed.Subscribe()
}

// Problems are the reasons why pods aren't up to date. The API client reports an unusable API server itself, so
// Problems doesn't include that.
func (c *Cache) Problems() []pod.Problem {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var list []pod.Problem
	if c.away.err != nil {
		list = append(list, pod.Problem{Source: pod.SourceAPI, Origin: lastknown.Origin,
			Message: "the node's pods can't be watched: " + c.away.err.Error() + "; the last received pods keep " +
				"running",
			Since: c.away.since})
	}
	for _, name := range slices.SortedFunc(maps.Keys(c.malformed), func(a, b types.NamespacedName) int {
		return cmp.Compare(a.String(), b.String())
	}) {
		t := c.malformed[name]
		list = append(list, pod.Problem{Source: pod.SourceAPI, Origin: lastknown.Origin, Pod: name.String(),
			Message: t.err.Error() +
				"; its last valid version keeps running: correct it, or check that the agent isn't older than the " +
				"API server",
			Since: t.since})
	}
	return list
}

// ProblemsChanged returns a channel that receives after Problems have changed. stop ends the subscription.
func (c *Cache) ProblemsChanged() (changed <-chan struct{}, stop func()) {
	return c.troubled.Subscribe()
}

// Answered stores an object that a write has returned, unless the watch has passed a newer state of it.
func (c *Cache) Answered(p *v1.Pod) {
	c.mu.Lock()
	taken := false
	if old := c.byUID[p.UID]; old != nil { // else it was deleted since
		if taken, _ = apiclient.Newer(p.ResourceVersion, old.ResourceVersion); taken {
			c.put(p)
		}
	}
	c.mu.Unlock()
	if taken {
		c.changed.Wake(p.UID)
	}
}

// put stores an object. mu is held.
func (c *Cache) put(p *v1.Pod) {
	// managedFields are as large as the rest of the object, and the agent doesn't use them.
	p.ManagedFields = nil
	c.byUID[p.UID] = p
	c.byName[nameOf(p)] = p.UID
}

// drop removes an object. mu is held.
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

// sight receives the results of the watch.
type sight Cache

// Listed replaces all objects, whatever the list's version: a store that was restored from a backup is older than the
// objects before (kubernetes/kubernetes#131115).
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
		// A restored store reuses versions.
		if old := c.byUID[p.UID]; old != nil && old.ResourceVersion == p.ResourceVersion &&
			equality.Semantic.DeepEqual(old, p) {
			continue
		}
		c.put(p)
		changed = append(changed, p.UID)
	}
	for uid := range gone {
		// A pod that can be neither decoded nor identified may be any pod that wasn't listed, unless another pod has
		// that pod's name now.
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

// refuse records a pod that can't be decoded. It returns the pod's UID; empty if the pod can't be identified. The map
// had has the earlier errors. mu is held.
func (c *Cache) refuse(m apiclient.Malformed, had map[types.NamespacedName]trouble) types.UID {
	name := types.NamespacedName{Namespace: m.Namespace, Name: m.Name}
	since := time.Now()
	if t, ok := had[name]; ok && t.err.Error() == m.Error() {
		since = t.since
	}
	if len(c.malformed) < maxMalformed {
		c.malformed[name] = trouble{m, since}
	}
	return cmp.Or(m.UID, c.byName[name])
}

// maxMalformed is how many pods that can't be decoded are reported.
const maxMalformed = 100

// Malformed records a change that can't be decoded. The previous state stays in use.
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

// Changed applies one change. A change that is older than the answer to a write is ignored.
func (s *sight) Changed(kind watch.EventType, o kruntime.Object) {
	p, ok := o.(*v1.Pod)
	if !ok {
		return
	}
	c := (*Cache)(s)
	changed := []types.UID{p.UID}
	c.mu.Lock()
	if _, was := c.malformed[nameOf(p)]; was { // it was corrected, or deleted
		delete(c.malformed, nameOf(p))
		defer c.troubled.Wake()
	}
	known, later := false, true
	if old := c.byUID[p.UID]; old != nil {
		later, known = apiclient.Newer(p.ResourceVersion, old.ResourceVersion)
	}
	switch {
	case kind == watch.Deleted:
		c.drop(p.UID)
	case known && !later:
		changed = nil
	default:
		if other, taken := c.byName[nameOf(p)]; taken && other != p.UID { // its deletion was missed
			c.drop(other)
			changed = append(changed, other)
		}
		c.put(p)
	}
	c.mu.Unlock()
	c.changed.Wake(changed...)
}

// Away records why pods aren't received. Their last state stays in use, and they continue to run.
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
		c.log.Error(err, "The node's pods aren't seen; the last received pods keep running")
	case had.err != nil && err == nil:
		c.log.Info("The node's pods are watched again", "duration", time.Since(had.since).Round(time.Second))
	}
	if own || had.err != nil {
		c.troubled.Wake()
	}
}
