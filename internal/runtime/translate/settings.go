package translate

import "time"

// Settings are the facts and options of the node that translations depend on. They don't change while the agent
// runs. The zero value is usable; unless documented otherwise, zero fields mean the kubelet's default.
type Settings struct {
	// PodLogsDir is the directory of the pods' log directories (KubeletConfiguration podLogsDir).
	PodLogsDir string
	// Boot is the kernel's boot ID of the host.
	Boot string
	// ClusterDomain is part of fully qualified host names (KubeletConfiguration clusterDomain); may be empty.
	ClusterDomain string
	// SeccompRoot is the directory that Localhost seccomp profiles are relative to.
	SeccompRoot string
	// SeccompDefault gives containers without a profile RuntimeDefault instead of Unconfined (KubeletConfiguration
	// seccompDefault).
	SeccompDefault bool
	// AppArmorLoaded reports whether the host has loaded a profile of that name; nil leaves the check to the
	// runtime.
	AppArmorLoaded func(profile string) (bool, error)
	// MaskedPaths are masked in containers in addition to the usual paths: paths that only this host has, such as
	// the CPUs' thermal_throttle directories.
	MaskedPaths []string
	// NoCPUQuota disables CPU limits (KubeletConfiguration cpuCFSQuota: false).
	NoCPUQuota bool
	// CPUQuotaPeriod is the CFS period; 0 means 100 ms (KubeletConfiguration cpuCFSQuotaPeriod).
	CPUQuotaPeriod time.Duration
	// MemoryCapacity is the node's memory in bytes, for the OOM score of burstable pods.
	MemoryCapacity int64
	// GroupOOMKill kills all of a container's processes when one exceeds its memory limit. Only for cgroup v2
	// (KubeletConfiguration singleProcessOOMKill: false).
	GroupOOMKill bool
	// CgroupV2 means that the host has cgroup v2, so that values of its files can be set.
	CgroupV2 bool
	// BoundSwap limits the swap of each container to its share of Swap. It requires that the host's cgroups can
	// limit swap.
	BoundSwap bool
	// Swap is the swap in bytes that is divided among the containers of Burstable pods, each in proportion to its
	// memory request's share of MemoryCapacity (KubeletConfiguration memorySwap.swapBehavior: LimitedSwap); 0 means
	// NoSwap. Without CgroupV2 and BoundSwap it has no effect.
	Swap int64
	// HugePageSizes are the sizes of huge pages that the host can limit, in the CRI's notation: "2MB".
	HugePageSizes []string
	// MemoryQoS configures cgroup v2's memory protection and throttling.
	MemoryQoS MemoryQoS
}
