// Package allocation is the only writer of the resources allocated to the pods of this node. Package admission
// decides which pods are admitted, and this package allocates their requests. A pod runs with its allocation, which
// may differ from its spec while a resize is pending (KEP-1287, "In-place Update of Pod Resources"). Allocations are
// recorded on disk, so that a restart neither takes resources from a pod nor allocates them twice.
package allocation

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// kind is the name of this package's records in the store.
const kind = "allocation"

// Store keeps records of pods on disk.
type Store interface {
	// UIDs lists the pods that may have records.
	UIDs() ([]types.UID, error)
	// Load reads a record into v; found is false if there is no usable record.
	Load(uid types.UID, kind string, v any) (found bool, err error)
	// Save replaces a record; a durable one survives a power loss.
	Save(uid types.UID, kind string, v any, durable bool) error
}

// Config configures a Manager. All fields are required.
type Config struct {
	Store Store
	// Allocatable is the initial allocatable of the node; NodeChanged changes it.
	Allocatable v1.ResourceList
	// Node returns the current facts about the node that admission depends on.
	Node func() *admission.Node
	// Pods yields all pods that should run here. All pods of one report of a source appear at the same time. Like Runs,
	// it must not wait for the Manager.
	Pods iter.Seq[Pod]
	// Runs reports whether the runtime has a sandbox or container of a pod: an earlier agent must have admitted the
	// pod.
	Runs func(types.UID) bool
	// Ended reports whether a pod has ended for good under an earlier agent. Such a pod holds resources only if Left
	// lists it: Left returns the pods whose cgroups exist.
	Ended func(types.UID) (bool, error)
	Left  func() ([]types.UID, error)
	// Assigners assign exclusive resources to pods that passed all other checks, in this order.
	Assigners []Assigner
	// Patience limits how long pods wait, by reason; a reason without an entry has no limit. With 0, pods are rejected
	// at once, as by the kubelet. This includes pods that an earlier agent has admitted, unless Lives reports that one
	// of their containers runs.
	Patience map[pod.WaitFor]time.Duration
	Lives    func(types.UID) bool
	// Wake reconciles a pod again. It must not wait for the Manager.
	Wake  func(types.UID)
	Meter Meter
	Log   logr.Logger
}

// Meter counts the results of pods' requests. It must not wait for the Manager.
type Meter interface {
	// Rejected is called for each rejected pod.
	Rejected(reason pod.Reason)
	// Preempted is called for each pod that is preempted to free a resource, such as "memory".
	Preempted(resource string)
	// ResizeRequested is called once for each resource ("cpu", "memory") and container whose "requests" or "limits"
	// an edit changes: "add", "remove", "increase" or "decrease".
	ResizeRequested(resource, requirement, operation string)
	ResizeInfeasible(detail string)
	// ResizeAccepted is called when a deferred resize is allocated, with the event that made it possible.
	ResizeAccepted(trigger string)
	// Resized is called with the time from a resize's allocation until it is in force.
	Resized(took time.Duration, failed bool)
}

// Pod is a pod that should run on this node.
type Pod struct {
	*v1.Pod
	// Ending means that the pod is terminating, so that its resources will soon be released.
	Ending bool
}

// Manager admits pods and allocates resources. It is safe for concurrent use.
type Manager struct {
	conf Config

	mu       sync.RWMutex
	capacity admission.Amount
	// awaited are the resources whose device plugin hasn't registered yet.
	awaited  map[v1.ResourceName]bool
	pods     map[types.UID]*entry
	deferred queue
	// turns counts the pods that have started to wait.
	turns uint64
	// resourcesFreedAt is the result of ResourcesFreedAt.
	resourcesFreedAt time.Time
}

