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
	// DefaultRootDir is the kubelet's root directory, since deckhand takes its place on a node.
	DefaultRootDir = "/var/lib/kubelet"
	// DefaultPodCIDR is the embedded runtime's network where podCIDR isn't set.
	// Docker, Podman, CRI-O, flannel, k3s and the service ranges use others.
	DefaultPodCIDR = "10.72.0.0/16"
	// DefaultReadOnlyPort is where a standalone agent is looked at.
	DefaultReadOnlyPort = 10255
)

// Config is the whole configuration of the agent. It is complete and valid, and must
// not be changed: one Config is shared by all.
type Config struct {
	// Kubelet holds files, flags and defaults. Its paths are absolute.
	Kubelet v1beta1.KubeletConfiguration
	// Gates are its feature gates, resolved.
	Gates gates.Set
	// Standalone says that no kubeconfig was given: there is no API server. Without one
	// there is no other way to look at a node than its read-only port, and nobody who
	// would fix a node that doesn't start: so some defaults are others (column Departs
	// of config/fields).
	Standalone bool
	// Watch asks for a reload whenever a file of Sources changes.
	Watch bool
	// Sources are the absolute paths of the file and the directory of drop-ins, as far as
	// they were given.
	Sources []string
	// RootDir is the absolute path under which the agent keeps its state.
	RootDir string
	// CertDir is the absolute path of the directory for certificates.
	CertDir string
	// LockFile is the absolute path of a file to be locked while the agent runs; mostly
	// empty. YieldLock asks it to end when somebody else wants that lock.
	LockFile  string
	YieldLock bool
	// RuntimeCgroups is the control group of the container runtime; empty if that isn't said.
	RuntimeCgroups string
	// Kubeconfig is the absolute path of the file that says where the API server is, and who this node is to it; empty
	// if there is none.
	Kubeconfig string
	// BootstrapKubeconfig is the absolute path of the file with which a client certificate is asked for, and Kubeconfig
	// written, while that can't be used; empty if there is none.
	BootstrapKubeconfig string
	// ExternalCloud says that a controller looks after the node's cloud. NodeIPs are none then, unless they were given:
	// it tells them.
	ExternalCloud bool
	// KubeletVersion is what the API server is told, and compares: a version of Kubernetes' release.
	KubeletVersion string
	// NodeName is the node's name: a lower-case DNS subdomain.
	NodeName string
	// NodeIPs are the node's addresses: one, or one of each IP family; none with ExternalCloud.
	NodeIPs []netip.Addr
	// NodeLabels are the node's labels: its name, operating system and
	// architecture, and what --node-labels adds.
	NodeLabels map[string]string
	// Healthz is where /healthz is served; port 0 means nowhere.
	Healthz netip.AddrPort
	// ReadOnly is where the read-only API is served; port 0 means nowhere.
	ReadOnly netip.AddrPort
	// HTTPS is where the API for those who say who they are is served; port 0 means nowhere.
	HTTPS netip.AddrPort
	// OfflineSecretsKey is the file with the key of Secrets and tokens that are kept for when the API server is away;
	// empty to keep none.
	OfflineSecretsKey string
	// HoldPodsFor is for how long pods run on that an API server doesn't have any more which seems to have lost its
	// data.
	HoldPodsFor time.Duration
	// AwaitDevicePlugins is how long a pod waits for a device plugin; 0 to reject it at once.
	AwaitDevicePlugins time.Duration
	// ContainerLogLinksDir is where links to container logs are made for log shippers.
	ContainerLogLinksDir string
	// JournalBytes is how much is kept of each pod in the flight recorder, in memory
	// and on disk; -1 if nothing is.
	JournalBytes int
	// CredentialProviders are the plugins that know credentials of registries.
	CredentialProviders CredentialProviders
	// DeadContainers says which containers that have ended are kept.
	DeadContainers DeadContainers
	// Embedded is about the runtime deckhand brings along. It is used only where
	// UsesEmbeddedRuntime.
	Embedded Embedded
	// Flags are all flags with their values, nothing of which is secret.
	Flags []flags.Shown
	// NotActedOn lists what files and flags set without effect in this build. Deprecated
	// lists flags and feature gates that were given and will go away, with what to do
	// instead. The agent logs both at start.
	NotActedOn []fields.Notice
	Deprecated []string
	// Exposures are what it opens to clients that nobody has authenticated or authorized.
	Exposures []Exposure

	merged *document.Merged
}

// Origins says of each setting that isn't a default, by its path, where it comes from:
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

// CredentialProviders says where plugins for credentials are. Both paths are absolute,
// or both empty.
type CredentialProviders struct {
	// Config is a CredentialProviderConfig file, or a directory of such.
	Config string
	// BinDir is the directory of the plugins' programs.
	BinDir string
}

// DeadContainers says which containers that have ended are kept.
type DeadContainers struct {
	// MinAge is how long each is kept at least after it ended.
	MinAge time.Duration
	// PerContainer is how many ended instances of each container are kept beside the
	// newest; negative for all.
	PerContainer int
	// Total is how many are kept on the node; negative for no limit.
	Total int
}

// Embedded is what about the embedded runtime would collide between two agents
// on one host. Its sockets and directories lie under RootDir.
type Embedded struct {
	// Bridge is the name of the network interface all pods are attached to.
	Bridge string
	// PodCIDRs are the networks pods get addresses from: one, or one of each IP family.
	PodCIDRs []netip.Prefix
	// BinDir is the directory with the runtime's programs; empty for the directory of
	// the agent's own program, then PATH.
	BinDir string
}

// UsesEmbeddedRuntime reports whether no runtime endpoint was given.
func (c *Config) UsesEmbeddedRuntime() bool { return c.Kubelet.ContainerRuntimeEndpoint == "" }
