package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// TopOptions says which pods are shown of a summary, and how.
type TopOptions struct {
	Namespace string
	// Names are names of pods, or beginnings of them, NAMESPACE/NAME or pod/NAME; none for all pods.
	Names      []string
	Containers bool
	// ByMemory has those that use most memory first, instead of those that use most CPU.
	ByMemory bool
}

// Choose returns the pods of a summary that are asked for, those that use most first. It is an error if a name is no pod's.
func (o TopOptions) Choose(pods []statsapi.PodStats) ([]statsapi.PodStats, error) {
	found := make([]bool, len(o.Names))
	var list []statsapi.PodStats
	for _, p := range pods {
		if o.Namespace != "" && p.PodRef.Namespace != o.Namespace {
			continue
		}
		chosen := len(o.Names) == 0
		for i, name := range o.Names {
			namespace, short, ok := strings.Cut(strings.TrimPrefix(name, "pod/"), "/")
			if !ok {
				namespace, short = "", namespace
			}
			if (namespace == "" || namespace == p.PodRef.Namespace) && strings.HasPrefix(p.PodRef.Name, short) {
				chosen, found[i] = true, true
			}
		}
		if chosen {
			list = append(list, p)
		}
	}
	if i := slices.Index(found, false); i >= 0 {
		return nil, fmt.Errorf("no pod that runs is called %s: `deckhand pods` lists all", o.Names[i])
	}
	use := func(p *statsapi.PodStats) uint64 {
		if o.ByMemory {
			return workingSet(p.Memory)
		}
		return nanoCores(p.CPU)
	}
	slices.SortStableFunc(list, func(a, b statsapi.PodStats) int { return cmp.Compare(use(&b), use(&a)) })
	return list, nil
}

// Rows are the rows of a table, the heading first.
func (o TopOptions) Rows(pods []statsapi.PodStats) [][]string {
	heading := []string{"NAMESPACE", "NAME", "CPU(cores)", "MEMORY(bytes)"}
	if o.Containers {
		heading = slices.Insert(heading, 2, "CONTAINER")
	}
	rows := [][]string{heading}
	for i := range pods {
		p := &pods[i]
		if !o.Containers {
			rows = append(rows, []string{p.PodRef.Namespace, p.PodRef.Name, cpuText(p.CPU), memoryText(p.Memory)})
			continue
		}
		for j := range p.Containers {
			c := &p.Containers[j]
			rows = append(rows, []string{p.PodRef.Namespace, p.PodRef.Name, c.Name, cpuText(c.CPU), memoryText(c.Memory)})
		}
	}
	return rows
}

// NodeRows are the rows of a table of the node and its groups of processes, the heading first.
func NodeRows(n *statsapi.NodeStats) [][]string {
	rows := [][]string{{"NAME", "CPU(cores)", "MEMORY(bytes)", "AVAILABLE(bytes)"}, {n.NodeName, cpuText(n.CPU), memoryText(n.Memory), availableText(n.Memory)}}
	for i := range n.SystemContainers {
		c := &n.SystemContainers[i]
		rows = append(rows, []string{"  " + c.Name, cpuText(c.CPU), memoryText(c.Memory), availableText(c.Memory)})
	}
	return rows
}

const unknown = "<unknown>"

// cpuText is in thousandths of a CPU, as kubectl has it.
func cpuText(c *statsapi.CPUStats) string {
	if c == nil || c.UsageNanoCores == nil {
		return unknown
	}
	return fmt.Sprintf("%dm", (*c.UsageNanoCores+999_999)/1_000_000)
}

// memoryText is the working set in MiB, as kubectl has it.
func memoryText(m *statsapi.MemoryStats) string {
	if m == nil || m.WorkingSetBytes == nil {
		return unknown
	}
	return fmt.Sprintf("%dMi", *m.WorkingSetBytes>>20)
}

func availableText(m *statsapi.MemoryStats) string {
	if m == nil || m.AvailableBytes == nil {
		return ""
	}
	return fmt.Sprintf("%dMi", *m.AvailableBytes>>20)
}

func nanoCores(c *statsapi.CPUStats) uint64 {
	if c == nil || c.UsageNanoCores == nil {
		return 0
	}
	return *c.UsageNanoCores
}

func workingSet(m *statsapi.MemoryStats) uint64 {
	if m == nil || m.WorkingSetBytes == nil {
		return 0
	}
	return *m.WorkingSetBytes
}