// entry is one pod. The manager's mutex guards all fields but writing.
type entry struct {
	// writing is held while the pod's allocation is changed, so that the manager's mutex needn't be held during disk
	// writes.
	writing   sync.Mutex
	allocated *pod.Allocation // nil until admitted
	holds     admission.Amount
	// asked are the resources that are reserved for an admitted pod until its allocation is recorded.
	asked admission.Amount
	ended bool
	// ending means that the pod has ended under an earlier agent, but still holds its resources.
	ending bool
	// judged is the version of the pod on which admission was decided; nil while the pod is undecided. failure is the
	// reason why that version isn't admitted; nil if it is admitted.
	judged  *v1.Pod
	failure *pod.Failure
	// unassigned means that the pod passed all checks except an assigner's. Only the pod's own worker can retry the
	// assignment.
	unassigned bool
	// turn is the pod's position among waiting pods.
	turn uint64
	// termination is set once the pod is preempted.
	termination *pod.PodTermination
	// awaited is the last reason for which the pod waits, awaitedSince the start of this wait.
	awaited      pod.WaitFor
	awaitedSince time.Time
	// asks are the resources in the last version of the pod that requested a resize. resizing is when a resize was
	// allocated that isn't in force yet; it is zero if there is none.
	asks     *pod.Allocation
	resizing time.Time
}

// takes returns the resources that are unavailable to other pods because of this one.
func (e *entry) takes() admission.Amount {
	if e.ended {
		return nil
	}
	return e.holds.AtLeast(e.asked)
}

// New returns a Manager. Restore has to be called first.
func New(c Config) *Manager {
	return &Manager{conf: c, capacity: admission.AmountOf(c.Allocatable), pods: map[types.UID]*entry{}}
}

// Restore reads the allocations and assignments of earlier agents. The error lists the unusable records: their pods
// count as not admitted, or have no assignments. Other pods aren't affected.
func (m *Manager) Restore() error {
	errs := []error{m.restore()}
	for _, a := range m.conf.Assigners {
		errs = append(errs, a.Restore())
	}
	return errors.Join(errs...)
}

func (m *Manager) restore() error {
	uids, err := m.conf.Store.UIDs()
	if err != nil {
		return fmt.Errorf("restore allocations: %w", err)
	}
	left, err := m.conf.Left()
	m.mu.Lock()
	defer m.mu.Unlock()
	errs := []error{err}
	for _, uid := range uids {
		var a *pod.Allocation
		found, err := m.conf.Store.Load(uid, kind, &a)
		if err != nil {
			errs = append(errs, fmt.Errorf("restore the allocation of pod %s: %w", uid, err))
		}
		ended, err := m.conf.Ended(uid)
		if err != nil {
			errs = append(errs, fmt.Errorf("restore whether pod %s has ended: %w", uid, err))
		}
		switch {
		case found && a != nil:
			unclean := ended && slices.Contains(left, uid)
			m.pods[uid] = &entry{allocated: a, holds: admission.Holding(a), ended: ended && !unclean, ending: unclean}
		case ended:
			m.pods[uid] = &entry{ended: true}
		}
	}
	return errors.Join(errs...)
}

// NodeChanged updates the allocatable resources of the node, and the resources whose device plugin hasn't registered
// yet. If there are fewer resources than pods hold, the pods keep them. If there are more, ResourcesFreedAt advances:
// even an infeasible resize may be possible now. Pods that wait for admission try again.
func (m *Manager) NodeChanged(l v1.ResourceList, awaited map[v1.ResourceName]bool) {
	m.mu.Lock()
	now := admission.AmountOf(l)
	more := now.Minus(m.capacity)
	m.capacity, m.awaited = now, awaited
	woken := m.offer(more.Positive() || len(m.waiting()) > 0, retriedAlways)
	m.mu.Unlock()
	m.wake(woken)
}

// Get returns the pod's allocation, or nil if it isn't admitted.
func (m *Manager) Get(uid types.UID) *pod.Allocation {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if e := m.pods[uid]; e != nil {
		return e.allocated
	}
	return nil
}

// ResourcesFreedAt returns when resources were last freed for pods that were refused or wait; zero if never. It
// strictly increases. A caller reads this time before it makes a request. If the request is refused, the caller retries
// once the time is later. So the caller doesn't miss resources that are freed between its request and the refusal.
func (m *Manager) ResourcesFreedAt() time.Time {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.resourcesFreedAt
}

// Allocated returns the pod's allocation, whatever the pod's current spec is. Only the overhead (spec.overhead, which
// the pod's RuntimeClass sets) is current. For a pod without a record, the pod's requests are allocated: the pod was
// admitted before (Admit), perhaps by an earlier agent whose record is lost.
//
// The record isn't durable: if it is lost in a power failure, no container of the pod is running any more either, and
// the pod is admitted again.
func (m *Manager) Allocated(p *v1.Pod) (*pod.Allocation, error) {
	e, done := m.lockEntry(p.UID)
	if err := m.readmit(e, p); err != nil {
		done()
		m.Release(p.UID)
		return nil, err
	}
	defer done()
	return m.allocate(e, p)
}

