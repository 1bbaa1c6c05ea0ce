// Package allocation is the one writer of what this node has granted to its pods:
// a pod runs with its allocation, which its spec may be ahead of while a resize is
// pending (KEP-1287, "In-place Update of Pod Resources"). Allocations are kept on
// disk, so that a restart neither takes room from a pod nor gives it twice.
package allocation

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/grant"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// kind names the records of this package in the store.
const kind = "allocation"

// Store keeps records of pods on disk.
type Store interface {
	// UIDs lists the pods that may have records.
	UIDs() ([]types.UID, error)
	// Load reads a record into v; found is false if there is none or none that can be used.
	Load(uid types.UID, kind string, v any) (found bool, err error)
	// Save replaces a record; a durable one survives a loss of power.
	Save(uid types.UID, kind string, v any, durable bool) error
}

// Config is what a Manager is built from. Every field is needed.
type Config struct {
	Store Store
	// Allocatable is how much cpu and memory there is for pods at first: see SetAllocatable.
	Allocatable v1.ResourceList
	// Wake has a pod looked at again. It must not wait for the Manager.
	Wake func(types.UID)
	Log  logr.Logger
}

// Manager grants resources. It is safe for concurrent use.
type Manager struct {
	conf Config

	mu       sync.RWMutex
	capacity amount
	pods     map[types.UID]*entry
	line     line
	roomAt   time.Time
}

// entry is one pod. All but writing is guarded by the manager's mutex.
type entry struct {
	// writing is held while the pod's allocation is about to change, so that the
	// manager's mutex need not be held while the disk is waited for.
	writing sync.Mutex
	granted *pod.Allocation // nil until admitted
	holds   amount
	// asked is what is being written: it is taken already.
	asked amount
	ended bool
}

// takes is what others can't have because of this pod.
func (e *entry) takes() amount {
	if e.ended {
		return amount{}
	}
	return e.holds.atLeast(e.asked)
}

// New makes a manager. Restore has to come before anything else.
func New(c Config) *Manager {
	return &Manager{conf: c, capacity: amountOf(c.Allocatable), pods: map[types.UID]*entry{}}
}

