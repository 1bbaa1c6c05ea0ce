package allocation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// Assigner is the one writer of what containers have for themselves of one kind, such as devices, and keeps that
// on disk. The Manager decides about pods, and asks the members of one list in their order. An Assigner must not
// wait for the Manager.
type Assigner interface {
	// Restore reads what earlier agents assigned. It is called first; after an error it goes on with what it could read.
	Restore() error
	// Run follows what there is to assign until ctx ends.
	Run(ctx context.Context) error
	// Assign gives all containers of a pod what they request, unless they have it. An error may be a *pod.Failure:
	// Rejected, or what to Wait for. Nothing is assigned then, and what the pod had stays its own.
	Assign(context.Context, *v1.Pod) error
	// Awaits returns what the pod would have to Wait for before it is assigned what it requests; nil for nothing.
	Awaits(*v1.Pod) *pod.Failure
	// Release takes from a pod what it has, if it has anything.
	Release(types.UID)
	// Unallocatable counts what pods have and what wouldn't be given to them now, as it isn't healthy: it doesn't take
	// the place of what is allocatable.
	Unallocatable() map[v1.ResourceName]int64
	// Provide adds what the container has to what its instances are created with.
	Provide(context.Context, *v1.Pod, *v1.Container, *translate.Devices) error
	// PreStart makes that ready for another instance.
	PreStart(context.Context, *v1.Pod, *v1.Container) error
	// Health returns how healthy that is, by container (KEP-4680). The pod is woken after it changes.
	Health(types.UID) map[string][]v1.ResourceStatus
}

// Run runs the assigners until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(m.conf.Assigners))
	var running sync.WaitGroup
	for i, a := range m.conf.Assigners {
		running.Go(func() {
			if errs[i] = a.Run(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// assign has a pod that is admitted otherwise assigned what it requests, or returns why it isn't admitted.
func (m *Manager) assign(ctx context.Context, e *entry, p *v1.Pod) error {
	err := m.assignAll(ctx, p)
	var f *pod.Failure
	if !errors.As(err, &f) {
		return err
	}
	m.mu.Lock()
	e.failure, e.unassigned = m.limitWait(e, f), true
	var woken []types.UID
	if e.failure.Rejected {
		m.conf.Meter.Rejected(e.failure.Reason)
		e.asked = nil
		woken = m.offer(true, retriedForRemoval)
	}
	f = e.failure
	m.mu.Unlock()
	m.wake(woken)
	return f
}

// assignAll asks each assigner. Where one fails, those before it take back what they gave, unless something of the
// pod runs, which keeps what it has.
func (m *Manager) assignAll(ctx context.Context, p *v1.Pod) error {
	for i, a := range m.conf.Assigners {
		if err := a.Assign(ctx, p); err != nil {
			if !m.conf.Runs(p.UID) {
				takeBack(m.conf.Assigners[:i], p.UID)
			}
			return err
		}
	}
	return nil
}

// takeBack takes from a pod what these have assigned to it, the last one first.
func takeBack(assigners []Assigner, uid types.UID) {
	for _, a := range slices.Backward(assigners) {
		a.Release(uid)
	}
}

// readmit rejects a pod that an earlier agent admitted, as a kubelet does, if none of its containers runs and it
// would have to wait for something that pods don't wait for.
func (m *Manager) readmit(e *entry, p *v1.Pod) error {
	if e.judged != nil || m.conf.Lives(p.UID) {
		return nil
	}
	for _, a := range m.conf.Assigners {
		f := a.Awaits(p)
		if f == nil {
			continue
		}
		if patience, limited := m.conf.Patience[f.Wait]; limited && patience == 0 {
			m.conf.Meter.Rejected(pod.ReasonUnexpectedAdmissionError)
			return waitedTooLong(f, patience)
		}
	}
	return nil
}

// limitWait notes since when a pod waits for what its failure says, and rejects it when that takes longer than pods
// have patience for it. It is tried again then, or when the failure says.
func (m *Manager) limitWait(e *entry, f *pod.Failure) *pod.Failure {
	if f == nil {
		return nil // it waits on if an assigner says the same
	}
	if f.Wait != e.awaited {
		e.awaited, e.awaitedSince = f.Wait, time.Now()
	}
	patience, limited := m.conf.Patience[f.Wait]
	if !limited {
		return f
	}
	due, next := e.awaitedSince.Add(patience), *f
	if !time.Now().Before(due) {
		return waitedTooLong(f, patience)
	}
	if f.NotBefore.IsZero() || due.Before(f.NotBefore) { // it is woken when what it waits for is there
		next.NotBefore = due
	}
	return &next
}

// waitedTooLong rejects a pod that has waited that long for what its failure says.
func waitedTooLong(f *pod.Failure, patience time.Duration) *pod.Failure {
	message := fmt.Sprintf("waited %s in vain for %s", patience, f.Message)
	if patience == 0 {
		message = "pods don't wait for " + f.Message
	}
	return &pod.Failure{Reason: pod.ReasonUnexpectedAdmissionError, Rejected: true, Message: message}
}

// allocatable is how much there is for pods, with what isn't allocatable any more and that pods have.
func (m *Manager) allocatable() admission.Amount {
	all := m.capacity.Minus(nil)
	for _, a := range m.conf.Assigners {
		for name, n := range a.Unallocatable() {
			if _, known := all[name]; known {
				all[name] += n
			}
		}
	}
	return all
}

// Assigned returns what the container has for itself, which stays the same for its next instances.
func (m *Manager) Assigned(ctx context.Context, p *v1.Pod, c *v1.Container) (translate.Devices, error) {
	var all translate.Devices
	for _, a := range m.conf.Assigners {
		if err := a.Provide(ctx, p, c, &all); err != nil {
			return translate.Devices{}, err
		}
	}
	return all, nil
}

// PreStart makes what the container has for itself ready for another instance.
func (m *Manager) PreStart(ctx context.Context, p *v1.Pod, c *v1.Container) error {
	for _, a := range m.conf.Assigners {
		if err := a.PreStart(ctx, p, c); err != nil {
			return err
		}
	}
	return nil
}

// Health returns how healthy that is what a pod's containers have for themselves, by container (KEP-4680).
func (m *Manager) Health(uid types.UID) map[string][]v1.ResourceStatus {
	all := map[string][]v1.ResourceStatus{}
	for _, a := range m.conf.Assigners {
		for container, list := range a.Health(uid) {
			all[container] = append(all[container], list...)
		}
	}
	return all
}
