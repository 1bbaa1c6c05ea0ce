package allocation

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Admit admits a new pod and allocates its requests, or returns a *pod.Failure. The failure either is Rejected or has a
// reason to Wait. A waiting pod is woken when resources are freed. A pod that has an allocation, or a sandbox or
// container in the runtime, is admitted whatever the state of the node is (see Allocated).
//
// Each call decides on all undecided pods that should run, by creation time and then by name. So the order of the calls
// doesn't matter.
func (m *Manager) Admit(ctx context.Context, p *v1.Pod) (*pod.Allocation, error) {
	e, done := m.lockEntry(p.UID)
	defer done()
	if m.Get(p.UID) == nil {
		failure, woken := m.decide(e, p)
		m.wake(woken)
		if failure != nil {
			takeBack(m.conf.Assigners, p.UID) // left by an earlier agent that stopped before it admitted the pod
			return nil, failure
		}
		if err := m.assign(ctx, e, p); err != nil {
			return nil, err
		}
	}
	return m.allocate(e, p)
}

// Termination returns the preemption of the pod, or nil.
func (m *Manager) Termination(uid types.UID) *pod.PodTermination {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if e := m.pods[uid]; e != nil {
		return e.termination
	}
	return nil
}

// applicant is a pod that awaits a decision.
type applicant struct {
	*entry
	pod *v1.Pod
}

// before orders applicants: waiting pods come first, in the order in which they began to wait; other pods follow by
// age.
func (a applicant) before(b applicant) int {
	turn := func(x applicant) uint64 {
		if x.waits() {
			return x.turn
		}
		return math.MaxUint64
	}
	return cmp.Or(cmp.Compare(turn(a), turn(b)), a.pod.CreationTimestamp.Time.Compare(b.pod.CreationTimestamp.Time),
		cmp.Compare(a.pod.Name, b.pod.Name), cmp.Compare(a.pod.Namespace, b.pod.Namespace))
}

// waits reports whether admission was decided on, but the pod was neither admitted nor rejected.
func (e *entry) waits() bool { return e.failure != nil && !e.failure.Rejected }

// decide returns why the pod isn't admitted, or nil if it is, and the pods to wake. It decides on all undecided pods.
func (m *Manager) decide(e *entry, p *v1.Pod) (*pod.Failure, []types.UID) {
	node := *m.conf.Node()
	m.mu.Lock()
	defer m.mu.Unlock()
	node.AwaitsPlugin = m.awaited
	if e.judged == p && !e.waits() {
		return e.failure, nil
	}
	e.judged = nil // e.writing is held, so no earlier version is being written
	wanted := map[types.UID]Pod{p.UID: {Pod: p}}
	var open []applicant
	for w := range m.conf.Pods {
		if w.UID != p.UID && !w.Ending {
			open = m.addApplicant(open, w.Pod)
		}
		if w.UID != p.UID {
			wanted[w.UID] = w
		}
	}
	open = m.addApplicant(open, p)
	judge := admission.NewJudge(&node, m.allocatable())
	for _, h := range m.held(wanted) {
		judge.Add(h)
	}
	slices.SortFunc(open, applicant.before)
	var woken []types.UID
	for _, a := range open {
		need, waited := admission.Need(a.pod), a.waits()
		answer := judge.Admit(a.pod, need)
		if a.unassigned = a.unassigned && a.entry != e && a.judged == a.pod && answer.Failure == nil; a.unassigned {
			answer.Failure = a.failure
		}
		answer.Failure = m.limitWait(a.entry, answer.Failure)
		if f := answer.Failure; f != nil && f.Rejected {
			m.conf.Meter.Rejected(f.Reason)
		}
		a.judged, a.failure = a.pod, answer.Failure
		if !waited && a.waits() {
			m.turns++
			a.turn = m.turns
		}
		if waited && !a.waits() && a.entry != e {
			woken = append(woken, a.pod.UID) // the pod's worker has to call Admit again
			m.moveResourcesFreedAt()
		}
		f := answer.Failure
		if f == nil || !f.Rejected && (a.unassigned || f.Wait == pod.WaitForRoom || f.Wait == pod.WaitForPlugin) {
			a.asked = need
			judge.Add(admission.Held{UID: a.pod.UID, Pod: a.pod, Amount: need})
		}
		for _, uid := range answer.Preempt {
			m.pods[uid].termination = admission.Preempted(time.Now())
			m.conf.Meter.Preempted(strings.TrimPrefix(string(answer.Failure.Reason), string(pod.ReasonOutOf)))
		}
		woken = append(woken, answer.Preempt...)
	}
	return e.failure, append(woken, m.offer(false, retriedForEdit)...)
}

// addApplicant adds the pod to the applicants, unless it is already decided. A pod that runs is admitted. A preempted
// pod gets no more resources.
func (m *Manager) addApplicant(open []applicant, p *v1.Pod) []applicant {
	e := m.pods[p.UID]
	if e == nil {
		e = &entry{}
		m.pods[p.UID] = e
	}
	switch {
	case e.allocated != nil || e.ended || e.termination != nil || e.judged == p && !e.waits():
	case e.judged != nil && e.failure == nil: // the allocation of an earlier version may just be being written
	case m.conf.Runs(p.UID):
		e.judged, e.failure, e.asked = p, nil, admission.Need(p)
	default:
		e.asked = nil
		open = append(open, applicant{e, p})
	}
	return open
}

// held returns the resources of admitted pods, sorted by UID. Pods that no source has reported are terminating, or
// belong to a source that hasn't reported yet. They count as terminating, so that other pods wait instead of being
// rejected too early.
func (m *Manager) held(wanted map[types.UID]Pod) []admission.Held {
	var list []admission.Held
	for uid, e := range m.pods {
		if amount := e.takes(); len(amount) > 0 {
			w, ok := wanted[uid]
			list = append(list, admission.Held{UID: uid, Pod: w.Pod, Amount: amount, Ending: !ok || w.Ending ||
				e.ending || e.termination != nil})
		}
	}
	slices.SortFunc(list, func(a, b admission.Held) int { return cmp.Compare(a.UID, b.UID) })
	return list
}

// Holding describes the node's resources that are reserved for a pod.
type Holding struct {
	// Requests are unavailable to other pods: the pod's requests (during a resize, the greater of the old and the new
	// ones), and 1 of the resource "pods".
	Requests admission.Amount
	// Allocation is the pod's allocation; nil until it is admitted.
	Allocation *pod.Allocation
}

// Holdings returns the resources reserved for each pod.
func (m *Manager) Holdings() map[types.UID]Holding {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := map[types.UID]Holding{}
	for uid, e := range m.pods {
		if amount := e.takes(); len(amount) > 0 {
			all[uid] = Holding{amount, e.allocated}
		}
	}
	return all
}

// waiting returns the pods that wait for admission.
func (m *Manager) waiting() []types.UID {
	var uids []types.UID
	for uid, e := range m.pods {
		if e.waits() && !e.ended {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}
