// Package resizing compares what a pod asks for, what it was granted and what is
// in force (KEP-1287).
package resizing

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/grant"
	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// State is what is still to be done until a pod has the resources that its spec
// asks for.
type State struct {
	// Wanted says that the spec is a later version than what was granted for.
	Wanted bool
	// InPlace are running containers to be given what is granted, Restart those that
	// have to be restarted for it, by their resizePolicy.
	InPlace, Restart []*member.Member
	// Pod says that the pod's control group allows something else than is granted.
	Pod bool

	// unmoved are running containers that aren't resized and go by other limits of the
	// pod as a whole than are granted now: init and ephemeral ones.
	unmoved             []*member.Member
	allocation, allowed *pod.Allocation
	kept                *pod.Kept
}

// Measure finds out the state. a is what is granted, nil for nothing yet; allowed
// what the pod's control group allows, nil if that isn't known.
func Measure(p *v1.Pod, members member.List, a, allowed *pod.Allocation, k *pod.Kept) State {
	s := State{allocation: a, allowed: allowed, kept: k}
	if a == nil {
		return s
	}
	// Also a spec that asks again for what is granted is asked about: an earlier
	// wish may still be waiting for room.
	s.Wanted = a.Generation != p.Generation
	for i := range members {
		m := &members[i]
		if !m.Runs() {
			continue
		}
		granted, ok := a.Containers[m.Spec.Name]
		actual := Actual(m.Current, k)
		if actual == nil {
			continue
		}
		cpu, memory := grant.Changed(inForce(*actual, under(m.Current, k)), inForce(granted, grant.PodWide(a)))
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
	s.Pod = allowed != nil && allowed != a && !grant.Equal(allowed, a)
	return s
}

// UnderWay reports whether what is granted isn't in force yet.
func (s *State) UnderWay() bool { return len(s.InPlace) > 0 || len(s.Restart) > 0 || s.Pod }

// Raised reports whether the pod's control group allows what is granted: it is
// raised before its containers and lowered after them, so that limits never cross.
func (s *State) Raised() bool {
	return s.allowed != nil && grant.Equal(s.Meanwhile(), s.allowed)
}

// Meanwhile is what the pod's control group allows while containers are on their
// way from what they had to what is granted.
func (s *State) Meanwhile() *pod.Allocation { return grant.Most(s.allowed, s.allocation) }

// Restarts reports whether a container has to be restarted to be resized, and may
// be by now.
func (s *State) Restarts(m *member.Member) bool {
	for _, r := range s.Restart {
		if r == m {
			return s.Raised()
		}
	}
	return false
}

// AtFirst is what the control group of a pod has to allow when it is prepared:
// what is granted, and what its running containers still have.
func (s *State) AtFirst() *pod.Allocation {
	others := slices.Concat(s.InPlace, s.Restart, s.unmoved)
	if len(others) == 0 {
		return s.allocation
	}
	actual := &pod.Allocation{Containers: map[string]v1.ResourceRequirements{}}
	whole := under(others[0].Current, s.kept)
	for _, m := range others {
		actual.Containers[m.Spec.Name] = *Actual(m.Current, s.kept)
		whole = grant.MostLimits(under(m.Current, s.kept), whole)
	}
	if len(whole) > 0 {
		actual.Pod = &v1.ResourceRequirements{Limits: whole}
	}
	return grant.Most(actual, s.allocation)
}

// inForce are resources with the limits that hold in a pod with these as a whole.
func inForce(r v1.ResourceRequirements, whole v1.ResourceList) v1.ResourceRequirements {
	r.Limits = grant.LimitsUnder(whole, r.Limits)
	return r
}

// under are the limits of the pod as a whole that an instance was made or resized under.
func under(inst *pod.Container, k *pod.Kept) v1.ResourceList {
	if _, resized := k.Resized[inst.ID]; resized {
		return k.ResizedUnder[inst.ID]
	}
	if inst.Made == nil {
		return nil
	}
	return inst.Made.PodLimits
}

// Actual are the resources that an instance has: those it was made with, or was
// given later; nil if nobody knows.
func Actual(inst *pod.Container, k *pod.Kept) *v1.ResourceRequirements {
	if r, ok := k.Resized[inst.ID]; ok {
		return &r
	}
	if inst.Made == nil {
		return nil
	}
	return inst.Made.Resources
}

func restartsFor(c *v1.Container, name v1.ResourceName) bool {
	for _, p := range c.ResizePolicy {
		if p.ResourceName == name {
			return p.RestartPolicy == v1.RestartContainer
		}
	}
	return false
}
