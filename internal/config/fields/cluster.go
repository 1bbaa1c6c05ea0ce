package fields

func apiServer() []Field {
	return []Field{
		{Path: "kubeAPIQPS", Live: true, Package: "cluster/apiclient", Cluster: true,
			Doc: "How many requests may go to the API server in a second, on average."},
		{Path: "kubeAPIBurst", Live: true, Package: "cluster/apiclient", Cluster: true,
			Doc: "How many requests may go to the API server at once if there were none for a while."},
		{Path: "contentType", Package: "cluster/apiclient", Cluster: true,
			Doc: "The format of requests to the API server, as a media type."},
		{Path: "eventRecordQPS", Live: true, Package: "cluster/apiclient", Cluster: true,
			Doc: "How many events may be sent to the API server in a second, on average; 0 for any number."},
		{Path: "eventBurst", Live: true, Package: "cluster/apiclient", Cluster: true,
			Doc: "How many events may be sent at once if there were none for a while. It counts only with " +
				"eventRecordQPS."},
		{Path: "configMapAndSecretChangeDetectionStrategy", Package: "cluster/clusterobjects", Cluster: true,
			Doc: "How changes of ConfigMaps and Secrets are found out: Watch (the API server sends them), Cache " +
				"(asked again after a while) or Get (asked each time)."},
		{Path: "rotateCertificates", Package: "cluster/certificates", Cluster: true,
			Doc: "Ask the cluster for a new client certificate before the old one expires."},
		{Path: "serverTLSBootstrap", Package: "cluster/certificates", Cluster: true,
			Gate: "RotateKubeletServerCertificate",
			Doc: "Ask the cluster for the HTTPS server's certificate instead of making one. Somebody has to approve " +
				"it."},
	}
}

func node() []Field {
	return []Field{
		{Path: "registerNode", Idle: "false", Package: "cluster/nodeobject", Cluster: true,
			Doc: "Make the node's object in the API server."},
		{Path: "registerWithTaints", Package: "cluster/nodeobject", Cluster: true, Default: "none",
			Doc: "The taints of the node's object when it is made: a list of key, value and effect."},
		{Path: "providerID", Package: "cluster/nodeobject", Cluster: true, Default: "none",
			Doc: "By what name the cloud provider knows this machine."},
		{Path: "nodeStatusUpdateFrequency", Package: "agent/cluster", Cluster: true,
			Doc: "How often the runtime is asked how it is, and the node's status computed. It is sent if it " +
				"changed, and at once when something is known to have changed."},
		{Path: "nodeStatusReportFrequency", Package: "cluster/nodeobject", Cluster: true,
			Default: "5m; that of nodeStatusUpdateFrequency, if it is set",
			Doc:     "How often the node's status is sent although it didn't change."},
		{Path: "nodeStatusMaxImages", Package: "cluster/nodeobject", Cluster: true,
			Doc: "How many images the node's status names at most; -1 for all."},
		{Path: "nodeLeaseDurationSeconds", Package: "cluster/nodeobject", Cluster: true,
			Doc: "After how many seconds without a renewal of its lease the node counts as lost, more than 0."},
	}
}
