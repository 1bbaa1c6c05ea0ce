package show

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
)

// TopOptions select pods of a summary, and their output format.
type TopOptions struct {
	Namespace string
	// Names are names of pods or prefixes of them, NAMESPACE/NAME or pod/NAME; empty for all pods.
	Names      []string
	Containers bool
	// SortBy is one of TopSorts: pods with the highest usage come first.
	SortBy string
}

// TopSorts are the sort keys of pods.
var TopSorts = []string{"cpu", "memory", "disk", "network", "processes"}

// usage returns a pod's usage of a resource, which is one of TopSorts.
func usage(p *statsapi.PodStats, of string) uint64 {
	switch of {
	case "memory":
		return workingSet(p.Memory)
	case "disk":
		return ptr.Deref(usedBytes(p.EphemeralStorage), 0)
	case "network":
		received, sent := networkBytes(p.Network)
		return ptr.Deref(received, 0) + ptr.Deref(sent, 0)
	case "processes":
		return ptr.Deref(processes(p), 0)
	}
	return nanoCores(p.CPU)
}

// Choose returns the selected pods of a summary, those with the highest usage first. A name without a pod is an
// error.
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
	slices.SortStableFunc(list, func(a, b statsapi.PodStats) int {
		return cmp.Compare(usage(&b, o.SortBy), usage(&a, o.SortBy))
	})
	return list, nil
}

// Rows returns the rows of a table, the heading first. Network and processes aren't counted per container.
func (o TopOptions) Rows(pods []statsapi.PodStats) [][]string {
	heading := []string{"NAMESPACE", "NAME", "CPU(cores)", "MEMORY(bytes)", "DISK", "RECEIVED", "SENT", "PROCESSES"}
	if o.Containers {
		heading = []string{"NAMESPACE", "NAME", "CONTAINER", "CPU(cores)", "MEMORY(bytes)", "DISK"}
	}
	rows := [][]string{heading}
	for i := range pods {
		p := &pods[i]
		if !o.Containers {
			received, sent := networkBytes(p.Network)
			rows = append(rows, []string{p.PodRef.Namespace, p.PodRef.Name, cpuText(p.CPU), memoryText(p.Memory),
				bytesText(usedBytes(p.EphemeralStorage)),
				bytesText(received), bytesText(sent), countText(processes(p))})
			continue
		}
		for j := range p.Containers {
			c := &p.Containers[j]
			rows = append(rows, []string{p.PodRef.Namespace, p.PodRef.Name, c.Name, cpuText(c.CPU),
				memoryText(c.Memory), bytesText(sum(usedBytes(c.Rootfs), usedBytes(c.Logs)))})
		}
	}
	return rows
}

// NodeRows returns the rows of a table of the node and its groups of processes, the heading first.
func NodeRows(n *statsapi.NodeStats) [][]string {
	received, sent := networkBytes(n.Network)
	var running *uint64
	if n.Rlimit != nil && n.Rlimit.NumOfRunningProcesses != nil {
		running = ptr.To(uint64(max(*n.Rlimit.NumOfRunningProcesses, 0)))
	}
	var free *uint64
	if n.Fs != nil {
		free = n.Fs.AvailableBytes
	}
	rows := [][]string{{"NAME", "CPU(cores)", "MEMORY(bytes)", "AVAILABLE(bytes)", "DISK", "FREE", "RECEIVED", "SENT",
		"PROCESSES"},
		{n.NodeName, cpuText(n.CPU), memoryText(n.Memory), availableText(n.Memory), bytesText(usedBytes(n.Fs)),
			bytesText(free), bytesText(received), bytesText(sent), countText(running)}}
	for i := range n.SystemContainers {
		c := &n.SystemContainers[i]
		rows = append(rows, []string{"  " + c.Name, cpuText(c.CPU), memoryText(c.Memory), availableText(c.Memory), "",
			"", "", "", ""})
	}
	return rows
}

func usedBytes(fs *statsapi.FsStats) *uint64 {
	if fs == nil {
		return nil
	}
	return fs.UsedBytes
}

// networkBytes returns the bytes received and sent by the default interface since the pod's network was created.
func networkBytes(n *statsapi.NetworkStats) (received, sent *uint64) {
	if n == nil {
		return nil, nil
	}
	return n.RxBytes, n.TxBytes
}

func processes(p *statsapi.PodStats) *uint64 {
	if p.ProcessStats == nil {
		return nil
	}
	return p.ProcessStats.ProcessCount
}

// sum returns the sum of the values that aren't nil; nil if all are.
func sum(values ...*uint64) *uint64 {
	var total *uint64
	for _, v := range values {
		if v != nil {
			total = ptr.To(ptr.Deref(total, 0) + *v)
		}
	}
	return total
}

func bytesText(n *uint64) string {
	if n == nil {
		return unknown
	}
	return Bytes(*n)
}

func countText(n *uint64) string {
	if n == nil {
		return unknown
	}
	return strconv.FormatUint(*n, 10)
}

const unknown = "<unknown>"

// cpuText formats CPU usage in thousandths of a CPU, as kubectl does.
func cpuText(c *statsapi.CPUStats) string {
	if c == nil || c.UsageNanoCores == nil {
		return unknown
	}
	return fmt.Sprintf("%dm", (*c.UsageNanoCores+999_999)/1_000_000)
}

// memoryText formats the working set in MiB, as kubectl does.
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
