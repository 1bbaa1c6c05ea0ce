package translate

import "time"

// Settings are the facts and options of the node that translations depend on.
// They don't change while the agent runs. The zero value is usable; its meaning
// is the kubelet's default wherever the field doesn't say otherwise.
type Settings struct {
	// PodLogsDir is where pod log directories live (KubeletConfiguration podLogsDir).
	PodLogsDir string
	// Boot is what the kernel calls this boot of the host.
	Boot string
	// ClusterDomain makes fully qualified host names (KubeletConfiguration clusterDomain); may be empty.
	ClusterDomain string
	// SeccompRoot is the directory that Localhost seccomp profiles are relative to.
	SeccompRoot string
	// SeccompDefault gives containers that name no profile RuntimeDefault instead of
	// Unconfined (KubeletConfiguration seccompDefault).
	SeccompDefault bool
	// AppArmorLoaded reports whether the host has loaded a profile of that name; nil
	// leaves finding out to the runtime.
	AppArmorLoaded func(profile string) (bool, error)
	// MaskedPaths are hidden from containers beside the usual ones: what only this
	// host has, such as the CPUs' thermal_throttle directories.
	MaskedPaths []string
	// NoCPUQuota turns CPU limits off (KubeletConfiguration cpuCFSQuota: false).
	NoCPUQuota bool
	// CPUQuotaPeriod is the CFS period; 0 means 100 ms (KubeletConfiguration cpuCFSQuotaPeriod).
	CPUQuotaPeriod time.Duration
	// MemoryCapacity is the node's memory in bytes, for the OOM score of burstable pods.
	MemoryCapacity int64
	// GroupOOMKill kills all of a container's processes when one runs out of memory.
	// Only for cgroup v2 (KubeletConfiguration singleProcessOOMKill: false).
	GroupOOMKill bool
	// CgroupV2 says that the host has cgroup v2, whose files can be given values.
	CgroupV2 bool
	// BoundSwap keeps containers off swap, but for their share of Swap. Only for hosts
	// whose control groups can bound swap.
	BoundSwap bool
	// Swap is how many bytes of swap containers of Burstable pods share, in proportion
	// to their part of MemoryCapacity (KubeletConfiguration memorySwap.swapBehavior:
	// LimitedSwap); 0 is for NoSwap. Without CgroupV2 and BoundSwap it has no effect.
	Swap int64
	// HugePageSizes are the sizes of huge pages whose use can be bounded here, as the CRI names them: "2MB".
	HugePageSizes []string
	// MemoryQoS makes use of cgroup v2's memory protection and throttling.
	MemoryQoS MemoryQoS
}
