package fields

func containerRuntime() []Field {
	return []Field{
		{Path: "containerRuntimeEndpoint", Package: "runtime/cri", Default: "none",
			Doc:     "The socket of the container runtime to use: unix:///run/containerd/containerd.sock.",
			Departs: "where it isn't set, deckhand runs a containerd of its own"},
		{Path: "imageServiceEndpoint", Package: "runtime/cri", Default: "that of containerRuntimeEndpoint",
			Doc: "The socket of the runtime's image service, if it has one of its own. It can be set only beside " +
				"containerRuntimeEndpoint."},
		{Path: "runtimeRequestTimeout", Package: "runtime/cri",
			Doc: "How long a call to the runtime may take. Pulls, reading logs and commands in containers aren't " +
				"bound by it."},
	}
}

func network() []Field {
	return []Field{
		{Path: "podCIDR", Package: "runtime/embedded", Embedded: true,
			Doc:     "The network that pods get addresses from, or one of each IP family, separated by a comma.",
			Departs: "where it isn't set, the embedded runtime uses 10.72.0.0/16"},
		{Path: "clusterDNS", Package: "runtime/dns", Default: "none: pods use the node's name servers",
			Doc: "The IP addresses of the cluster's name servers. Pods with the dnsPolicy ClusterFirst ask them."},
		{Path: "clusterDomain", Package: "runtime/dns", Default: "none",
			Doc: "The cluster's DNS domain, such as cluster.local: pods search it, and their host names are in it."},
		{Path: "resolvConf", Package: "runtime/dns",
			Doc: `The file with the node's name servers and search domains, for pods that use them. "" leaves pods without any.`},
		{Path: "hairpinMode", Idle: "hairpin-veth",
			Why: "the embedded runtime's network always works like hairpin-veth, and another runtime's isn't " +
				"configured by this build",
			Doc: "How a pod reaches itself through its own Service: hairpin-veth, promiscuous-bridge or none."},
		{Path: "makeIPTablesUtilChains", Idle: "false", Why: "this build makes no iptables chains for other programs",
			Doc: "Make the chain KUBE-IPTABLES-HINT, by which other programs find out which kind of iptables the " +
				"node uses."},
		{Path: "iptablesMasqueradeBit", Why: deprecated,
			Doc: "Used to be the bit of the packet mark that says: masquerade. From 0 to 31."},
		{Path: "iptablesDropBit", Why: deprecated,
			Doc: "Used to be the bit of the packet mark that says: drop. From 0 to 31, and not that of " +
				"iptablesMasqueradeBit."},
	}
}