func (m *Manager) allocate(e *entry, p *v1.Pod) (*pod.Allocation, error) {
	a := m.Get(p.UID)
	if a != nil {
		now := allocated.Of(allocated.Apply(p, a))
		if allocated.SameList(now.Total, a.Total) && allocated.SameList(now.Overhead, a.Overhead) {
			return a, nil
		}
		next := *a
		next.Total, next.Overhead, a = now.Total, now.Overhead, &next
	} else {
		a = allocated.Of(p)
	}
	m.mu.Lock()
	e.asked = admission.Holding(a)
	m.mu.Unlock()
	return m.write(e, p, a, false)
}

// Resize allocates the requests of the pod's current spec, all of them or none. A refusal is a *pod.Failure: Infeasible
// (permanent) if the node is too small, Deferred if other pods hold too much or are earlier in the queue. A deferred
// pod keeps its place in the queue until resources are allocated to it, its resize is infeasible, or it requests its
// current allocation. It is woken when its turn has come. For a pod that runs without a record, its requests are
// allocated.
func (m *Manager) Resize(p *v1.Pod) (*pod.Allocation, error) {
	e, done := m.lockEntry(p.UID)
	defer done()
	had := m.Get(p.UID)
	if had == nil {
		return m.allocate(e, p)
	}
	asks := allocated.Of(allocated.KeepOverhead(p, had))
	if allocated.Equal(had, asks) {
		return m.write(e, p, asks, false) // only the generation may differ
	}
	m.mu.Lock()
	if e.asks == nil {
		e.asks = had
	}
	if !allocated.Equal(e.asks, asks) {
		m.countRequested(e.asks, asks)
		e.asks = asks
	}
	trigger := m.deferred.trigger(p.UID)
	refusal, infeasible, woken := m.checkResize(e, p, asks)
	if refusal == nil {
		e.asked = admission.Holding(asks)
	}
	m.mu.Unlock()
	m.wake(woken)
	if refusal != nil {
		if refusal.Permanent {
			m.conf.Meter.ResizeInfeasible(infeasible)
		}
		return nil, refusal
	}
	a, err := m.write(e, p, asks, true)
	if err == nil {
		if trigger != "" {
			m.conf.Meter.ResizeAccepted(trigger)
		}
		m.mu.Lock()
		e.resizing = time.Now()
		m.mu.Unlock()
	}
	return a, err
}

// checkResize reports whether the resize is possible. For an infeasible one, it returns the detail for the meter. A
// refused resize changes the queue, so other pods may have to be woken.
func (m *Manager) checkResize(e *entry, p *v1.Pod, asks *pod.Allocation) (f *pod.Failure, infeasible string,
	woken []types.UID) {
	if e.ended {
		return nil, "", nil // it holds no resources
	}
	for _, a := range m.conf.Assigners {
		if why, detail := a.Fixes(p, e.allocated, asks); why != "" {
			m.deferred.drop(p.UID)
			return &pod.Failure{Reason: v1.PodReasonInfeasible, Permanent: true, Message: why}, detail,
				m.offer(false, retriedForEdit)
		}
	}
	need := admission.Holding(asks)
	growth := need.Beyond(e.takes())
	if over := growth.Short(m.capacity.Minus(e.takes())); over != nil {
		m.deferred.drop(p.UID)
		return &pod.Failure{Reason: v1.PodReasonInfeasible, Permanent: true,
				Message: admission.Insufficient(over, need, nil, m.capacity)}, "insufficient_node_allocatable",
			m.offer(false, retriedForEdit)
	}
	w := m.deferred.requestOf(p, need)
	free := m.freeFor(w)
	over := growth.Short(free)
	if over == nil {
		return nil, "", nil
	}
	m.deferred.put(w)
	used := m.capacity.Minus(free).Minus(e.takes())
	message := admission.Insufficient(over, need, used, m.capacity)
	return &pod.Failure{Reason: v1.PodReasonDeferred, Message: message}, "", m.offer(false, retriedForEdit)
}

