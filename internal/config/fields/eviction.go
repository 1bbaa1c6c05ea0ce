package fields

func eviction() []Field {
	return []Field{
		{Path: "evictionHard", Package: "resources/pressure", Live: true,
			Doc: "Thresholds below which pods are evicted at once: by signal, an amount or a percentage such as " +
				"memory.available: 100Mi. 0% or 100% switches a signal off. A value replaces all of the defaults " +
				"(see mergeDefaultEvictionSettings). memory.available and nodefs.available also reduce the node's " +
				"allocatable.",
			Departs: "where neither --config nor --eviction-hard is given, it has defaults, too, instead of none; " +
				"without --kubeconfig those of disks are nodefs.available: 2%, nodefs.inodesFree: 1%, " +
				"imagefs.available: 2% and imagefs.inodesFree: 1%"},
		{Path: "evictionSoft", Package: "resources/pressure", Live: true, Default: "none",
			Doc: "Thresholds below which pods are evicted once evictionSoftGracePeriod is over: by signal, as in " +
				"evictionHard. Those of containerfs, there and here, have no effect: it counts as nodefs or imagefs."},
		{Path: "evictionSoftGracePeriod", Package: "resources/pressure", Live: true, Default: "none",
			Doc: "How long the node may stay below a threshold of evictionSoft before pods are evicted: by signal, " +
				"such as memory.available: 30s. Each signal of evictionSoft needs one."},
		{Path: "evictionMaxPodGracePeriod", Package: "resources/pressure", Live: true,
			Doc: "The longest grace period of a pod that is evicted for a threshold of evictionSoft, in seconds, " +
				"even if the pod's own is longer."},
		{Path: "evictionMinimumReclaim", Package: "resources/pressure", Live: true, Default: "nothing",
			Doc: "How much has to be reclaimed beyond the threshold once pods are evicted: by signal, such as " +
				"imagefs.available: 2Gi."},
		{Path: "evictionPressureTransitionPeriod", Package: "resources/pressure", Live: true,
			Doc: "How long the node has to be above a threshold before its pressure condition becomes False; 0s " +
				"counts as 5m."},
		{Path: "mergeDefaultEvictionSettings", Package: "config", Live: true,
			Doc: "Keep the default thresholds of those signals that evictionHard doesn't name, instead of having " +
				"none for them."},
		{Path: "kernelMemcgNotification", Why: otherAlarm,
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
		{Path: "enableControllerAttachDetach", Package: "volume/csi",
			Doc: "Let the cluster's attach/detach controller attach volumes to this node. Pods with CSI volumes that " +
				"have to be attached wait if it is false."},
	}
}
