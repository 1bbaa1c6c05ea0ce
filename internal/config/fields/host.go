package fields

const onlyWarns = "where it isn't set and no kubeconfig is given, it counts as false, and there is a warning instead"

func host() []Field {
	return []Field{
		{Path: "oomScoreAdj", Package: "host/process",
			Doc: "How readily the kernel kills the agent when memory runs out, from -1000 (never) to 1000. If the " +
				"agent isn't permitted to set it, it logs that and continues."},
		{Path: "maxOpenFiles", Package: "host/process",
			Doc: "How many files and connections the agent may have open at the same time."},
		{Path: "failSwapOn", Package: "agent/preflight",
			Doc:     "Don't start on a host with swap in use.",
			Departs: onlyWarns},
		{Path: "failCgroupV1", Package: "agent/preflight",
			Doc:     "Don't start on a host with cgroup v1.",
			Departs: onlyWarns},
		{Path: "protectKernelDefaults", Package: "agent/preflight",
			Doc: "Don't start if settings of the kernel, such as vm.overcommit_memory and kernel.panic, differ from " +
				"those the kubelet needs; with false the agent sets them.",
			Departs: "with false, deckhand leaves them as they are where no kubeconfig is given"},
	}
}

func shutdown() []Field {
	return []Field{
		{Path: "shutdownGracePeriod", Why: noShutdown, Gate: "GracefulNodeShutdown",
			Doc: "How long the shutdown of the node is delayed so that its pods can terminate, in all; 0s for not at " +
				"all."},
		{Path: "shutdownGracePeriodCriticalPods", Why: noShutdown, Gate: "GracefulNodeShutdown",
			Doc: "How much of shutdownGracePeriod, at its end, is for critical pods. It can't be more than that."},
		{Path: "shutdownGracePeriodByPodPriority", Why: noShutdown, Gate: "GracefulNodeShutdownBasedOnPodPriority",
			Default: "none",
			Doc: "How long pods have to end when the node shuts down, by their priority and the next lower ones: a " +
				"list of priority and shutdownGracePeriodSeconds. It replaces the two above, which mustn't be set " +
				"then."},
	}
}
