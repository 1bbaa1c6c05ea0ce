package flags

import (
	"strconv"
)

func configuration(v *Values) []row {
	return []row{
		{name: "config", to: &v.ConfigFile,
			help: "Read a KubeletConfiguration (kubelet.config.k8s.io/v1beta1) from this `file`. Flags override its " +
				"fields."},
		{name: "config-dir", to: &v.ConfigDir,
			help: "Merge the files named *.conf in this `directory` and those below it over --config, in the order " +
				"of their names."},
		{name: "watch-config", to: &v.WatchConfig, help: "Reload the configuration when its file changes."},
		{name: "feature-gates", field: "featureGates", deprecated: true,
			help: "Switch features on or off: `name=true|false`, several separated by commas."},
	}
}

func pods(v *Values) []row {
	return []row{
		{name: "pod-manifest-path", field: "staticPodPath", deprecated: true,
			help: "Run the pods in this `path`: a directory with manifests, or one file."},
		{name: "manifest-url", field: "staticPodURL", deprecated: true, masked: maskURL,
			help: "Run the pods this `URL` returns."},
		{name: "manifest-url-header", field: "staticPodURLHeader", deprecated: true, masked: maskAll,
			help: "Send these HTTP headers to --manifest-url: `name:value`, several separated by commas. May be " +
				"repeated; names too."},
		{name: "seccomp-default", field: "seccompDefault",
			help: "Run containers that specify no seccomp profile with the runtime's default, instead of none."},
		{name: "await-device-plugins", to: &v.AwaitDevicePlugins, def: "5m",
			help: "Let a pod wait for this `duration` for the device plugin of a resource that hasn't registered, " +
				"also after a reboot; 0 to reject it at once, as a kubelet does."},
		{name: "container-log-links-dir", to: &v.ContainerLogLinksDir, def: DefaultContainerLogLinksDir,
			help: "Make links to container logs in this `directory`, where log shippers look for them."},
		{name: "journal-bytes", to: &v.JournalBytes, def: strconv.Itoa(DefaultJournalBytes),
			help: "Keep this `number` of bytes of decisions about each pod, for \"deckhand journal\": 0 for " +
				"none, or 4096 (4 KiB) to 67108864 (64 MiB)."},
		{name: "minimum-container-ttl-duration", to: &v.MinimumContainerTTL, deprecated: true, instead: insteadOfDead,
			help: "Keep containers that have ended for at least this `duration`."},
		{name: "maximum-dead-containers-per-container", to: &v.MaximumDeadContainersPerContainer,
			def: strconv.Itoa(DefaultDeadPerContainer), deprecated: true, instead: insteadOfDead,
			help: "Keep this `number` of ended instances of each container; negative for all."},
		{name: "maximum-dead-containers", to: &v.MaximumDeadContainers, def: strconv.Itoa(DefaultDeadContainers),
			deprecated: true, instead: insteadOfDead,
			help: "Keep at most this `number` of ended containers on the node; negative for no limit."},
	}
}

// insteadOfDead is the replacement of the flags for dead containers. It doesn't mention evictionHard as the kubelet
// does, because evictionHard doesn't limit the number of containers.
const insteadOfDead = "leave it out: the newest ended instance of each container is kept, and older ones are removed"

func node(v *Values, certDir string) []row {
	certs := "Keep certificates and their keys in this `directory`."
	if certDir == "" {
		certs += " Unset: " + certsBelow + " in --root-dir."
	}
	return []row{
		{name: "hostname-override", to: &v.HostnameOverride,
			help: "Call the node this `name` instead of its host name."},
		{name: "node-ip", to: &v.NodeIP,
			help: "The node's IP `address`, or one of each family separated by a comma. Unset (or 0.0.0.0, or :: to " +
				"prefer IPv6): the address of the default route."},
		{name: "provider-id", field: "providerID",
			help: "The node's `ID` in the cloud or the machine database it comes from."},
		{name: "node-labels", to: &v.NodeLabels, form: labels,
			help: "Give the node these labels, which the nodeAffinity of volumes refers to: `key=value`, several " +
				"separated by commas."},
		{name: "kubeconfig", to: &v.Kubeconfig,
			help: "Connect to the API server in this kubeconfig `file`. Unset: run standalone."},
		{name: "bootstrap-kubeconfig", to: &v.BootstrapKubeconfig,
			help: "Request a client certificate with this kubeconfig `file`, and write --kubeconfig, if that doesn't " +
				"exist, can't be used or its certificate has expired."},
		{name: "offline-secrets-key", to: &v.OfflineSecretsKey,
			help: "Keep Secrets and service account tokens of the API server's pods on disk for use while it is " +
				"unreachable, encrypted with the key in this `file` (mode 0400); a name without a slash is a systemd " +
				"credential. Unset: keep none."},
		{name: "hold-pods-for", to: &v.HoldPodsFor, def: "5m",
			help: "When the API server seems to have lost its data, keep pods that it no longer has for this " +
				"`duration`; 0 to delete them at once."},
		{name: "cert-dir", to: &v.CertDir, def: certDir, help: certs},
		{name: "cloud-provider", to: &v.CloudProvider,
			help: "`external` on a node that a cloud controller manager initializes; unset on any other."},
	}
}

