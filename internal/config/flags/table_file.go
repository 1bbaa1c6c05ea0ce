package flags

import "slices"

// inFile returns the deprecated flags that only set a field of the configuration file.
func inFile() []row {
	rows := slices.Concat(serving(), authentication(), cluster(), podSettings(), images(), eviction(), reserved(),
		managers(), host())
	for i := range rows {
		rows[i].deprecated = true
	}
	return rows
}

func serving() []row {
	return []row{
		{name: "address", field: "address", def: "0.0.0.0", alone: "127.0.0.1", form: address,
			help: "Serve on this `IP`; 0.0.0.0 or :: for all. Unset: the read-only API is on 127.0.0.1."},
		{name: "port", field: "port", def: "10250", help: "Serve the HTTPS API on this `port`."},
		{name: "read-only-port", field: "readOnlyPort", def: "0", alone: "10255",
			help: "Serve the read-only API on this `port`, without authentication; 0 for none."},
		{name: "enable-server", field: "enableServer", def: "true", help: "Serve the HTTPS API."},
		{name: "healthz-bind-address", field: "healthzBindAddress", def: "127.0.0.1", form: address,
			help: "Serve /healthz on this `IP`; 0.0.0.0 or :: for all."},
		{name: "healthz-port", field: "healthzPort", def: "10248",
			help: "Serve /healthz on this `port`; 0 for none."},
		{name: "enable-debugging-handlers", field: "enableDebuggingHandlers", def: "true",
			help: "Serve logs, exec, attach and port-forward."},
		{name: "contention-profiling", field: "enableContentionProfiling",
			help: "Profile blocking, where profiles are served."},
		{name: "streaming-connection-idle-timeout", field: "streamingConnectionIdleTimeout", def: "4h",
			help: "Close a stream that was idle for this `duration`; 0 for never."},
		{name: "tls-cert-file", field: "tlsCertFile", help: "Serve with the certificate in this `file`."},
		{name: "tls-private-key-file", field: "tlsPrivateKeyFile",
			help: "The `file` with the key of the certificate in --tls-cert-file."},
		{name: "tls-cipher-suites", field: "tlsCipherSuites",
			help: "Allow only these cipher suites: `names` separated by commas."},
		{name: "tls-min-version", field: "tlsMinVersion",
			help: "Allow no older TLS than this `version`: VersionTLS12 or VersionTLS13, or the old VersionTLS10 and " +
				"VersionTLS11."},
	}
}

func authentication() []row {
	return []row{
		{name: "anonymous-auth", field: "authentication.anonymous.enabled",
			help: "Accept requests without credentials, as system:anonymous."},
		{name: "authentication-token-webhook", field: "authentication.webhook.enabled", def: "true",
			help: "Authenticate bearer tokens by the API server (TokenReview)."},
		{name: "authentication-token-webhook-cache-ttl", field: "authentication.webhook.cacheTTL", def: "2m",
			help: "Cache the API server's responses about bearer tokens for this `duration`."},
		{name: "client-ca-file", field: "authentication.x509.clientCAFile",
			help: "Accept client certificates signed by an authority in this `file`."},
		{name: "authorization-mode", field: "authorization.mode", def: "Webhook",
			help: "Authorize requests by this `mode`: Webhook to ask the API server, or AlwaysAllow."},
		{name: "authorization-webhook-cache-authorized-ttl", field: "authorization.webhook.cacheAuthorizedTTL",
			def: "5m", help: "Cache \"allowed\" responses of the API server for this `duration`."},
		{name: "authorization-webhook-cache-unauthorized-ttl", field: "authorization.webhook.cacheUnauthorizedTTL",
			def: "30s", help: "Cache \"denied\" responses of the API server for this `duration`."},
		{name: "rotate-certificates", field: "rotateCertificates",
			help: "Request a new client certificate before the old one expires."},
		{name: "rotate-server-certificates", field: "serverTLSBootstrap",
			help: "Request the serving certificate, and a new one before it expires."},
	}
}

func cluster() []row {
	return []row{
		{name: "register-node", field: "registerNode", def: "true", help: "Register the node with the API server."},
		{name: "register-with-taints", field: "registerWithTaints",
			help: "Register the node with these taints: `key=value:effect`, several separated by commas."},
		{name: "node-status-update-frequency", field: "nodeStatusUpdateFrequency", def: "10s",
			help: "Compute the node's status every `duration`."},
		{name: "node-status-max-images", field: "nodeStatusMaxImages", def: "50",
			help: "Report at most this `number` of images in the node's status; -1 for all."},
		{name: "kube-api-qps", field: "kubeAPIQPS", def: "50",
			help: "Send the API server at most this `number` of requests a second."},
		{name: "kube-api-burst", field: "kubeAPIBurst", def: "100",
			help: "Send the API server at most this `number` of requests at once."},
		{name: "kube-api-content-type", field: "contentType", def: "application/vnd.kubernetes.protobuf",
			help: "Send requests to the API server in this media `type`."},
		{name: "event-qps", field: "eventRecordQPS", def: "50",
			help: "Record at most this `number` of events a second."},
		{name: "event-burst", field: "eventBurst", def: "100", help: "Record at most this `number` of events at once."},
		{name: "pod-cidr", field: "podCIDR",
			help: "Standalone, give pods addresses from this `network`. Unset: the embedded runtime uses 10.72.0.0/16."},
		{name: "cluster-dns", field: "clusterDNS",
			help: "Name servers of pods with dnsPolicy ClusterFirst: `IPs` separated by commas."},
		{name: "cluster-domain", field: "clusterDomain", help: "Add this `domain` to the DNS search domains of pods."},
	}
}

