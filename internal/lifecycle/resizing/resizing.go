// Package resizing compares the resources that a pod requests, those allocated to it and those in force (KEP-1287).
package resizing

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// State is the work that remains until a pod has the resources of its spec.
type State struct {
	// Wanted says that the allocation is for an earlier version of the spec.
	Wanted bool
	// InPlace are the running containers that have to be resized to their allocation. Restart are the containers
	// that have to be restarted instead, because of their resizePolicy.
	InPlace, Restart []*container.Container
	// Pod says that the pod's cgroup doesn't allow exactly the allocated resources, or may not.
	Pod bool

	// unmoved are running init and ephemeral containers: they aren't resized, and run under other pod-level limits
	// than are allocated now.
	unmoved             []*container.Container
	allocation, allowed *pod.Allocation
	unsure              bool
	checkpoint          *pod.Checkpoint
}

// Measure computes the state. a is the allocation, nil if there is none yet. allowed is the allocation that the pod's
// cgroup allowed last, nil if unknown. unsure says that a later change of the cgroup was requested, and that its
// result is unknown.
func Measure(p *v1.Pod, containers container.List, a, allowed *pod.Allocation, unsure bool, k *pod.Checkpoint) State {
	s := State{allocation: a, allowed: allowed, unsure: unsure, checkpoint: k}
	if a == nil {
		return s
	}
	// The spec may request exactly the allocated resources: Wanted is set even then, because an earlier resize may
	// still be deferred.
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

// Raised reports whether the pod's cgroup allows the allocated resources. The pod's limits are raised before those of
// its containers and lowered after them, so that no container exceeds the pod.
func (s *State) Raised() bool {
	return s.allowed != nil && !s.unsure && allocated.Equal(s.Meanwhile(), s.allowed)
}

// Meanwhile is the allocation that the pod's cgroup allows while its containers are being resized.
func (s *State) Meanwhile() *pod.Allocation { return allocated.Most(s.allowed, s.allocation) }

// Restarts reports whether a container has to be restarted to be resized, and may be restarted now.
func (s *State) Restarts(m *container.Container) bool {
	return slices.Contains(s.Restart, m) && s.Raised()
}

// AtFirst is the allocation that the pod's cgroup has to allow when the pod is prepared: it covers the allocated
// resources and the resources that running containers still have.
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

// inForce returns the resources r of a container, with each limit reduced to the pod-level limit (in the argument
// whole) if that is lower.
func inForce(r v1.ResourceRequirements, whole v1.ResourceList) v1.ResourceRequirements {
	r.Limits = allocated.LimitsUnder(whole, r.Limits)
	return r
}

// under returns the pod-level limits that applied when an instance was created or last resized.
func under(inst *pod.Container, k *pod.Checkpoint) v1.ResourceList {
	if _, resized := k.Resized[inst.ID]; resized {
		return k.ResizedUnder[inst.ID]
	}
	if inst.CreatedWith == nil {
		return nil
	}
	return inst.CreatedWith.PodLimits
}

// Actual are the resources that an instance was created with or last resized to; nil if unknown.
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