func containers(v *Values) []row {
	return []row{
		{name: "container-runtime-endpoint", field: "containerRuntimeEndpoint", deprecated: true,
			help: "Use the container runtime at this `socket` (unix:///path). Empty: run the embedded containerd."},
		{name: "embedded-bridge", to: &v.EmbeddedBridge, def: DefaultBridge,
			help: "Embedded runtime: attach pods to the bridge of this `name`."},
		{name: "embedded-bin-dir", to: &v.EmbeddedBinDir,
			help: "Embedded runtime: look for its programs in this `directory` first. Unset: beside this program, " +
				"then in PATH."},
		{name: "image-credential-provider-config", to: &v.ImageCredentialProviderConfig,
			help: "Get credentials of registries from the plugins in this CredentialProviderConfig `file` (or " +
				"directory of files)."},
		{name: "image-credential-provider-bin-dir", to: &v.ImageCredentialProviderBinDir,
			help: "Look for these plugins in this `directory`."},
	}
}

func logs() []row {
	return []row{
		{name: "v", short: "v", field: "logging.verbosity",
			help: "How much to log: a higher `number` logs more; 2 logs normal operations, 4 details."},
		{name: "vmodule", field: "logging.vmodule",
			help: "Log more or less of single source files: `pattern=number`, several separated by commas. Only in " +
				"format text."},
		{name: "logging-format", field: "logging.format", def: "text", deprecated: true,
			help: "Log in this `format`: text or json."},
		{name: "log-flush-frequency", field: "logging.flushFrequency", def: "5s",
			help: "The longest `duration` for which log lines stay in the buffer before they are written."},
		{name: "log-text-split-stream", field: "logging.options.text.splitStream", deprecated: true,
			help: "In format text, errors go to standard error and all else to standard output."},
		{name: "log-text-info-buffer-size", field: "logging.options.text.infoBufferSize", deprecated: true,
			help: "With --log-text-split-stream, collect this `size` before it is written."},
		{name: "log-json-split-stream", field: "logging.options.json.splitStream", deprecated: true,
			help: "In format json, errors go to standard error and all else to standard output."},
		{name: "log-json-info-buffer-size", field: "logging.options.json.infoBufferSize", deprecated: true,
			help: "With --log-json-split-stream, collect this `size` before it is written."},
	}
}

func process(v *Values, rootDir string) []row {
	return []row{
		{name: "root-dir", to: &v.RootDir, def: rootDir,
			help: "Keep the agent's state in this `directory`. One agent at a time can use it."},
		{name: "lock-file", to: &v.LockFile, help: "Hold a lock on this `file` while running; wait for it at start."},
		{name: "exit-on-lock-contention", to: &v.ExitOnLockContention,
			help: "Stop when another process wants the lock on --lock-file."},
		{name: "runtime-cgroups", to: &v.RuntimeCgroups,
			help: "The `cgroup` of the container runtime. Statistics report its usage. The embedded " +
				"runtime is moved into it; another one has to be in it already."},
		{name: "fail-cgroupv1", field: "failCgroupV1", def: "true", alone: "false",
			help: "Refuse to start on a host with cgroup v1."},
		{name: "version", to: &v.Version, bare: PrintVersion,
			help: "Print the version and stop: `true` in one line, raw in detail. A version such as v1.36.3-vendor.1 " +
				"is reported instead of the build's own."},
	}
}
