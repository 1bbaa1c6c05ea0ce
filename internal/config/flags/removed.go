package flags

// Removed returns the replacement of a flag of earlier kubelets that kubelet 1.36 doesn't have; ok is false for other
// names.
func Removed(name string) (instead string, ok bool) {
	const (
		dockershim = "it went with dockershim: the container runtime is set with containerRuntimeEndpoint in the " +
			"configuration file"
		cni = "it went with dockershim: the container runtime configures the pod network (for the embedded " +
			"containerd that is done already)"
		logging = "logs go to standard error; redirect them, or see --logging-format and --v"
		bits    = "kube-proxy makes its own iptables rules; leave it out"
		docker  = "cAdvisor no longer reads from Docker; leave it out"
	)
	instead, ok = map[string]string{
		"container-runtime":                      dockershim,
		"docker-endpoint":                        dockershim,
		"image-pull-progress-deadline":           dockershim,
		"experimental-dockershim-root-directory": dockershim,
		"pod-infra-container-image": "set the sandbox image in the container runtime's configuration " +
			"(for the embedded containerd that is done already)",
		"network-plugin":                    cni,
		"network-plugin-mtu":                cni,
		"network-plugin-dir":                cni,
		"cni-bin-dir":                       cni,
		"cni-conf-dir":                      cni,
		"cni-cache-dir":                     cni,
		"non-masquerade-cidr":               cni,
		"docker":                            docker,
		"docker-env-metadata-whitelist":     docker,
		"docker-only":                       docker,
		"docker-root":                       docker,
		"docker-tls":                        docker,
		"docker-tls-ca":                     docker,
		"docker-tls-cert":                   docker,
		"docker-tls-key":                    docker,
		"add-dir-header":                    logging,
		"alsologtostderr":                   logging,
		"log-backtrace-at":                  logging,
		"log-dir":                           logging,
		"log-file":                          logging,
		"log-file-max-size":                 logging,
		"logtostderr":                       logging,
		"one-output":                        logging,
		"skip-headers":                      logging,
		"skip-log-headers":                  logging,
		"stderrthreshold":                   logging,
		"iptables-masquerade-bit":           bits,
		"iptables-drop-bit":                 bits,
		"api-servers":                       "use --kubeconfig",
		"require-kubeconfig":                "--kubeconfig alone says it",
		"experimental-bootstrap-kubeconfig": "use --bootstrap-kubeconfig",
		"dynamic-config-dir":                "use --config and, for parts of it, --config-dir",
		"register-schedulable":              "use --register-with-taints=node.kubernetes.io/unschedulable:NoSchedule",
		"allow-privileged":                  "pods may be privileged unless admission refuses them; leave it out",
		"host-network-sources": "pods may use the host's network unless admission refuses them; " +
			"leave it out",
		"host-pid-sources": "pods may use the host's PID namespace unless admission " +
			"refuses them; leave it out",
		"host-ipc-sources": "pods may use the host's IPC namespace unless admission " +
			"refuses them; leave it out",
		"cadvisor-port":               "the metrics are at /metrics",
		"seccomp-profile-root":        "profiles are in the directory seccomp of --root-dir",
		"keep-terminated-pod-volumes": "volumes of ended pods are unmounted; leave it out",
		"master-service-namespace": "the service kubernetes is in the namespace default; " +
			"leave it out",
		"azure-container-registry-config": "use --image-credential-provider-config",
		"cloud-config": "use --cloud-provider=external and a cloud controller " +
			"manager",
		"experimental-kernel-memcg-notification": "set kernelMemcgNotification in the configuration file",
		"experimental-check-node-capabilities-before-mount": "mounts fail by themselves where a program is missing; " +
			"leave it out",
		"experimental-logging-sanitization": "secrets aren't logged; leave it out",
		"experimental-nvidia-gpus":          "use a device plugin",
		"experimental-cgroups-per-qos":      "set cgroupsPerQOS in the configuration file",
		"experimental-qos-reserved":         "set qosReserved in the configuration file",
		"chaos-chance":                      "leave it out",
		"really-crash-for-testing":          "leave it out",
		"low-diskspace-threshold-mb":        "set evictionHard in the configuration file",
		"outofdisk-transition-frequency":    "set evictionPressureTransitionPeriod in the configuration file",
		"configure-cbr0":                    cni,
		"reconcile-cidr":                    cni,
		"rkt-path":                          dockershim,
		"rkt-api-endpoint":                  dockershim,
		"windows-service":                   "it is for Windows; leave it out",
		"windows-priorityclass":             "it is for Windows; leave it out",
	}[name]
	return instead, ok
}
