package fields

func eviction() []Field {
	return []Field{
		{Path: "evictionHard", Package: "host/capacity", Live: true,
			Doc: "Thresholds below which pods are evicted at once: by signal, an amount or a percentage such as " +
				"memory.available: 100Mi. 0% or 100% switches a signal off. A value replaces all of the defaults " +
				"(see mergeDefaultEvictionSettings).",
			Partly: "memory.available and nodefs.available reduce the node's allocatable; pods are evicted " +
				"only with --node-pressure-eviction, which is experimental",
			Departs: "where neither --config nor --eviction-hard is given, it has these defaults, too, instead of " +
				"none"},
		{Path: "evictionSoft", Live: true, Why: noEviction, Default: "none",
			Doc: "Thresholds below which pods are evicted once evictionSoftGracePeriod is over: by signal, as in " +
				"evictionHard."},
		{Path: "evictionSoftGracePeriod", Live: true, Why: noEviction, Default: "none",
			Doc: "How long the node may stay below a threshold of evictionSoft before pods are evicted: by signal, " +
				"such as memory.available: 30s. Each signal of evictionSoft needs one."},
		{Path: "evictionMaxPodGracePeriod", Live: true, Why: noEviction,
			Doc: "The longest grace period of a pod that is evicted for a threshold of evictionSoft, in seconds, " +
				"even if the pod's own is longer."},
		{Path: "evictionMinimumReclaim", Live: true, Why: noEviction, Default: "nothing",
			Doc: "How much has to be reclaimed beyond the threshold once pods are evicted: by signal, such as " +
				"imagefs.available: 2Gi."},
		{Path: "evictionPressureTransitionPeriod", Live: true, Why: noEviction,
			Doc: "How long the node has to be above a threshold before its pressure condition becomes False; 0s " +
				"counts as 5m."},
		{Path: "mergeDefaultEvictionSettings", Live: true, Idle: "false", Why: noEviction,
			Doc: "Keep the default thresholds of those signals that evictionHard doesn't name, instead of having " +
				"none for them."},
		{Path: "kernelMemcgNotification", Why: noEviction,
			Doc: "Let the kernel notify the agent when memory runs short, instead of polling."},
		{Path: "localStorageCapacityIsolation", Package: "resources/storagelimits",
			Doc: "Enforce the ephemeral-storage limits of pods and the sizeLimit of emptyDir volumes. Switch it off " +
				"where the root file system's size can't be determined."},
	}
}

func volumes() []Field {
	return []Field{
		{Path: "volumeStatsAggPeriod", Package: "resources/stats",
			Doc: "The greatest age of volumes' usage in statistics, where it has to be measured file by file; " +
				"negative leaves it out. It is measured when a client asks for statistics."},
		{Path: "volumePluginDir", Why: "this build has no volume plugins from outside",
			Doc: "The directory with flexVolume plugins."},
		{Path: "enableControllerAttachDetach", Why: "this build attaches no volumes",
			Doc: "Let the cluster's attach/detach controller attach volumes to this node; CSI volumes need that."},
	}
}
