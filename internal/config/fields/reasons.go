package fields

// Reasons that several fields share: the log at start has one line for each.
const (
	noEviction   = "pods are evicted only with --node-pressure-eviction, which is experimental"
	noAssignment = "this build doesn't assign CPUs or memory to containers"
	noShutdown   = "this build doesn't hold up the node's shutdown"
	deprecated   = "it has no effect in the kubelet either (deprecated)"

	// noCluster is the reason for fields with Cluster set.
	noCluster = "without --kubeconfig there is no API server"
	// otherNetwork is the reason for fields with Embedded set.
	otherNetwork = "with a runtime of its own (containerRuntimeEndpoint) the node has that runtime's network, which " +
		"this build doesn't configure"
)