func podSettings() []row {
	return []row{
		{name: "max-pods", field: "maxPods", def: "110", help: "Run at most this `number` of pods."},
		{name: "pods-per-core", field: "podsPerCore",
			help: "Run at most this `number` of pods on each CPU; 0 for no limit but --max-pods."},
		{name: "pod-max-pids", field: "podPidsLimit", def: "-1",
			help: "Let each pod have at most this `number` of processes; -1 for the node's own limit."},
		{name: "allowed-unsafe-sysctls", field: "allowedUnsafeSysctls",
			help: "Let pods set these sysctls: `names` or patterns ending in *, separated by commas."},
		{name: "cpu-cfs-quota", field: "cpuCFSQuota", def: "true", help: "Enforce CPU limits."},
		{name: "cpu-cfs-quota-period", field: "cpuCFSQuotaPeriod", def: "100ms",
			help: "Measure CPU limits over this `duration`."},
		{name: "resolv-conf", field: "resolvConf", def: "/etc/resolv.conf",
			help: "Give pods the name servers in this `file`."},
		{name: "sync-frequency", field: "syncFrequency", def: "1m",
			help: "Sync each pod at least once in this `duration`."},
		{name: "file-check-frequency", field: "fileCheckFrequency", def: "20s",
			help: "Read --pod-manifest-path again every `duration`."},
		{name: "http-check-frequency", field: "httpCheckFrequency", def: "20s",
			help: "Request --manifest-url every `duration`."},
		{name: "runonce", field: "runOnce", help: "Read the pods once, start them, report each, and exit."},
		{name: "enable-controller-attach-detach", field: "enableControllerAttachDetach", def: "true",
			help: "Let the cluster's controller attach volumes."},
		{name: "volume-plugin-dir", field: "volumePluginDir",
			def:  "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
			help: "Look for volume plugins in this `directory`."},
		{name: "volume-stats-agg-period", field: "volumeStatsAggPeriod", def: "1m",
			help: "Measure volumes every `duration`; negative for never."},
		{name: "container-log-max-size", field: "containerLogMaxSize", def: "10Mi",
			help: "Rotate a container's log at this `size`."},
		{name: "container-log-max-files", field: "containerLogMaxFiles", def: "5",
			help: "Keep this `number` of files of a container's log."},
	}
}

func images() []row {
	return []row{
		{name: "registry-qps", field: "registryPullQPS", def: "5",
			help: "Begin at most this `number` of pulls a second; 0 for no limit."},
		{name: "registry-burst", field: "registryBurst", def: "10",
			help: "Begin at most this `number` of pulls at once."},
		{name: "serialize-image-pulls", field: "serializeImagePulls", def: "true",
			help: "Pull one image after the other."},
		{name: "image-gc-high-threshold", field: "imageGCHighThresholdPercent", def: "85",
			help: "Remove unused images when more than this `percent` of the disk is used; 100 for never."},
		{name: "image-gc-low-threshold", field: "imageGCLowThresholdPercent", def: "80",
			help: "Remove unused images until no more than this `percent` of the disk is used."},
		{name: "minimum-image-ttl-duration", field: "imageMinimumGCAge", def: "2m",
			help: "Keep an unused image for at least this `duration`."},
		{name: "image-service-endpoint", field: "imageServiceEndpoint",
			help: "Use the image service at this `socket`. Unset: that of --container-runtime-endpoint."},
		{name: "runtime-request-timeout", field: "runtimeRequestTimeout", def: "2m",
			help: "Give up on a call to the runtime after this `duration`."},
	}
}

func eviction() []row {
	return []row{
		{name: "eviction-hard", field: "evictionHard",
			def: "imagefs.available<15%,imagefs.inodesFree<5%,memory.available<100Mi," +
				"nodefs.available<10%,nodefs.inodesFree<5%",
			alone: "imagefs.available<2%,imagefs.inodesFree<1%,memory.available<100Mi," +
				"nodefs.available<2%,nodefs.inodesFree<1%",
			form: thresholds, help: "Evict pods at once below these: `signal<quantity`, several separated by commas."},
		{name: "eviction-soft", field: "evictionSoft", form: thresholds,
			help: "Evict pods that stay below these: `signal<quantity`, several separated by commas."},
		{name: "eviction-soft-grace-period", field: "evictionSoftGracePeriod", form: bySignal,
			help: "How long pods may stay below --eviction-soft: `signal=duration`, several separated by commas."},
		{name: "eviction-max-pod-grace-period", field: "evictionMaxPodGracePeriod",
			help: "Give pods evicted by --eviction-soft at most this `number` of seconds to end; negative for their " +
				"own."},
		{name: "eviction-minimum-reclaim", field: "evictionMinimumReclaim", form: bySignal,
			help: "Free at least so much when pods are evicted: `signal=quantity`, several separated by commas."},
		{name: "eviction-pressure-transition-period", field: "evictionPressureTransitionPeriod", def: "5m",
			help: "Go on reporting pressure for this `duration` after it ended."},
		{name: "kernel-memcg-notification", field: "kernelMemcgNotification",
			help: "Let the kernel notify the agent of low memory."},
		{name: "local-storage-capacity-isolation", field: "localStorageCapacityIsolation", def: "true",
			help: "Count and limit the disk space pods use."},
	}
}

