package fields

func eviction() []Field {
	return []Field{
		{Path: "evictionHard", Package: "host/capacity", Live: true,
			Doc: "When pods are ended at once because the node runs short: by signal, an amount or a share such " +
				"as memory.available: 100Mi. 0% or 100% switches a signal off. What is set replaces all of the " +
				"defaults (see mergeDefaultEvictionSettings).",
			Partly: "memory.available and nodefs.available are taken off what the node has for pods, but no pod is " +
				"evicted",
			Departs: "where neither --config nor --eviction-hard is given, it has these defaults, too, instead of none"},
		{Path: "evictionSoft", Live: true, Why: noEviction, Default: "none",
			Doc: "When pods are ended if the node is short for longer than evictionSoftGracePeriod: by signal, as in " +
				"evictionHard."},
		{Path: "evictionSoftGracePeriod", Live: true, Why: noEviction, Default: "none",
			Doc: "How long the node may be short before a threshold of evictionSoft counts: by signal, such as " +
				"memory.available: 30s. Each signal of evictionSoft needs one."},
		{Path: "evictionMaxPodGracePeriod", Live: true, Why: noEviction,
			Doc: "How long a pod that is ended for a threshold of evictionSoft may take at most, in seconds, " +
				"whatever it asks for."},
		{Path: "evictionMinimumReclaim", Live: true, Why: noEviction, Default: "nothing",
			Doc: "How much has to be gained beyond the threshold once pods are ended: by signal, such as " +
				"imagefs.available: 2Gi."},
		{Path: "evictionPressureTransitionPeriod", Live: true, Why: noEviction,
			Doc: "How long the node has to be well again before it says so; 0s counts as 5m."},
		{Path: "mergeDefaultEvictionSettings", Live: true, Idle: "false", Why: noEviction,
			Doc: "Keep the default thresholds of those signals that evictionHard doesn't name, instead of having " +
				"none for them."},
		{Path: "kernelMemcgNotification", Why: noEviction,
			Doc: "Have the kernel notify when memory runs short, instead of looking from time to time."},
		{Path: "localStorageCapacityIsolation", Package: "resources/storagelimits",
			Doc: "Hold pods to their limits of ephemeral-storage and to the sizeLimit of emptyDir volumes. Switch it " +
				"off where the root file system's size can't be determined."},
	}
}

func volumes() []Field {
	return []Field{
		{Path: "volumeStatsAggPeriod", Package: "resources/stats",
			Doc: "How old what pods' volumes hold may be in statistics, as far as it has to be counted file by file; " +
				"negative leaves it out. It is counted when somebody asks."},
		{Path: "volumePluginDir", Why: "this build has no volume plugins from outside",
			Doc: "The directory with flexVolume plugins."},
		{Path: "enableControllerAttachDetach", Why: "this build attaches no volumes",
			Doc: "Leave it to the cluster's controller to attach volumes to this node; CSI volumes need that."},
	}
}
