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
			Doc: "How changes of ConfigMaps and Secrets are detected: Watch (the API server sends them), Cache (they " +
				"are read again after a while) or Get (they are read each time)."},
		{Path: "rotateCertificates", Package: "cluster/certificates", Cluster: true,
			Doc: "Request a new client certificate from the cluster before the old one expires."},
		{Path: "serverTLSBootstrap", Package: "cluster/certificates", Cluster: true,
			Gate: "RotateKubeletServerCertificate",
			Doc: "Request the HTTPS server's certificate from the cluster instead of making one. An administrator or " +
				"a controller has to approve the request."},
	}
}

func node() []Field {
	return []Field{
		{Path: "registerNode", Idle: "false", Package: "cluster/nodeobject", Cluster: true,
			Doc: "Create the Node object in the API server."},
		{Path: "registerWithTaints", Package: "cluster/nodeobject", Cluster: true, Default: "none",
			Doc: "The taints of the Node object when it is created: a list of key, value and effect."},
		{Path: "providerID", Package: "cluster/nodeobject", Cluster: true, Default: "none",
			Doc: "The ID of this machine at the cloud provider."},
		{Path: "nodeStatusUpdateFrequency", Package: "agent/cluster", Cluster: true,
			Doc: "How often the runtime's status is checked and the node's status computed. The node's status is " +
				"sent if it changed; changes that the agent detects are sent at once."},
		{Path: "nodeStatusReportFrequency", Package: "cluster/nodeobject", Cluster: true,
			Default: "5m; that of nodeStatusUpdateFrequency, if it is set",
			Doc:     "How often the node's status is sent although it didn't change."},
		{Path: "nodeStatusMaxImages", Package: "cluster/nodeobject", Cluster: true,
			Doc: "How many images the node's status names at most; -1 for all."},
		{Path: "nodeLeaseDurationSeconds", Package: "cluster/nodeobject", Cluster: true,
			Doc: "After how many seconds without a renewal of its lease the node counts as lost, more than 0."},
	}
}