func reserved() []row {
	return []row{
		{name: "kube-reserved", field: "kubeReserved",
			help: "Reserve for Kubernetes: `resource=quantity`, several separated by commas."},
		{name: "kube-reserved-cgroup", field: "kubeReservedCgroup", help: "The `cgroup` that Kubernetes runs in."},
		{name: "system-reserved", field: "systemReserved",
			help: "Reserve for the system: `resource=quantity`, several separated by commas."},
		{name: "system-reserved-cgroup", field: "systemReservedCgroup", help: "The `cgroup` that the system runs in."},
		{name: "reserved-cpus", field: "reservedSystemCPUs",
			help: "Reserve these `CPUs`, or ranges of them, separated by commas; instead of the numbers in " +
				"--kube-reserved and --system-reserved."},
		{name: "reserved-memory", field: "reservedMemory",
			help: "Reserve memory of NUMA nodes: `node:type=quantity`, several separated by semicolons."},
		{name: "qos-reserved", field: "qosReserved",
			help: "Reserve requested resources against pods of lower QoS classes: `resource=percent%`, several " +
				"separated by commas."},
		{name: "enforce-node-allocatable", field: "enforceNodeAllocatable", def: "pods",
			help: "Enforce the limits that follow from --kube-reserved and --system-reserved: `levels` pods, " +
				"system-reserved, kube-reserved (the last two also with -compressible), separated by commas; or none."},
		{name: "cgroup-driver", field: "cgroupDriver", def: "cgroupfs",
			help: "Make cgroups through this `driver`: cgroupfs or systemd."},
		{name: "cgroup-root", field: "cgroupRoot", help: "Put pods below this `cgroup`."},
		{name: "cgroups-per-qos", field: "cgroupsPerQOS", def: "true",
			help: "Give QoS classes and pods cgroups of their own."},
		{name: "kubelet-cgroups", field: "kubeletCgroups", help: "Move the agent into this `cgroup`."},
		{name: "system-cgroups", field: "systemCgroups",
			help: "Move all processes that are in no cgroup into this `cgroup`."},
	}
}

func managers() []row {
	return []row{
		{name: "cpu-manager-policy", field: "cpuManagerPolicy", def: "none",
			help: "Assign CPUs by this `policy`: none or static."},
		{name: "cpu-manager-policy-options", field: "cpuManagerPolicyOptions", form: unsplit,
			help: "An option of --cpu-manager-policy: `key=value`. May be repeated."},
		{name: "cpu-manager-reconcile-period", field: "cpuManagerReconcilePeriod", def: "10s",
			help: "Check every `duration` that containers run on their assigned CPUs."},
		{name: "memory-manager-policy", field: "memoryManagerPolicy", def: "None",
			help: "Assign memory by this `policy`: None or Static."},
		{name: "topology-manager-policy", field: "topologyManagerPolicy", def: "none",
			help: "Align CPUs, memory and devices by this `policy`: none, best-effort, restricted or single-numa-node."},
		{name: "topology-manager-policy-options", field: "topologyManagerPolicyOptions",
			help: "Options of --topology-manager-policy: `key=value`, several separated by commas."},
		{name: "topology-manager-scope", field: "topologyManagerScope", def: "container",
			help: "Align CPUs, memory and devices for each `scope`: container or pod."},
	}
}

func host() []row {
	return []row{
		{name: "fail-swap-on", field: "failSwapOn", def: "true", alone: "false",
			help: "Refuse to start on a host with swap."},
		{name: "oom-score-adj", field: "oomScoreAdj", def: "-999",
			help: "The agent's `score` for the kernel when memory is out, from -1000 (never killed) to 1000."},
		{name: "max-open-files", field: "maxOpenFiles", def: "1000000",
			help: "Let the agent open at most this `number` of files."},
		{name: "protect-kernel-defaults", field: "protectKernelDefaults",
			help: "Refuse to start rather than change the kernel's settings."},
		{name: "make-iptables-util-chains", field: "makeIPTablesUtilChains", def: "true",
			help: "Create the iptables chains that other programs build on."},
		{name: "hairpin-mode", field: "hairpinMode", def: "promiscuous-bridge",
			help: "Let pods reach themselves through a service in this `mode`: promiscuous-bridge, hairpin-veth or " +
				"none."},
	}
}
