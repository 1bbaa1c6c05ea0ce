package config

import (
	"net/netip"
	"time"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/config/document"
	"github.com/deckhand-node/deckhand/internal/config/fields"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/config/gates"
	"github.com/deckhand-node/deckhand/internal/config/paths"
)

const (
	// DefaultRootDir is the default root directory, the same as the kubelet's, because deckhand replaces the kubelet on
	// a node.
	DefaultRootDir = "/var/lib/kubelet"
	// DefaultPodCIDR is the embedded runtime's pod network if podCIDR isn't set. Docker, Podman, CRI-O, flannel, k3s
	// and the usual service ranges use other networks.
	DefaultPodCIDR = "10.72.0.0/16"
	// DefaultReadOnlyPort is the read-only port of a standalone agent.
	DefaultReadOnlyPort = 10255
)

// Config is the complete configuration of the agent. It is valid, and must not be changed: one Config is shared.
type Config struct {
	// Kubelet combines files, flags and defaults. Its paths are absolute.
	Kubelet v1beta1.KubeletConfiguration
	// Gates has the state of each feature gate, which Kubelet.FeatureGates determines.
	Gates gates.Set
	// Standalone means that there is no kubeconfig, and so no API server. Then the read-only port is the only way to
	// inspect a node over the network, and a node that doesn't start may go unnoticed. For these reasons some defaults
	// differ from the kubelet's (see fields.Field.Departs).
	Standalone bool
	// Watch enables a reload whenever a file of Sources changes.
	Watch bool
	// Sources are the absolute paths of --config and --config-dir, if they are set.
	Sources []string
	// RootDir is the absolute path of the directory of the agent's state.
	RootDir string
	// CertDir is the absolute path of the directory for certificates.
	CertDir string
	// LockFile is the absolute path of a file to lock while the agent runs; usually empty. YieldLock makes the agent
	// exit when another process requests the lock.
	LockFile  string
	YieldLock bool
	// RuntimeCgroups is the cgroup of the container runtime; empty if it isn't set.
	RuntimeCgroups string
	// Kubeconfig is the absolute path of the kubeconfig, with the API server and the node's credentials; empty for
	// none.
	Kubeconfig string
	// BootstrapKubeconfig is the absolute path of the kubeconfig with which the agent requests a client certificate
	// while Kubeconfig is unusable. The agent then writes Kubeconfig. It is empty for no bootstrap.
	BootstrapKubeconfig string
	// ExternalCloud means that a cloud controller manager sets the node's addresses. Then NodeIPs is empty, unless
	// --node-ip is given.
	ExternalCloud bool
	// KubeletVersion is the kubelet version in the node's status: a Kubernetes release, so that API clients can
	// compare it with others.
	KubeletVersion string
	// NodeName is the node's name: a lower-case DNS subdomain.
	NodeName string
	// NodeIPs are the node's addresses: one, or one of each IP family; none with ExternalCloud.
	NodeIPs []netip.Addr
	// NodeLabels are the node's labels: its name, operating system and architecture, and those of --node-labels.
	NodeLabels map[string]string
	// Healthz is the address of /healthz; with port 0 it isn't served.
	Healthz netip.AddrPort
	// ReadOnly is the address of the read-only API; with port 0 it isn't served.
	ReadOnly netip.AddrPort
	// HTTPS is the address of the API with authentication; with port 0 it isn't served.
	HTTPS netip.AddrPort
	// OfflineSecretsKey is the file of the key that encrypts Secrets and tokens on disk. They are stored so that pods
	// can use them while the API server is unreachable. If OfflineSecretsKey is empty, none are stored.
	OfflineSecretsKey string
	// HoldPodsFor is how long pods keep running after they disappeared from an API server that seems to have lost its
	// data.
	HoldPodsFor time.Duration
	// AwaitDevicePlugins is how long a pod waits for a device plugin; with 0 the pod is rejected at once.
	AwaitDevicePlugins time.Duration
	// ContainerLogLinksDir is the directory of symlinks to container logs, for log shippers.
	ContainerLogLinksDir string
	// JournalBytes is the maximum size of each pod's decision journal in bytes, in memory and on disk; -1 disables the
	// journal.
	JournalBytes int
	// CredentialProviders are the plugins for registry credentials.
	CredentialProviders CredentialProviders
	// DeadContainers limits how many ended containers are kept.
	DeadContainers DeadContainers
	// Embedded configures the embedded runtime. It has an effect only if UsesEmbeddedRuntime returns true.
	Embedded Embedded
	// Flags are all flags of the command line with their values, without secrets.
	Flags []flags.Shown
	// NotActedOn lists the settings in files and flags that have no effect in this build. Deprecated lists the given
	// flags and feature gates that a later release removes, with their replacements. The agent logs both at start.
	NotActedOn []fields.Notice
	Deprecated []string
	// Exposures are the settings that let clients access the node without authentication or authorization.
	Exposures []Exposure

	merged *document.Merged
}

// Origins returns the origin of each setting that isn't a default, by the setting's path:
// "/etc/deckhand/config.yaml:12", "--max-pods".
func (c *Config) Origins() map[string]string {
	origins := map[string]string{}
	for path := range paths.Leaves(&c.Kubelet) {
		if o := c.merged.Origin(path); o.Kind != document.Default {
			origins[path] = o.String()
		}
	}
	return origins
}

// CredentialProviders has the paths of credential provider plugins. Both are absolute, or both are empty.
type CredentialProviders struct {
	// Config is a CredentialProviderConfig file, or a directory of such files.
	Config string
	// BinDir is the directory of the plugins' programs.
	BinDir string
}

// DeadContainers limits how many ended containers are kept.
type DeadContainers struct {
	// MinAge is the minimum time that each ended container is kept.
	MinAge time.Duration
	// PerContainer is how many ended instances of each container are kept besides the newest; negative for all.
	PerContainer int
	// Total is how many ended containers are kept on the node; negative for no limit.
	Total int
}

// Embedded has the settings of the embedded runtime that have to differ between two agents on one host. Its sockets
// and directories are under RootDir.
type Embedded struct {
	// Bridge is the name of the network interface that all pods are attached to.
	Bridge string
	// PodCIDRs are the pods' networks: one, or one of each IP family.
	PodCIDRs []netip.Prefix
	// BinDir is the directory of the runtime's programs; empty for the directory of the agent's own program, then
	// PATH.
	BinDir string
}

// UsesEmbeddedRuntime reports whether no runtime endpoint is set.
func (c *Config) UsesEmbeddedRuntime() bool { return c.Kubelet.ContainerRuntimeEndpoint == "" }
