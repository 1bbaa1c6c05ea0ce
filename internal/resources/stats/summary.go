package stats

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// Summary returns the response of /stats/summary: a full sample, or CPU and memory alone.
func (s *Sampler) Summary(ctx context.Context, onlyCPUAndMemory bool, maxAge time.Duration) (*statsapi.Summary, error) {
	level := Full
	if onlyCPUAndMemory {
		level = CPUAndMemory
	}
	ctx, cancel := context.WithTimeout(ctx, scrapeTime)
	defer cancel()
	sample, err := s.Sample(ctx, level, maxAge)
	if err != nil {
		return nil, err
	}
	return s.summary(sample, level), nil
}

func (s *Sampler) summary(sample *Sample, level Level) *statsapi.Summary {
	all := level >= Full
	root := &sample.Node
	memory := root.memory()
	if memory != nil { // for the whole machine, the limit is its memory
		memory.AvailableBytes = ptr.To(uint64(s.Memory) - min(root.Memory.WorkingSet, uint64(s.Memory)))
	}
	out := &statsapi.Summary{
		Node: statsapi.NodeStats{NodeName: s.Node, StartTime: metav1.NewTime(sample.Booted), CPU: root.cpu(),
			Memory: memory, Swap: s.nodeSwap(root)},
		Pods: make([]statsapi.PodStats, len(sample.Pods)),
	}
	for i := range sample.System {
		sys := &sample.System[i]
		used := &sys.Group
		if isMisc(*sys) {
			used = &sample.Rest
		}
		out.Node.SystemContainers = append(out.Node.SystemContainers, container(sys.Name, sys.Started, used, all))
	}
	if all {
		out.Node.IO, out.Node.Network, out.Node.Fs, out.Node.Rlimit = root.io(), sample.Network, sample.NodeFS,
			sample.Processes
		out.Node.Runtime = &statsapi.RuntimeStats{ImageFs: sample.ImageFS, ContainerFs: sample.ContainerFS}
	}
	for i := range sample.Pods {
		p, o := &sample.Pods[i], &out.Pods[i]
		*o = statsapi.PodStats{
			PodRef:    statsapi.PodReference{Name: p.Name, Namespace: p.Namespace, UID: string(p.UID)},
			StartTime: metav1.NewTime(p.Started), CPU: p.cpu(), Memory: p.memory(), Swap: p.swap(),
			Containers: make([]statsapi.ContainerStats, len(p.Containers)),
		}
		for j := range p.Containers {
			c := &p.Containers[j]
			o.Containers[j] = container(c.Name, c.Started, &c.Group, all)
			if all {
				o.Containers[j].Rootfs, o.Containers[j].Logs = c.Rootfs, c.Logs
			}
		}
		if all {
			o.IO, o.Network, o.VolumeStats, o.EphemeralStorage = p.io(), p.Network, p.Volumes, p.Ephemeral
			if p.Processes != nil {
				o.ProcessStats = &statsapi.ProcessStats{ProcessCount: p.Processes}
			}
		}
	}
	return out
}

func container(name string, started time.Time, g *Group, all bool) statsapi.ContainerStats {
	c := statsapi.ContainerStats{Name: name, StartTime: metav1.NewTime(started), CPU: g.cpu(), Memory: g.memory(),
		Swap: g.swap()}
	if all {
		c.IO = g.io()
	}
	return c
}

func (g *Group) cpu() *statsapi.CPUStats {
	if g.CPU == nil {
		return nil
	}
	return &statsapi.CPUStats{Time: metav1.NewTime(g.At), UsageCoreNanoSeconds: &g.CPU.Usage, UsageNanoCores: g.Rate,
		PSI: psi(g.CPUPressure)}
}

// memory converts a group's memory figures. Like the kubelet's summary, it reports the page faults of the group's own
// processes if the kernel counts them separately. Kubernetes' node e2e suite expects fewer than a million for all pods
// on cgroup v1, however many processes have run in them.
func (g *Group) memory() *statsapi.MemoryStats {
	m := g.Memory
	if m == nil {
		return nil
	}
	out := &statsapi.MemoryStats{Time: metav1.NewTime(g.At), UsageBytes: &m.Usage, WorkingSetBytes: &m.WorkingSet,
		RSSBytes:   &m.RSS,
		PageFaults: &m.OwnPageFaults, MajorPageFaults: &m.OwnMajorPageFaults, PSI: psi(g.MemoryPressure)}
	if m.Limit != counters.Unlimited {
		out.AvailableBytes = ptr.To(m.Limit - min(m.WorkingSet, m.Limit))
	}
	return out
}

func (g *Group) swap() *statsapi.SwapStats {
	m := g.Memory
	if m == nil {
		return nil
	}
	out := &statsapi.SwapStats{Time: metav1.NewTime(g.At), SwapUsageBytes: &m.Swap}
	if m.SwapLimit != counters.Unlimited {
		out.SwapAvailableBytes = ptr.To(m.SwapLimit - min(m.Swap, m.SwapLimit))
	}
	return out
}

// nodeSwap returns the use of the machine's swap and the swap that is still available.
func (s *Sampler) nodeSwap(root *Group) *statsapi.SwapStats {
	out := root.swap()
	if out != nil {
		out.SwapAvailableBytes = ptr.To(uint64(s.Swap) - min(root.Memory.Swap, uint64(s.Swap)))
	}
	return out
}

func (g *Group) io() *statsapi.IOStats {
	if g.CPU == nil && g.Memory == nil {
		return nil
	}
	return &statsapi.IOStats{Time: metav1.NewTime(g.At), PSI: psi(g.IOPressure)}
}

// psi never returns nil: if the kernel has no pressure information for groups, as on cgroup v1, the kubelet reports
// zeros, and its clients access the structure.
func psi(p *counters.Pressure) *statsapi.PSIStats {
	if p == nil {
		return &statsapi.PSIStats{}
	}
	data := func(s *counters.Stalls) statsapi.PSIData {
		return statsapi.PSIData{Total: s.Total * uint64(time.Microsecond), Avg10: s.Avg10, Avg60: s.Avg60,
			Avg300: s.Avg300}
	}
	return &statsapi.PSIStats{Full: data(&p.Full), Some: data(&p.Some)}
}
