package fields

// Reasons that several fields share: the log at start has one line for each.
const (
	noAssignment = "this build doesn't assign memory to containers"
	otherAlarm   = "the kernel always notifies this build when memory runs short"
	noShutdown   = "this build doesn't hold up the node's shutdown"
	deprecated   = "it has no effect in the kubelet either (deprecated)"

	// noCluster is the reason for fields with Cluster set.
	noCluster = "without --kubeconfig there is no API server"
	// otherNetwork is the reason for fields with Embedded set.
	otherNetwork = "with a runtime of its own (containerRuntimeEndpoint) the node has that runtime's network, which " +
		"this build doesn't configure"
)