// write saves the allocation a of pod p on disk, and then makes it the pod's allocation.
func (m *Manager) write(e *entry, p *v1.Pod, a *pod.Allocation, durable bool) (*pod.Allocation, error) {
	err := m.conf.Store.Save(p.UID, kind, a, durable)
	if err != nil && !durable {
		// A record that isn't durable can be restored from the running pod, so this is no reason to stop the pod.
		m.conf.Log.Error(err, "Can't save the allocation of a pod: if the agent restarts, it allocates again",
			"pod", klog.KRef(p.Namespace, p.Name))
		err = nil
	}
	m.mu.Lock()
	before := e.takes()
	e.asked = nil
	if err == nil {
		// The previous resources stay reserved until a smaller allocation is in force (MarkActuated).
		e.allocated, e.holds = a, admission.Holding(a).AtLeast(e.holds)
		m.deferred.drop(p.UID)
	}
	woken := m.offer(before.Minus(e.takes()).Positive(), retriedForResize)
	m.mu.Unlock()
	m.wake(woken)
	if err != nil {
		return nil, fmt.Errorf("save the allocation of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return a, nil
}

// MarkFailed records that an attempt to put the pod's allocation in force has failed. It will be retried.
func (m *Manager) MarkFailed(uid types.UID) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if e := m.pods[uid]; e != nil && !e.resizing.IsZero() {
		m.conf.Meter.Resized(time.Since(e.resizing), true)
	}
}

// MarkActuated records that the pod's allocation is in force, and frees the previous resources that aren't part of it.
func (m *Manager) MarkActuated(uid types.UID) {
	if m.Get(uid) != nil {
		m.release(uid, retriedForResize, func(e *entry) {
			e.holds = admission.Holding(e.allocated)
			if !e.resizing.IsZero() {
				m.conf.Meter.Resized(time.Since(e.resizing), false)
				e.resizing = time.Time{}
			}
		})
	}
}

// Release frees the resources of a pod that has ended for good. Get still returns its allocation, for the pod's status.
// The resources aren't reserved for the pod again as long as this agent runs.
func (m *Manager) Release(uid types.UID) {
	takeBack(m.conf.Assigners, uid)
	m.release(uid, retriedForRemoval, func(e *entry) {
		m.deferred.drop(uid)
		e.ended = true
	})
}

// Forget frees the pod's resources and removes the pod from the Manager. The caller has to remove the pod's records on
// disk before.
func (m *Manager) Forget(uid types.UID) {
	takeBack(m.conf.Assigners, uid)
	m.release(uid, retriedForRemoval, func(*entry) {
		m.deferred.drop(uid)
		delete(m.pods, uid)
	})
}

// Freed offers resources that an Assigner has freed by itself to the pods that wait.
func (m *Manager) Freed() {
	m.mu.Lock()
	woken := m.offer(true, retriedForRemoval)
	m.mu.Unlock()
	m.wake(woken)
}

func (m *Manager) release(uid types.UID, trigger string, how func(*entry)) {
	e, done := m.lockEntry(uid)
	defer done()
	m.mu.Lock()
	before, after := e.takes(), admission.Amount(nil)
	how(e)
	if m.pods[uid] == e {
		after = e.takes()
	}
	woken := m.offer(before.Minus(after).Positive(), trigger)
	m.mu.Unlock()
	m.wake(woken)
}

// lockEntry returns the pod's entry with its writing lock held, until done is called.
func (m *Manager) lockEntry(uid types.UID) (e *entry, done func()) {
	for {
		m.mu.Lock()
		e := m.pods[uid]
		if e == nil {
			e = &entry{}
			m.pods[uid] = e
		}
		m.mu.Unlock()
		e.writing.Lock()
		m.mu.RLock()
		current := m.pods[uid] == e
		m.mu.RUnlock()
		if current {
			return e, e.writing.Unlock
		}
		e.writing.Unlock() // the pod was forgotten meanwhile
	}
}

func (m *Manager) wake(uids []types.UID) {
	for _, uid := range uids {
		m.conf.Log.V(2).Info("There may be resources for the pod's resize", "podUID", uid)
		m.conf.Wake(uid)
	}
}
