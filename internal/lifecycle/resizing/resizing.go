// Package resizing compares the resources that a pod asks for, those that it was allocated and
// those that are in force (KEP-1287).
package resizing

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// State is what is still to be done until a pod has the resources that its spec
// asks for.
type State struct {
	// Wanted says that the allocation is for an earlier version of the spec.
	Wanted bool
	// InPlace are running containers to be resized to their allocation, Restart those that
	// have to be restarted for it, by their resizePolicy.
	InPlace, Restart []*container.Container
	// Pod says that the pod's cgroup allows something else than is allocated, or may do so.
	Pod bool

	// unmoved are running containers that aren't resized and have other limits of the
	// pod as a whole than are allocated now: init and ephemeral ones.
	unmoved             []*container.Container
	allocation, allowed *pod.Allocation
	unsure              bool
	checkpoint          *pod.Checkpoint
}

// Measure finds out the state. a is the allocation, nil for none yet; allowed
// what the pod's cgroup allows, nil if that isn't known; unsure says that it was asked to
// allow something else since, which it may or may not have done.
func Measure(p *v1.Pod, containers container.List, a, allowed *pod.Allocation, unsure bool, k *pod.Checkpoint) State {
	s := State{allocation: a, allowed: allowed, unsure: unsure, checkpoint: k}
	if a == nil {
		return s
	}
	// This holds also for a spec that asks for what is allocated already: an earlier
	// resize may still be deferred.
	s.Wanted = a.Generation != p.Generation
	for i := range containers {
		m := &containers[i]
		if !m.Runs() {
			continue
		}
		granted, ok := a.Containers[m.Spec.Name]
		actual := Actual(m.Current, k)
		if actual == nil {
			continue
		}
		cpu, memory := allocated.Changed(inForce(*actual, under(m.Current, k)), inForce(granted, allocated.PodWide(a)))
		unknown := slices.Contains(k.Resizing, m.Current.ID)
		switch {
		case !cpu && !memory && !unknown:
		case !ok || !m.LongRunning():
			s.unmoved = append(s.unmoved, m)
		case cpu && restartsFor(m.Spec, v1.ResourceCPU) || memory && restartsFor(m.Spec, v1.ResourceMemory):
			s.Restart = append(s.Restart, m)
		default:
			s.InPlace = append(s.InPlace, m)
		}
	}
	s.Pod = allowed != nil && (unsure || allowed != a && !allocated.Equal(allowed, a))
	return s
}

// UnderWay reports whether the allocation isn't in force yet.
func (s *State) UnderWay() bool { return len(s.InPlace) > 0 || len(s.Restart) > 0 || s.Pod }

// Raised reports whether the pod's cgroup allows what is allocated: it is
// raised before its containers and lowered after them, so that limits never cross.
func (s *State) Raised() bool {
	return s.allowed != nil && !s.unsure && allocated.Equal(s.Meanwhile(), s.allowed)
}

// Meanwhile is what the pod's cgroup allows while its containers are being resized
// to what is allocated.
func (s *State) Meanwhile() *pod.Allocation { return allocated.Most(s.allowed, s.allocation) }

// Restarts reports whether a container has to be restarted to be resized, and may
// be by now.
func (s *State) Restarts(m *container.Container) bool {
	for _, r := range s.Restart {
		if r == m {
			return s.Raised()
		}
	}
	return false
}

// AtFirst is what the cgroup of a pod has to allow when the pod is prepared:
// what is allocated, and what its running containers still have.
func (s *State) AtFirst() *pod.Allocation {
	others := slices.Concat(s.InPlace, s.Restart, s.unmoved)
	if len(others) == 0 {
		return s.allocation
	}
	actual := &pod.Allocation{Containers: map[string]v1.ResourceRequirements{}}
	whole := under(others[0].Current, s.checkpoint)
	for _, m := range others {
		actual.Containers[m.Spec.Name] = *Actual(m.Current, s.checkpoint)
		whole = allocated.MostLimits(under(m.Current, s.checkpoint), whole)
	}
	if len(whole) > 0 {
		actual.Pod = &v1.ResourceRequirements{Limits: whole}
	}
	return allocated.Most(actual, s.allocation)
}

// inForce are resources with the limits that hold in a pod with these as a whole.
func inForce(r v1.ResourceRequirements, whole v1.ResourceList) v1.ResourceRequirements {
	r.Limits = allocated.LimitsUnder(whole, r.Limits)
	return r
}

// under are the pod-level limits that an instance was created or resized under.
func under(inst *pod.Container, k *pod.Checkpoint) v1.ResourceList {
	if _, resized := k.Resized[inst.ID]; resized {
		return k.ResizedUnder[inst.ID]
	}
	if inst.CreatedWith == nil {
		return nil
	}
	return inst.CreatedWith.PodLimits
}

// Actual are the resources that an instance has: those it was created with, or was
// resized to later; nil if unknown.
func Actual(inst *pod.Container, k *pod.Checkpoint) *v1.ResourceRequirements {
	if r, ok := k.Resized[inst.ID]; ok {
		return &r
	}
	if inst.CreatedWith == nil {
		return nil
	}
	return inst.CreatedWith.Resources
}

func restartsFor(c *v1.Container, name v1.ResourceName) bool {
	for _, p := range c.ResizePolicy {
		if p.ResourceName == name {
			return p.RestartPolicy == v1.RestartContainer
		}
	}
	return false
}
