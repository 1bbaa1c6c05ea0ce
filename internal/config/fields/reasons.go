package fields

// Reasons that several fields share: the start's log has one line for each.
const (
	noEviction   = "this build doesn't evict pods"
	noAssignment = "this build doesn't assign CPUs or memory to containers"
	noShutdown   = "this build doesn't hold up the node's shutdown"
	deprecated   = "it has no effect in the kubelet either (deprecated)"

	// noCluster is the reason for fields that are Cluster.
	noCluster = "without --kubeconfig there is no API server"
	// otherNetwork is the reason for fields that are Embedded.
	otherNetwork = "with a runtime of its own (containerRuntimeEndpoint) the node has that runtime's network, which " +
		"this build doesn't configure"
)
