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

// Assigner assigns exclusive resources of one kind, such as devices, to containers. It is the only writer of its
// assignments, and records them on disk. The Manager calls its assigners in the order of Config.Assigners. An
// Assigner must not wait for the Manager.
type Assigner interface {
	// Restore reads the assignments of earlier agents. It is called first. After an error, only the unreadable
	// assignments are lost.
	Restore() error
	// Run tracks which resources can be assigned, until ctx ends.
	Run(ctx context.Context) error
	// Assign assigns the requests of all containers of a pod, unless they are assigned already. An error may be a
	// *pod.Failure that is Rejected or has a reason to Wait. After an error, the pod's assignments are unchanged.
	Assign(context.Context, *v1.Pod) error
	// Awaits returns the failure with which Assign would make the pod Wait for a plugin, or nil.
	Awaits(*v1.Pod) *pod.Failure
	// Release removes the assignments of a pod, if it has any.
	Release(types.UID)
	// Unallocatable returns the numbers of assigned resources that aren't healthy. These aren't part of the node's
	// allocatable, so they don't reduce the number of healthy resources that are free.
	Unallocatable() map[v1.ResourceName]int64
	// Provide adds the container's assignments to the configuration that its instances are created with.
	Provide(context.Context, *v1.Pod, *v1.Container, *translate.Devices) error
	// PreStart prepares the container's assignments for another instance.
	PreStart(context.Context, *v1.Pod, *v1.Container) error
	// Starting is called right before the created instance with this ID starts, and started after the runtime has
	// started it, or has failed to.
	Starting(ctx context.Context, p *v1.Pod, c *v1.Container, id string) (started func(), err error)
	// Unthrottled reports whether a CPU limit of the pod as a whole would throttle CPUs that are a container's own.
	Unthrottled(*v1.Pod) bool
	// Fixes returns why the pod's allocation can't change from had to asks as long as the pod runs, and the detail for
	// the meter; "" if it can.
	Fixes(p *v1.Pod, had, asks *pod.Allocation) (why, detail string)
	// Health returns the health of the assignments, by container (KEP-4680). The pod is woken after it changes.
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

// assign calls the assigners for a pod that passed all other checks. An error is the reason why it isn't admitted.
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

// assignAll calls each assigner. If one fails, the assigners before it release their assignments, unless the pod runs
// already.
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

// takeBack releases the pod's assignments, those of the last assigner first.
func takeBack(assigners []Assigner, uid types.UID) {
	for _, a := range slices.Backward(assigners) {
		a.Release(uid)
	}
}

// readmit rejects a pod that an earlier agent admitted, as a kubelet does, if none of its containers runs and it
// would have to wait although Patience is 0.
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

// limitWait records when a pod began to wait for the reason in f, and rejects the pod when Patience is over. The next
// attempt is at that time, or at f.NotBefore if that is earlier.
func (m *Manager) limitWait(e *entry, f *pod.Failure) *pod.Failure {
	if f == nil {
		return nil // awaitedSince stays: an assigner may still return the same reason
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
	if f.NotBefore.IsZero() || due.Before(f.NotBefore) { // other changes wake it
		next.NotBefore = due
	}
	return &next
}

// waitedTooLong returns the failure that rejects a pod because it has waited for the reason in f for the whole of
// patience.
func waitedTooLong(f *pod.Failure, patience time.Duration) *pod.Failure {
	message := fmt.Sprintf("waited %s in vain for %s", patience, f.Message)
	if patience == 0 {
		message = "pods don't wait for " + f.Message
	}
	return &pod.Failure{Reason: pod.ReasonUnexpectedAdmissionError, Rejected: true, Message: message}
}

// allocatable is the capacity for pods, including assigned resources that aren't healthy any more.
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

// Assigned returns the container's assignments, which stay the same for all its later instances.
func (m *Manager) Assigned(ctx context.Context, p *v1.Pod, c *v1.Container) (translate.Devices, error) {
	var all translate.Devices
	for _, a := range m.conf.Assigners {
		if err := a.Provide(ctx, p, c, &all); err != nil {
			return translate.Devices{}, err
		}
	}
	return all, nil
}

// PreStart prepares the container's assignments for another instance.
func (m *Manager) PreStart(ctx context.Context, p *v1.Pod, c *v1.Container) error {
	for _, a := range m.conf.Assigners {
		if err := a.PreStart(ctx, p, c); err != nil {
			return err
		}
	}
	return nil
}

// Starting makes the container's assignments valid for its created instance, which starts next. The caller has to call
// started afterwards.
func (m *Manager) Starting(ctx context.Context, p *v1.Pod, c *v1.Container, id string) (started func(), err error) {
	all := make([]func(), 0, len(m.conf.Assigners))
	started = func() {
		for _, end := range all {
			end()
		}
	}
	for _, a := range m.conf.Assigners {
		end, err := a.Starting(ctx, p, c, id)
		if err != nil {
			started()
			return nil, err
		}
		all = append(all, end)
	}
	return started, nil
}

// Unthrottled reports whether the pod as a whole has no CPU limit, as a container has CPUs of its own.
func (m *Manager) Unthrottled(p *v1.Pod) bool {
	return slices.ContainsFunc(m.conf.Assigners, func(a Assigner) bool { return a.Unthrottled(p) })
}

// Health returns the health of a pod's assignments, by container (KEP-4680).
func (m *Manager) Health(uid types.UID) map[string][]v1.ResourceStatus {
	var all map[string][]v1.ResourceStatus // none, for most pods
	for _, a := range m.conf.Assigners {
		for container, list := range a.Health(uid) {
			if all == nil {
				all = map[string][]v1.ResourceStatus{}
			}
			all[container] = append(all[container], list...)
		}
	}
	return all
}
