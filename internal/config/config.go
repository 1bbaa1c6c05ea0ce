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
	// DefaultRootDir is the kubelet's root directory, because deckhand replaces the kubelet on a node.
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
	// Gates are its feature gates, resolved.
	Gates gates.Set
	// Standalone means that there is no kubeconfig, and so no API server. Then the read-only port is the only way to
	// inspect a node over the network, and nobody may notice a node that doesn't start. Some defaults differ for
	// these reasons (see fields.Field.Departs).
	Standalone bool
	// Watch enables a reload whenever a file of Sources changes.
	Watch bool
	// Sources are the absolute paths of the file and of the directory of drop-ins, if they are set.
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
	// BootstrapKubeconfig is the absolute path of the kubeconfig for requesting a client certificate while Kubeconfig
	// is unusable, which is written then; empty for none.
	BootstrapKubeconfig string
	// ExternalCloud means that a cloud controller manager manages the node. Then NodeIPs is empty, unless --node-ip
	// is given: the controller sets the addresses.
	ExternalCloud bool
	// KubeletVersion is the version in the node's status, a Kubernetes release that API clients can compare.
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
	// OfflineSecretsKey is the file with the key for Secrets and tokens that are stored for times without the API
	// server; empty to store none.
	OfflineSecretsKey string
	// HoldPodsFor is how long pods keep running that are missing from an API server which seems to have lost its
	// data.
	HoldPodsFor time.Duration
	// AwaitDevicePlugins is how long a pod waits for a device plugin; with 0 the pod is rejected at once.
	AwaitDevicePlugins time.Duration
	// ContainerLogLinksDir is the directory of symlinks to container logs, for log shippers.
	ContainerLogLinksDir string
	// JournalBytes is the size of the decision journal of each pod, in memory and on disk; -1 disables it.
	JournalBytes int
	// CredentialProviders are the plugins for registry credentials.
	CredentialProviders CredentialProviders
	// DeadContainers limits how many ended containers are kept.
	DeadContainers DeadContainers
	// Embedded configures the embedded runtime. It has an effect only if UsesEmbeddedRuntime.
	Embedded Embedded
	// Flags are all flags with their values, without secrets.
	Flags []flags.Shown
	// NotActedOn lists settings of files and flags that have no effect in this build. Deprecated lists flags and
	// feature gates that were given and will be removed, with their replacement. The agent logs both at start.
	NotActedOn []fields.Notice
	Deprecated []string
	// Exposures are the settings that serve clients without authentication or authorization.
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
	// MinAge is how long each container is kept at least after it ended.
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
