package assign

import (
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/host/topology"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
	"github.com/deckhand-node/deckhand/internal/resources/assign/cpu"
)

// ask is a container's request for CPUs to itself.
type ask struct {
	container string
	count     int
	// reusable means that later containers may use the CPUs again: the container is an init container, which ends
	// before they start.
	reusable bool
}

// asks returns the requests of a pod, in the order in which its containers start: of a Guaranteed pod, all that are
// whole. A pod with resources of its own gets none (the gate PodLevelResourceManagers is alpha).
func asks(p *v1.Pod) (list []ask) {
	if p == nil || p.Spec.Resources != nil || spec.QOSClass(p) != v1.PodQOSGuaranteed {
		return nil
	}
	add := func(c *v1.Container, reusable bool) {
		if q := c.Resources.Requests.Cpu(); q.MilliValue() > 0 && q.MilliValue()%1000 == 0 {
			list = append(list, ask{c.Name, int(q.Value()), reusable})
		}
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		add(c, !pod.IsSidecar(c))
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i], false)
	}
	return list
}

// reusable returns the CPUs of a pod's other containers that its container number n may use: those of init containers,
// which have ended before it starts; an init container also those of all containers that start after it has ended.
func reusable(of map[string]cpuset.CPUSet, list []ask, n int) cpuset.CPUSet {
	may, mustNot := cpuset.New(), cpuset.New()
	for k, other := range list {
		switch {
		case k == n:
		case other.reusable, list[n].reusable && k > n:
			may = may.Union(of[other.container])
		default:
			mustNot = mustNot.Union(of[other.container])
		}
	}
	return may.Difference(mustNot)
}

// choose chooses CPUs for the containers that have none, or only for one, unless only is empty. The caller holds the
// mutex.
func (m *Manager) choose(uid types.UID, list []ask, only string) error {
	of := maps.Clone(m.of[uid])
	if of == nil {
		of = map[string]cpuset.CPUSet{}
	}
	free, perhaps := m.free(), m.perhapsOwn()
	for n, a := range list {
		if _, ok := of[a.container]; ok || only != "" && a.container != only {
			continue
		}
		again := reusable(of, list, n)
		wish := cpu.Ask{Count: a.count, Reusable: again}
		set, ok := m.conf.Choose(&m.machine, free.Difference(perhaps), wish)
		if !ok {
			set, ok = m.conf.Choose(&m.machine, free, wish)
		}
		if !ok {
			return m.shortage(a, free.Union(again))
		}
		of[a.container] = set
		free = free.Difference(set)
	}
	m.set(uid, of)
	return nil
}

// free returns the CPUs that a container can get to itself. The caller holds the mutex.
func (m *Manager) free() cpuset.CPUSet {
	return m.machine.Online().Difference(m.reserved).Difference(m.exclusive())
}

// perhapsOwn returns the CPUs on which a single container runs whose pod no source has yet: it may have them to itself,
// although nothing records that. The caller holds the mutex.
func (m *Manager) perhapsOwn() cpuset.CPUSet {
	all := cpuset.New()
	for _, i := range m.instances {
		if i.foreign && !i.unread && m.sharing(i.owner, i.has) == nil {
			all = all.Union(i.has)
		}
	}
	return all
}

// exclusive returns all CPUs that containers or pods have to themselves. The caller holds the mutex.
func (m *Manager) exclusive() cpuset.CPUSet {
	all := cpuset.New()
	for _, set := range m.pods {
		all = all.Union(set)
	}
	for _, of := range m.of {
		for _, set := range of {
			all = all.Union(set)
		}
	}
	return all
}

// shared returns the CPUs of all containers that have none to themselves. Some CPUs always are shared: if nothing else
// is left, the reserved ones. The caller holds the mutex.
func (m *Manager) shared() cpuset.CPUSet {
	online := m.machine.Online()
	set := online.Difference(m.exclusive())
	if m.conf.Strict {
		set = set.Difference(m.reserved)
	}
	if set.IsEmpty() {
		set = m.reserved.Intersection(online)
	}
	if set.IsEmpty() {
		return online // all reserved CPUs are offline
	}
	return set
}

// shortage returns the failure of a container that doesn't fit. The caller holds the mutex.
func (m *Manager) shortage(a ask, free cpuset.CPUSet) *pod.Failure {
	ends := free
	for uid, of := range m.of {
		if p := m.conf.Pod(uid); p != nil && p.DeletionTimestamp == nil {
			continue
		}
		for _, set := range of {
			ends = ends.Union(set.Intersection(m.machine.Online()).Difference(m.reserved))
		}
	}
	fits := func(in cpuset.CPUSet) bool {
		_, ok := m.conf.Choose(&m.machine, in, cpu.Ask{Count: a.count})
		return ok
	}
	wanted := fmt.Sprintf("container %s wants %s of its own; free: %s; reserved: %s", a.container,
		plural(a.count), listed(free), listed(m.reserved))
	if fits(ends) || m.conf.Patient && fits(m.machine.Online().Difference(m.reserved)) {
		return &pod.Failure{Reason: pod.ReasonOutOf + "cpu", Wait: pod.WaitForRoom, Message: wanted}
	}
	f := &pod.Failure{Reason: pod.ReasonUnexpectedAdmissionError, Rejected: true,
		Message: fmt.Sprintf("Allocate failed due to not enough cpus available to satisfy request: requested=%d, "+
			"available=%d, which is unexpected: %s", a.count, free.Size(), wanted)}
	if !m.conf.WholeCores {
		return f
	}
	f.Reason = pod.ReasonSMTAlignmentError
	if size := threads(&m.machine); a.count%size != 0 {
		f.Message = fmt.Sprintf("SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", a.count, size)
	} else {
		f.Message = fmt.Sprintf("SMT Alignment Error: not enough free physical CPUs: available physical CPUs = %d, "+
			"requested CPUs = %d, CPUs per core = %d", cpu.WholeCores(&m.machine, free).Size(), a.count, size)
	}
	return f
}

// threads returns how many CPUs the machine's largest core has.
func threads(m *topology.Machine) int {
	of, most := map[int]int{}, 1
	for _, c := range m.CPUs {
		of[c.Core]++
		most = max(most, of[c.Core])
	}
	return most
}

func plural(n int) string {
	if n == 1 {
		return "1 CPU"
	}
	return fmt.Sprintf("%d CPUs", n)
}

func listed(set cpuset.CPUSet) string {
	if set.IsEmpty() {
		return "none"
	}
	return set.String()
}