// Restore reads what was granted before the agent's last end. The error tells of
// records that can't be used; their pods count as not admitted, all others as they were.
func (m *Manager) Restore() error {
	uids, err := m.conf.Store.UIDs()
	if err != nil {
		return fmt.Errorf("restore allocations: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, uid := range uids {
		var a *pod.Allocation
		found, err := m.conf.Store.Load(uid, kind, &a)
		if err != nil {
			errs = append(errs, fmt.Errorf("restore the allocation of pod %s: %w", uid, err))
		}
		if found && a != nil {
			m.pods[uid] = &entry{granted: a, holds: amountOf(a.Total)}
		}
	}
	return errors.Join(errs...)
}

// SetAllocatable changes how much there is for pods. Where that is less than what they
// hold, they keep it. RoomAt moves if there is more: also a resize that was infeasible may be
// possible now.
func (m *Manager) SetAllocatable(l v1.ResourceList) {
	m.mu.Lock()
	more := amountOf(l).minus(m.capacity)
	m.capacity = amountOf(l)
	woken := m.offer(more[cpu] > 0 || more[memory] > 0)
	m.mu.Unlock()
	m.wake(woken)
}

// Get is what was granted to the pod, or nil if it isn't admitted.
func (m *Manager) Get(uid types.UID) *pod.Allocation {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if e := m.pods[uid]; e != nil {
		return e.granted
	}
	return nil
}

// RoomAt is when room last appeared for resizes that were refused; zero if it
// never did. It moves strictly forward. Whoever asks for a resize notes RoomAt
// before, and after a deferral asks again once RoomAt is later: so no room that
// appears between the answer and its arrival is missed.
func (m *Manager) RoomAt() time.Time {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.roomAt
}

// Admit grants a new pod what its spec asks for. A pod that has an allocation
// keeps it, whatever its spec says by now; only what it takes beside its containers
// (spec.overhead, which its RuntimeClass gives it) counts as it is by now.
//
// The record isn't durable: should it be lost with the power, then no container
// of the pod runs any more either, and the pod is admitted anew.
func (m *Manager) Admit(p *v1.Pod) (*pod.Allocation, error) {
	e, done := m.hold(p.UID)
	defer done()
	return m.admit(e, p)
}

func (m *Manager) admit(e *entry, p *v1.Pod) (*pod.Allocation, error) {
	a := m.Get(p.UID)
	if a != nil {
		now := grant.Of(grant.Apply(p, a))
		if grant.SameList(now.Total, a.Total) && grant.SameList(now.Overhead, a.Overhead) {
			return a, nil
		}
		next := *a
		next.Total, next.Overhead, a = now.Total, now.Overhead, &next
	} else {
		a = grant.Of(p)
	}
	m.mu.Lock()
	e.asked = amountOf(a.Total)
	m.mu.Unlock()
	return m.write(e, p, a, false)
}

// Resize grants the pod what its spec asks for by now, all of it or nothing. A
// refusal is a *pod.Failure: Infeasible (permanent) where the node is too small,
// Deferred where others hold too much or have the first claim. A deferred pod
// keeps its place in line until it is granted something, is found infeasible, or asks
// for what it has already; it is woken when its turn has come. A pod that isn't
// admitted is admitted.
func (m *Manager) Resize(p *v1.Pod) (*pod.Allocation, error) {
	e, done := m.hold(p.UID)
	defer done()
	had := m.Get(p.UID)
	if had == nil {
		return m.admit(e, p)
	}
	asks := grant.Of(grant.KeepOverhead(p, had))
	if grant.Equal(had, asks) {
		return m.write(e, p, asks, false) // for another generation
	}
	m.mu.Lock()
	refusal, woken := m.judge(e, p, amountOf(asks.Total))
	if refusal == nil {
		e.asked = amountOf(asks.Total)
	}
	m.mu.Unlock()
	m.wake(woken)
	if refusal != nil {
		return nil, refusal
	}
	return m.write(e, p, asks, true)
}

// judge finds whether the resize can be granted. A refused one changes the line,
// by which others may come to be woken.
func (m *Manager) judge(e *entry, p *v1.Pod, need amount) (*pod.Failure, []types.UID) {
	if e.ended {
		return nil, nil // it takes nothing
	}
	growth := need.minus(e.takes())
	if over := growth.short(m.capacity.minus(e.takes())); over != nil {
		m.line.drop(p.UID)
		return &pod.Failure{Reason: v1.PodReasonInfeasible, Permanent: true, Message: m.tooSmall(need, over)}, m.offer(false)
	}
	w := m.line.wishOf(p, need)
	room := m.roomFor(w)
	over := growth.short(room)
	if over == nil {
		return nil, nil
	}
	m.line.put(w)
	used := m.capacity.minus(room).minus(e.takes())
	return &pod.Failure{Reason: v1.PodReasonDeferred, Message: m.tooFull(need, used, over)}, m.offer(false)
}

// tooSmall and tooFull are in the words that the kubelet's users know.
func (m *Manager) tooSmall(need amount, over []int) string {
	var parts []string
	for _, i := range over {
		parts = append(parts, fmt.Sprintf("%s, requested: %d, capacity: %d", names[i], need[i], m.capacity[i]))
	}
	return "Node didn't have enough capacity: " + strings.Join(parts, "; ")
}

func (m *Manager) tooFull(need, used amount, over []int) string {
	var parts []string
	for _, i := range over {
		parts = append(parts, fmt.Sprintf("%s, requested: %d, used: %d, capacity: %d", names[i], need[i], used[i], m.capacity[i]))
	}
	return "Node didn't have enough resource: " + strings.Join(parts, "; ")
}

// write puts on disk what has been asked for, and then makes it the allocation.
func (m *Manager) write(e *entry, p *v1.Pod, a *pod.Allocation, durable bool) (*pod.Allocation, error) {
	err := m.conf.Store.Save(p.UID, kind, a, durable)
	if err != nil && !durable {
		// What isn't durable can be found out again: no pod is kept from running for that.
		m.conf.Log.Error(err, "Can't keep what a pod was granted: if the agent restarts, it is granted anew", "pod", p.Namespace+"/"+p.Name)
		err = nil
	}
	m.mu.Lock()
	before := e.takes()
	e.asked = amount{}
	if err == nil {
		// What it had stays taken until the less that it has now is in force (Settled).
		e.granted, e.holds = a, amountOf(a.Total).atLeast(e.holds)
		m.line.drop(p.UID)
	}
	room := before.minus(e.takes())
	woken := m.offer(room[cpu] > 0 || room[memory] > 0)
	m.mu.Unlock()
	m.wake(woken)
	if err != nil {
		return nil, fmt.Errorf("keep the allocation of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return a, nil
}

// Settled says that what the pod was granted is in force: what it had beyond that
// is free for others.
func (m *Manager) Settled(uid types.UID) {
	if granted := m.Get(uid); granted != nil {
		m.free(uid, func(e *entry) { e.holds = amountOf(e.granted.Total) })
	}
}

// Release gives back what a pod takes that has ended for good, while what it was
// granted stays known, for its status. It holds until the agent's end.
func (m *Manager) Release(uid types.UID) {
	m.free(uid, func(e *entry) {
		m.line.drop(uid)
		e.ended = true
	})
}

// Forget releases all that the pod was granted, and forgets the pod. Its record on
// disk is the caller's to remove, with all others of the pod, before that.
func (m *Manager) Forget(uid types.UID) {
	m.free(uid, func(*entry) {
		m.line.drop(uid)
		delete(m.pods, uid)
	})
}

func (m *Manager) free(uid types.UID, how func(*entry)) {
	e, done := m.hold(uid)
	defer done()
	m.mu.Lock()
	before, after := e.takes(), amount{}
	how(e)
	if m.pods[uid] == e {
		after = e.takes()
	}
	room := before.minus(after)
	woken := m.offer(room[cpu] > 0 || room[memory] > 0)
	m.mu.Unlock()
	m.wake(woken)
}

// hold returns the pod's entry with its writing lock held, until done is called.
func (m *Manager) hold(uid types.UID) (e *entry, done func()) {
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
		e.writing.Unlock() // it was forgotten meanwhile
	}
}

func (m *Manager) wake(uids []types.UID) {
	for _, uid := range uids {
		m.conf.Log.V(2).Info("there may be room for a deferred resize", "uid", uid)
		m.conf.Wake(uid)
	}
}
