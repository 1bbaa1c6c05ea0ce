package fields

func cgroups() []Field {
	return []Field{
		{Path: "cgroupRoot", Package: "resources/cgroup", Default: "the root of the hierarchy",
			Doc: "The control group in which that of all pods (kubepods) is made: an absolute name such as /kubelet."},
		{Path: "cgroupDriver", Package: "resources/cgroup",
			Doc: "The driver that makes control groups: cgroupfs (the agent, as directories) or systemd. If the " +
				"runtime reports its driver, that is used instead."},
		{Path: "cgroupsPerQOS", Idle: "true",
			Why: "this build always makes a control group for each QoS class and each pod",
			Doc: "Make a control group for each QoS class, and in it one for each pod."},
		{Path: "kubeletCgroups", Package: "resources/cgroup", Default: "where it was started",
			Doc: "The control group that the agent itself moves into when it starts: an absolute name. It is made if " +
				"it isn't there."},
		{Path: "systemCgroups", Package: "resources/cgroup", Default: "none",
			Doc: "The control group that processes of the host which are in no group of their own are moved into " +
				"when the agent starts, but for the first one and the kernel's, and not those that the first process " +
				"starts later. It is made if it isn't there. It needs cgroupRoot, and only a reboot turns it back."},
	}
}

func reservations() []Field {
	return []Field{
		{Path: "systemReserved", Package: "host/capacity", Live: true, Default: "nothing",
			Doc: "Resources reserved for the host's own processes: amounts of cpu, memory, ephemeral-storage and " +
				"pid, such as cpu: 200m."},
		{Path: "kubeReserved", Package: "host/capacity", Live: true, Default: "nothing",
			Doc: "Resources reserved for the agent and the container runtime: amounts of cpu, memory, " +
				"ephemeral-storage and pid."},
		{Path: "reservedSystemCPUs", Package: "host/capacity", Default: "none",
			Doc: "The CPUs reserved for the host's own processes and the agent, such as 0-1,4. Their number replaces " +
				"the cpu of systemReserved and kubeReserved. With cpuManagerPolicy static no container has them to " +
				"itself; with strict-cpu-reservation, none runs on them."},
		{Path: "enforceNodeAllocatable", Package: "resources/cgroup",
			Doc: "The limits that are enforced: pods (on all pods together: the node's capacity less kubeReserved " +
				"and systemReserved), system-reserved and kube-reserved (or their -compressible kinds, for CPU " +
				"only); or none alone. The reserved ones need the control groups below."},
		{Path: "systemReservedCgroup", Package: "resources/cgroup", Default: "none",
			Doc: "The control group of the host's own processes, on which systemReserved is enforced: an absolute " +
				"name. It has to exist. A restart that no longer enforces a limit leaves it in place: lift it, or " +
				"reboot the machine."},
		{Path: "kubeReservedCgroup", Package: "resources/cgroup", Default: "none",
			Doc: "The control group of the agent and the runtime, on which kubeReserved is enforced: an absolute " +
				"name. It has to exist. A restart that no longer enforces a limit leaves it in place: lift it, or " +
				"reboot the machine."},
		{Path: "qosReserved", Package: "resources/cgroup", Gate: "QOSReserved", Default: "nothing",
			Doc: "The percentage of requested memory that pods of lower QoS classes can't use: Burstable and " +
				"BestEffort pods that of Guaranteed ones, BestEffort pods that of Burstable ones: memory: 50%. Only " +
				"memory can be reserved."},
	}
}

func managers() []Field {
	return []Field{
		{Path: "cpuManagerPolicy", Package: "resources/assign", Idle: "none",
			Doc:    "Whether Guaranteed containers that request whole CPUs have them to themselves: none, or static.",
			Partly: "a CPU that is taken offline isn't replaced before the agent starts again"},
		{Path: "cpuManagerPolicyOptions", Package: "resources/assign", Default: "none",
			Doc: `Finer points of the policy static, such as full-pcpus-only: "true".`},
		{Path: "cpuManagerReconcilePeriod",
			Why: "this build moves containers to other CPUs as soon as these change",
			Doc: "How often it is made sure that containers have the CPUs they were assigned."},
		{Path: "memoryManagerPolicy", Idle: "None", Why: noAssignment,
			Doc: "Whether Guaranteed containers get memory of certain NUMA nodes: None, or Static."},
		{Path: "reservedMemory", Why: noAssignment, Default: "none",
			Doc: "How much memory of each NUMA node isn't assigned to containers: a list of numaNode and limits " +
				"(memory, hugepages-SIZE)."},
		{Path: "topologyManagerPolicy", Idle: "none", Why: noAssignment,
			Doc: "How much CPUs, memory and devices have to be of the same NUMA node: none, best-effort, restricted " +
				"or single-numa-node."},
		{Path: "topologyManagerScope", Why: noAssignment,
			Doc: "Whether that is decided for each container, or for the pod as a whole: container, or pod."},
		{Path: "topologyManagerPolicyOptions", Why: noAssignment, Default: "none",
			Doc: `Finer points of that policy, such as prefer-closest-numa-nodes: "true".`},
	}
}
