package cgroup

import (
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	helpers "k8s.io/component-helpers/resource"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

// kernel contains limits and features of this host's kernel.
type kernel struct {
	// maxPIDs is the maximum number of processes; 0 if it can't be read.
	maxPIDs int64
	// pages are the sizes of huge pages, as in names of cgroup files.
	pages []string
}

// readKernel reads the kernel's values. They change only if an administrator changes them.
func readKernel() kernel {
	return kernel{maxPIDs: capacity.MaxTasks("/"), pages: cgroups.HugePageSizes()}
}

// rules returns the rules that follow from the configuration and this host.
func (m *Manager) rules(l hierarchies) rules {
	k := m.kernel()
	r := rules{V2: l.V2, WholePercents: m.Driver == tree.DriverSystemd, NoCPUQuota: m.conf.NoCPUQuota,
		CPUPeriod: m.conf.CPUPeriod, Memory: m.conf.Memory}
	if l.V2 {
		r.Swap, r.ReserveMemory = m.conf.Swap, m.conf.ReserveMemory
	}
	if _, ok := l.Mounts["pids"]; ok {
		r.PIDs = max(m.conf.PIDsLimit, 0)
		if k.maxPIDs > 0 {
			r.PIDs = min(r.PIDs, k.maxPIDs)
		}
	}
	if _, ok := l.Mounts["hugetlb"]; ok {
		r.HugePages = k.pages
	}
	return r
}

// rulesOfNew returns the rules for a new group. If all pods together may use no huge pages of a size, the new group
// needs no limit of its own for it.
func (m *Manager) rulesOfNew(l hierarchies) rules {
	r := m.rules(l)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.enforced && m.conf.Pods != nil {
		r.HugePages = slices.DeleteFunc(slices.Clone(r.HugePages), func(size string) bool {
			bytes, ok := m.conf.Pods.HugePages[size]
			return ok && bytes == 0
		})
	}
	return r
}

// hugePages returns how many bytes of huge pages the pod may use, by page size as in names of cgroup files. It uses the
// pod's own limits or, if there are none, the limits of its containers by the rules of KEP-753. It is nil if there are
// no limits.
func hugePages(p *v1.Pod) map[string]int64 {
	if !asksForHugePages(p) {
		return nil
	}
	pages := map[string]int64{}
	for name, q := range helpers.PodLimits(p, helpers.PodResourcesOptions{}) {
		if size, ok := allocated.HugePageSize(name); ok {
			pages[size] = q.Value()
		}
	}
	return pages
}

func asksForHugePages(p *v1.Pod) bool {
	ask := func(l v1.ResourceList) bool {
		for name := range l {
			if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
				return true
			}
		}
		return false
	}
	if p.Spec.Resources != nil && ask(p.Spec.Resources.Limits) {
		return true
	}
	for _, list := range [...][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		if slices.ContainsFunc(list, func(c v1.Container) bool { return ask(c.Resources.Limits) }) {
			return true
		}
	}
	return false
}

// MemoryLimit returns the pod's memory limit by its spec, in bytes; ok is false if there is none.
func MemoryLimit(p *v1.Pod) (bytes int64, ok bool) {
	l := allocated.PodLimits(p, nil)
	return l.MemoryLimit, l.MemoryLimit > 0
}
