package translate

import "time"

// Settings are the facts and options of the node that translations depend on.
// They don't change while the agent runs. The zero value is usable; its meaning
// is the kubelet's default wherever the field doesn't say otherwise.
type Settings struct {
	// PodLogsDir is where pod log folders live (KubeletConfiguration podLogsDir).
	PodLogsDir string
	// ClusterDomain makes fully qualified host names (KubeletConfiguration clusterDomain); may be empty.
	ClusterDomain string
	// SeccompRoot is the folder that Localhost seccomp profiles are relative to.
	SeccompRoot string
	// SeccompDefault gives containers that name no profile RuntimeDefault instead of
	// Unconfined (KubeletConfiguration seccompDefault).
	SeccompDefault bool
	// NoCPUQuota turns CPU limits off (KubeletConfiguration cpuCFSQuota: false).
	NoCPUQuota bool
	// CPUQuotaPeriod is the CFS period; 0 means 100 ms (KubeletConfiguration cpuCFSQuotaPeriod).
	CPUQuotaPeriod time.Duration
	// MemoryCapacity is the node's memory in bytes, for the OOM score of burstable pods.
	MemoryCapacity int64
	// GroupOOMKill kills all of a container's processes when one runs out of memory.
	// Only for cgroup v2 (KubeletConfiguration singleProcessOOMKill: false).
	GroupOOMKill bool
	// NoSwap keeps containers with a memory limit off swap. Only for hosts with a
	// swap controller (KubeletConfiguration memorySwap.swapBehavior: NoSwap).
	NoSwap bool
}
