package podstatus

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Entry is one pod with its current status. It is immutable.
type Entry struct {
	// Pod is the desired pod with Status filled in. A pod that is being stopped has a deletion timestamp.
	Pod    *v1.Pod
	Report pod.Report
}

// Store keeps the newest entry of each pod. All its methods may be called concurrently.
type Store struct {
	mu       sync.RWMutex
	entries  map[types.UID]*Entry
	sorted   []*Entry
	watchers wake.Group
	// followers are woken with the UIDs of changed entries.
	followers wake.KeyedGroup[types.UID]
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{entries: map[types.UID]*Entry{}}
}

// Publish replaces the pod's entry.
func (s *Store) Publish(uid types.UID, r pod.Report) {
	p := *r.Desired.Pod
	p.Status = *r.Status
	if r.Stopping && p.DeletionTimestamp == nil { // otherwise the timestamp is the API server's
		at := metav1.NewTime(r.StoppingAt)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, p.Spec.TerminationGracePeriodSeconds
	}
	s.change(uid, func() { s.entries[uid] = &Entry{Pod: &p, Report: r} })
}

// Forget drops the pod's entry, if there is one.
func (s *Store) Forget(uid types.UID) {
	s.change(uid, func() { delete(s.entries, uid) })
}

func (s *Store) change(uid types.UID, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.sorted = nil
	s.watchers.Wake()
	s.followers.Wake(uid)
}

// Follow returns a slot that is woken with the UIDs of pods whose entry changed or was removed. stop ends the
// subscription.
func (s *Store) Follow() (changed *wake.Keyed[types.UID], stop func()) {
	return s.followers.Subscribe()
}

// Watch returns a channel that receives after any entry changed. cancel ends the watch.
func (s *Store) Watch() (changed <-chan struct{}, cancel func()) {
	return s.watchers.Subscribe()
}

// Get returns one pod's entry, or nil.
func (s *Store) Get(uid types.UID) *Entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.entries[uid]
}

// Ended reports whether the pod's phase is final.
func (s *Store) Ended(uid types.UID) bool {
	e := s.Get(uid)
	return e != nil && pod.Terminal(e.Pod.Status.Phase) != ""
}

// List returns all entries, by namespace and name. The slice is shared: callers must not change it.
func (s *Store) List() []*Entry {
	s.mu.RLock()
	list := s.sorted
	s.mu.RUnlock()
	if list != nil {
		return list
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list = slices.AppendSeq(make([]*Entry, 0, len(s.entries)), maps.Values(s.entries)) // not nil, also if empty
	slices.SortFunc(list, func(x, y *Entry) int {
		a, b := x.Pod, y.Pod
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	s.sorted = list
	return list
}

// Named returns the entries of pods with this name: more than one while a pod is being replaced.
func (s *Store) Named(namespace, name string) []*Entry {
	list := s.List()
	first := sort.Search(len(list), func(i int) bool {
		p := list[i].Pod
		return p.Namespace > namespace || p.Namespace == namespace && p.Name >= name
	})
	end := first
	for end < len(list) && list[end].Pod.Namespace == namespace && list[end].Pod.Name == name {
		end++
	}
	return list[first:end:end]
}

// Pods returns every pod with its current status, by namespace and name.
func (s *Store) Pods() []*v1.Pod {
	list := s.List()
	pods := make([]*v1.Pod, len(list))
	for i, e := range list {
		pods[i] = e.Pod
	}
	return pods
}
