package translate

import (
	"cmp"
	"time"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// defaultCPUPeriod is the default of KubeletConfiguration's cpuCFSQuotaPeriod.
const defaultCPUPeriod = 100 * time.Millisecond

// OOM score adjustments by QoS class ("Node out of memory behavior" in the documentation of node-pressure
// eviction).
const (
	oomGuaranteed   = -997
	oomBestEffort   = 1000
	oomBurstableMin = 2
	oomBurstableMax = 999
)

const systemNodeCritical = "system-node-critical"

// containerResources returns the resources with which an instance of the container is created.
func containerResources(s *Settings, p *v1.Pod, c *v1.Container, a Assignment) *runtimeapi.LinuxContainerResources {
	r := quantities(s, c.Resources, allocated.ContainerLimits(p, c.Resources.Limits))
	a.apply(r)
	r.OomScoreAdj = OOMScoreAdj(p, c, s.MemoryCapacity)
	r.HugepageLimits = hugePageLimits(s, p, c)
	s.swap(r, p, c)
	set := map[string]string{}
	if s.GroupOOMKill {
		set["memory.oom.group"] = "1"
	}
	s.unified(r, p, c, set)
	return r
}

// unlimited removes a limit in an update, where 0 keeps the current one.
const unlimited = -1

// ResizedResources returns the CRI update that gives a running container c of pod p the requests and limits r
// (UpdateContainerResources). p includes the allocated pod-level resources. The update sets everything that a
// resize may change: it removes limits that r doesn't include. Resources that can't be resized, such as the OOM
// score and huge pages (KEP-1287), are omitted and so unchanged. The container keeps its assigned CPUs and memory
// nodes.
func ResizedResources(s *Settings, p *v1.Pod, c *v1.Container, r v1.ResourceRequirements,
	a Assignment) *runtimeapi.LinuxContainerResources {
	u := quantities(s, r, allocated.ContainerLimits(p, r.Limits))
	a.apply(u)
	if u.CpuPeriod != 0 && u.CpuQuota == 0 {
		u.CpuQuota = unlimited
	}
	if u.MemoryLimitInBytes == 0 {
		u.MemoryLimitInBytes = unlimited
	}
	resized := *c
	resized.Resources.Requests, resized.Resources.Limits = r.Requests, r.Limits
	s.swap(u, p, &resized)
	// Runtimes keep previous values: the update has to reset those that no longer apply.
	set := map[string]string{}
	if s.CgroupV2 {
		set[memoryHigh] = "max"
		if s.MemoryQoS.Enabled && s.MemoryQoS.Reserve {
			set[memoryMin], set[memoryLow] = "0", "0"
		}
	}
	s.unified(u, p, &resized, set)
	return u
}

// unified adds values of cgroup v2 files for the container to the map set, and passes the map to the runtime.
func (s *Settings) unified(r *runtimeapi.LinuxContainerResources, p *v1.Pod, c *v1.Container, set map[string]string) {
	if s.CgroupV2 {
		s.swapMax(p, c, set)
		s.MemoryQoS.values(p, c, set)
	}
	if len(set) > 0 {
		r.Unified = set
	}
}

// quantities converts requests and limits to cgroup values. A missing CPU request defaults to the container's own
// limit (API comment of requests); limits are the effective ones, either the container's or the pod's.
func quantities(s *Settings, own v1.ResourceRequirements, limits v1.ResourceList) *runtimeapi.LinuxContainerResources {
	request, ok := own.Requests[v1.ResourceCPU]
	if !ok {
		request = own.Limits[v1.ResourceCPU]
	}
	r := &runtimeapi.LinuxContainerResources{
		CpuShares:          allocated.Shares(request.MilliValue()),
		MemoryLimitInBytes: limits.Memory().Value(),
	}
	if !s.NoCPUQuota {
		r.CpuPeriod = cmp.Or(s.CPUQuotaPeriod, defaultCPUPeriod).Microseconds()
		r.CpuQuota = allocated.Quota(limits.Cpu().MilliValue(), r.CpuPeriod)
	}
	return r
}

// OOMScoreAdj returns the OOM score adjustment of the container's processes. It depends on the pod's QoS class and,
// for Burstable pods, on the ratio of the requested memory to memoryCapacity (bytes). The value of a sidecar is at
// most the highest value of the pod's main containers (KEP-753).
func OOMScoreAdj(p *v1.Pod, c *v1.Container, memoryCapacity int64) int64 {
	switch {
	case p.Spec.PriorityClassName == systemNodeCritical, p.Status.QOSClass == v1.PodQOSGuaranteed:
		return oomGuaranteed
	case p.Status.QOSClass == v1.PodQOSBestEffort:
		return oomBestEffort
	case memoryCapacity <= 0:
		return oomBurstableMax
	}
	extra := sharedMemoryRequest(p)
	adj := burstableOOM(c.Resources.Requests.Memory().Value()+extra, memoryCapacity)
	if !pod.IsSidecar(c) {
		return adj
	}
	least := int64(-1)
	for i := range p.Spec.Containers {
		if m := p.Spec.Containers[i].Resources.Requests.Memory().Value(); least < 0 || m < least {
			least = m
		}
	}
	return min(adj, burstableOOM(max(least, 0)+extra, memoryCapacity))
}

func burstableOOM(request, capacity int64) int64 {
	return min(max(oomBestEffort-oomBestEffort*request/capacity, oomBurstableMin), oomBurstableMax)
}

// sharedMemoryRequest returns each container's share of the pod-level request beyond the sum of the containers'
// requests (KEP-2837); 0 without pod-level resources.
func sharedMemoryRequest(p *v1.Pod) int64 {
	if !resourcehelper.IsPodLevelRequestsSet(p) {
		return 0
	}
	whole, ok := p.Spec.Resources.Requests[v1.ResourceMemory]
	if !ok {
		return 0
	}
	sum := resourcehelper.AggregateContainerRequests(p, resourcehelper.PodResourcesOptions{})
	n := int64(len(p.Spec.Containers))
	for i := range p.Spec.InitContainers {
		if pod.IsSidecar(&p.Spec.InitContainers[i]) {
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return max(whole.Value()-sum.Memory().Value(), 0) / n
}
