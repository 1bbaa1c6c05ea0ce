package allocation

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// request is a deferred resize.
type request struct {
	uid  types.UID
	need admission.Amount
	// priority, qos and turn determine the order of requests.
	priority int32
	qos      int
	turn     uint64
	// offered is the trigger because of which the pod was woken, since its request fits now; empty while the request
	// doesn't fit.
	offered string
}

// Triggers that make a deferred resize possible, as in the kubelet's metrics: an edit of the pod, another pod's
// resize or removal, or a change of the node's capacity.
const (
	retriedForEdit    = "pod_updated"
	retriedForResize  = "pod_resized"
	retriedForRemoval = "pods_removed"
	retriedAlways     = "periodic_retry"
)

// trigger returns the event that made the pod's request possible; empty if the pod has no deferred request.
func (q *queue) trigger(uid types.UID) string {
	i := q.index(uid)
	if i < 0 {
		return ""
	}
	return cmp.Or(q.requests[i].offered, retriedForEdit)
}

// before orders requests as documented for deferred resizes ("How kubelet retries Deferred resizes",
// https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/): by higher priority, better
// QoS class, and longer wait.
func before(a, b *request) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(b.qos, a.qos), cmp.Compare(a.turn, b.turn))
}

// queue contains the deferred requests, the next one first.
type queue struct {
	requests []*request
	turns    uint64
}

// requestOf returns the pod's request with its present place in the queue or, if it isn't queued, with a place behind
// all others.
func (q *queue) requestOf(p *v1.Pod, need admission.Amount) *request {
	w := &request{uid: p.UID, need: need, priority: pod.Priority(p)}
	switch p.Status.QOSClass {
	case v1.PodQOSGuaranteed:
		w.qos = 2
	case v1.PodQOSBurstable:
		w.qos = 1
	}
	if i := q.index(p.UID); i >= 0 {
		w.turn = q.requests[i].turn
		return w
	}
	q.turns++
	w.turn = q.turns
	return w
}

func (q *queue) index(uid types.UID) int {
	return slices.IndexFunc(q.requests, func(w *request) bool { return w.uid == uid })
}

// put queues the request, and replaces an earlier one of its pod.
func (q *queue) put(w *request) {
	q.drop(w.uid)
	i, _ := slices.BinarySearchFunc(q.requests, w, before)
	q.requests = slices.Insert(q.requests, i, w)
}

func (q *queue) drop(uid types.UID) {
	q.requests = slices.DeleteFunc(q.requests, func(w *request) bool { return w.uid == uid })
}

// free returns the resources that no pod holds. It is negative if pods were admitted beyond capacity.
func (m *Manager) free() admission.Amount {
	free := m.capacity.Minus(nil)
	for _, e := range m.pods {
		for name, n := range e.takes() {
			free[name] -= n
		}
	}
	return free
}

// walk iterates over the queue from its head, and subtracts each request that fits from the free resources. It calls
// seen for every request. A request that doesn't fit doesn't block those behind it. walk ends when seen returns false,
// and returns the resources that are then still free.
func (m *Manager) walk(seen func(w *request, fits bool) bool) admission.Amount {
	free := m.free()
	for _, w := range m.deferred.requests {
		growth := w.need.Beyond(m.pods[w.uid].takes())
		fits := growth.Short(free) == nil
		if !seen(w, fits) {
			break
		}
		if fits {
			free = free.Minus(growth)
		}
	}
	return free
}

// freeFor returns the resources that are free for a request: neither held by pods, nor needed by preceding requests
// that fit.
func (m *Manager) freeFor(w *request) admission.Amount {
	return m.walk(func(other *request, _ bool) bool { return before(other, w) < 0 })
}

// offer returns the pods to wake: those whose deferred requests fit now and didn't fit before, and, if resources were
// freed, those that wait for admission. trigger is the reason why requests may fit.
func (m *Manager) offer(freed bool, trigger string) []types.UID {
	var woken []types.UID
	if len(m.deferred.requests) > 0 {
		m.walk(func(w *request, fits bool) bool {
			switch {
			case !fits:
				w.offered = ""
			case w.offered == "":
				w.offered = trigger
				woken = append(woken, w.uid)
			}
			return true
		})
	}
	if freed {
		woken = append(woken, m.waiting()...)
	}
	if freed || len(woken) > 0 {
		m.moveResourcesFreedAt()
	}
	return woken
}

// countRequested counts, for the metrics, how an edit changes the containers' resources.
func (m *Manager) countRequested(had, asks *pod.Allocation) {
	for name, now := range asks.Containers {
		was := had.Containers[name]
		for _, resource := range [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			m.countChange(string(resource), "requests", was.Requests, now.Requests)
			m.countChange(string(resource), "limits", was.Limits, now.Limits)
		}
	}
}

func (m *Manager) countChange(resource, requirement string, was, now v1.ResourceList) {
	before, had := was[v1.ResourceName(resource)]
	after, has := now[v1.ResourceName(resource)]
	operation := ""
	switch c := after.Cmp(before); {
	case !had && has:
		operation = "add"
	case had && !has:
		operation = "remove"
	case c > 0:
		operation = "increase"
	case c < 0:
		operation = "decrease"
	default:
		return
	}
	m.conf.Meter.ResizeRequested(resource, requirement, operation)
}

// moveResourcesFreedAt makes ResourcesFreedAt strictly later than before, whatever the clock's resolution.
func (m *Manager) moveResourcesFreedAt() {
	now := time.Now()
	if !now.After(m.resourcesFreedAt) {
		now = m.resourcesFreedAt.Add(time.Nanosecond)
	}
	m.resourcesFreedAt = now
}
