package fields

const gateMemoryQoS = "MemoryQoS"

func containers() []Field {
	return []Field{
		{Path: "maxPods", Package: "host/capacity", Live: true,
			Doc: "How many pods may run on the node. Its value at start also decides how many user IDs are reserved " +
				"for pods with user namespaces."},
		{Path: "podsPerCore", Package: "host/capacity", Live: true,
			Doc: "How many pods may run for each CPU of the node, but never more than maxPods; 0 for any number."},
		{Path: "podPidsLimit", Package: "resources/cgroup",
			Doc: "How many processes and threads a pod may have in all; -1 for as many as the node."},
		{Path: "crashLoopBackOff.maxContainerRestartPeriod", Package: "worker", Live: true,
			Gate: "KubeletCrashLoopBackOffMax",
			Doc:  "The longest wait before a container that keeps failing is started again, from 1s to 300s."},
		{Path: "cpuCFSQuota", Package: "resources/cgroup",
			Doc: "Enforce the CPU limits of containers."},
		{Path: "cpuCFSQuotaPeriod", Package: "resources/cgroup",
			Doc: "The period over which a CPU limit is measured, from 1ms to 1s: with short ones CPU time is shared " +
				"more evenly, and costs more."},
		{Path: "singleProcessOOMKill", Package: "runtime/translate", Default: "false on cgroup v2, true on v1",
			Doc: "When a container is out of memory, kill one of its processes rather than all. On cgroup v1 only " +
				"true is possible."},
		{Path: "memorySwap.swapBehavior", Package: "resources/cgroup", Default: "NoSwap",
			Doc: "How much swap containers can use: NoSwap (none) or LimitedSwap (a share by their memory request; " +
				"needs cgroup v2)."},
		{Path: "memoryThrottlingFactor", Package: "runtime/translate", Gate: gateMemoryQoS,
			Doc: "The part of its memory limit at which a container is throttled, more than 0 and at most 1. It " +
				"needs cgroup v2."},
		{Path: "memoryReservationPolicy", Package: "resources/cgroup", Gate: gateMemoryQoS,
			Doc: "Whether memory that pods request is protected from reclaim: None, or TieredReservation (that of " +
				"Guaranteed pods always, that of Burstable ones if possible; needs cgroup v2)."},
		{Path: "seccompDefault", Package: "runtime/translate",
			Doc: "Run containers that specify no seccomp profile with the runtime's default (RuntimeDefault) instead " +
				"of none."},
		{Path: "allowedUnsafeSysctls", Package: "lifecycle/admission", Default: "none",
			Doc: "The unsafe sysctls that pods may set: names, or their beginning before \"*\". Only kernel.shm*, " +
				"kernel.msg*, kernel.sem, fs.mqueue.* and net.* can be allowed."},
		{Path: "userNamespaces.idsPerPod", Package: "runtime/userns", Default: "65536",
			Doc: "How many user and group IDs each pod with a user namespace has: a multiple of 65536, less than " +
				"4294967296."},
	}
}
