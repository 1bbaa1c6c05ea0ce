package manager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
	"github.com/deckhand-node/deckhand/internal/volume/operations"
)

// adopt takes over the volumes that an earlier agent has mounted only for ephemeral containers: all volumes of those
// that run, and of those that have ended the emptyDirs, because their files still count for the limits of the pod. The
// pod doesn't depend on these volumes, so a failure is only reported in an event, and Run tries again. adopt waits at
// most Config.Early for all of them; a mount that takes longer continues.
func (m *Manager) adopt(ctx context.Context, p *v1.Pod, objects object.View) {
	for _, e := range m.takeOver(ctx, p, objects) {
		m.conf.Recorder.Event(p, e)
	}
}

// unadopted is a pod with volumes that adopt couldn't take over, and the events that report the failures.
type unadopted struct {
	objects object.View
	failed  []pod.Event
}

// adoptAgain starts to take over the volumes that adopt couldn't. It records events for new failures only.
func (m *Manager) adoptAgain(ctx context.Context) {
	m.mu.Lock()
	left := maps.Clone(m.unadopted)
	m.mu.Unlock()
	for uid, before := range left {
		p := m.conf.Pod(uid)
		if p == nil { // it is being stopped
			continue
		}
		m.ops.Start(ctx, operations.Task{Key: operations.Key("pods/" + string(uid) + "/adopt"),
			Kind: volumestate.Mount + "volumes of ephemeral containers", Owner: string(uid),
			Do: func(ctx context.Context, _ *operations.Operation) error {
				for _, e := range m.takeOver(ctx, p, before.objects) {
					if !slices.ContainsFunc(before.failed, func(f pod.Event) bool { return f.Message == e.Message }) {
						m.conf.Recorder.Event(p, e)
					}
				}
				return nil
			}})
	}
}

// takeOver does the work of adopt, and returns the events for failures.
func (m *Manager) takeOver(ctx context.Context, p *v1.Pod, objects object.View) (failed []pod.Event) {
	if len(p.Spec.EphemeralContainers) == 0 || safeopen.Check("pod UID", string(p.UID)) != nil {
		return nil
	}
	there, err := m.layout.List(p.UID)
	if err != nil {
		m.log.Error(err, "Can't find emptyDirs of ended ephemeral containers", "pod", klog.KObj(p))
	}
	errs := make([]error, len(p.Spec.EphemeralContainers))
	var all sync.WaitGroup
	for i := range p.Spec.EphemeralContainers {
		c := (*v1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		all.Go(func() { errs[i] = m.adoptFor(ctx, p, m.adoptable(p, c, there), objects) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil
	}
	for i, err := range errs {
		if c := &p.Spec.EphemeralContainers[i]; err != nil {
			reason, why := pod.ReasonFailedMount, err.Error()
			if f, ok := errors.AsType[*pod.Failure](err); ok {
				reason, why = f.Reason, f.Message
			}
			failed = append(failed, pod.Event{Type: v1.EventTypeWarning, Reason: reason, Container: c.Name,
				Message: fmt.Sprintf("Volumes of ephemeral container %q can't be taken over: %s", c.Name, why)})
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if delete(m.unadopted, p.UID); len(failed) > 0 {
		m.unadopted[p.UID] = unadopted{objects, failed}
		m.wake.Wake()
	}
	return failed
}

// adoptFor takes over the volumes that one container mounts.
func (m *Manager) adoptFor(ctx context.Context, p *v1.Pod, c *v1.Container, objects object.View) error {
	bounded, cancel := context.WithTimeout(ctx, m.conf.Early)
	defer cancel()
	err := m.PrepareContainer(bounded, p, c, objects)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("not mounted after %s", m.conf.Early)
	}
	return err
}

// adoptable returns a copy of the ephemeral container that has only the mounts of volumes that adopt takes over. The
// argument there lists the places of the pod's volumes that exist on disk.
func (m *Manager) adoptable(p *v1.Pod, c *v1.Container, there []volumestate.Place) *v1.Container {
	some := *c
	some.VolumeMounts, some.VolumeDevices = nil, nil
	others, runs := permanent(p), m.conf.ContainerRuns(p.UID, c.Name)
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		left := v.EmptyDir != nil && slices.ContainsFunc(there, func(at volumestate.Place) bool {
			plugin := m.pluginOf(at)
			return at.Name == v.Name && plugin != nil && plugin.Supports(volume.Spec{Volume: v})
		})
		if pod.Mounts(c, v.Name) && (runs || left) &&
			!slices.ContainsFunc(others, func(o *v1.Container) bool { return volumestate.Uses(p, o, v) }) {
			some.VolumeMounts = append(some.VolumeMounts, v1.VolumeMount{Name: v.Name})
		}
	}
	return &some
}

// permanent returns the containers of the pod that aren't ephemeral.
func permanent(p *v1.Pod) []*v1.Container {
	var list []*v1.Container
	for name := range pod.ContainerNames(p) {
		if !pod.IsEphemeral(p, name) {
			list = append(list, pod.ContainerNamed(p, name))
		}
	}
	return list
}

// startedWith returns the containers that may use volumes of a pod that an earlier agent has started: all but the
// ephemeral ones that don't run.
func (m *Manager) startedWith(p *v1.Pod) []*v1.Container {
	list := permanent(p)
	for i := range p.Spec.EphemeralContainers {
		c := (*v1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		if m.conf.ContainerRuns(p.UID, c.Name) {
			list = append(list, c)
		}
	}
	return list
}
