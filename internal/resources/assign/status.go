package assign

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Status is the use of the machine's CPUs.
type Status struct {
	// Uses are sorted by NUMA node and CPU. A CPU that is both reserved and shared is in both.
	Uses []Use
	// Differences are those that this agent has found.
	Differences []Difference
}

// Use is the CPUs of one NUMA node that are used alike.
type Use struct {
	Node int
	CPUs cpuset.CPUSet
	Kind UseKind
	// UID and Container are those of an Own use.
	UID       types.UID
	Container string
}

// UseKind is a kind of use of CPUs.
type UseKind string

const (
	// Shared are the CPUs of all containers without CPUs of their own.
	Shared UseKind = "Shared"
	// Own are the CPUs that a container has to itself.
	Own UseKind = "Own"
	// Reserved are CPUs that no container has to itself.
	Reserved UseKind = "Reserved"
	// Isolated are CPUs on which the kernel schedules nothing by itself (isolcpus): a container that shares CPUs may
	// stay on the first of them.
	Isolated UseKind = "Isolated"
)

// Problems returns which containers can't be moved to their CPUs.
func (m *Manager) Problems() (list []pod.Problem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range m.instances {
		if i.failed == nil {
			continue
		}
		list = append(list, pod.Problem{Origin: "CPUs", General: true, Message: fmt.Sprintf(
			"the runtime can't move container %s of pod %s to the CPUs %s, and is asked again every %s: %v",
			i.name, i.pod, listed(m.target(i)), retryAfter, i.failed)})
	}
	slices.SortFunc(list, func(a, b pod.Problem) int { return cmp.Compare(a.Message, b.Message) })
	return list
}

// Status returns the use of the machine's CPUs; nil if containers have no CPUs to themselves.
func (m *Manager) Status() *Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.conf.Static {
		return nil
	}
	s := &Status{Differences: slices.Clone(m.differences)}
	for _, n := range m.machine.Nodes {
		var ids []int
		for _, c := range m.machine.CPUs {
			if c.Node == n.ID {
				ids = append(ids, c.ID)
			}
		}
		here := cpuset.New(ids...)
		add := func(set cpuset.CPUSet, u Use) {
			if u.Node, u.CPUs = n.ID, set.Intersection(here); !u.CPUs.IsEmpty() {
				s.Uses = append(s.Uses, u)
			}
		}
		add(m.shared(), Use{Kind: Shared})
		for _, uid := range slices.Sorted(maps.Keys(m.of)) {
			for _, name := range slices.Sorted(maps.Keys(m.of[uid])) {
				add(m.of[uid][name], Use{Kind: Own, UID: uid, Container: name})
			}
		}
		add(m.reserved, Use{Kind: Reserved})
		add(m.machine.Isolated, Use{Kind: Isolated})
	}
	slices.SortStableFunc(s.Uses, func(a, b Use) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.CPUs.List()[0], b.CPUs.List()[0]))
	})
	return s
}
