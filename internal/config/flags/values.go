package flags

import (
	"time"
)

// Defaults of flags without a field in the configuration file. The defaults for dead containers are the kubelet's: one
// ended instance of each container is kept, and the number on the node isn't limited.
const (
	DefaultContainerLogLinksDir = "/var/log/containers"
	DefaultBridge               = "deckhand0"
	DefaultDeadPerContainer     = 1
	DefaultDeadContainers       = -1
	DefaultJournalBytes         = 64 << 10
)

// The range of --journal-bytes, besides 0. A smaller journal can't hold the decisions of a pod's start, and a larger
// one would use too much memory.
const (
	MinJournalBytes = 4 << 10
	MaxJournalBytes = 64 << 20
)

// Values are the values of flags without a field in the configuration file, as the user gave them: paths may be
// relative. Set.Check checks them, except the node's name and addresses.
type Values struct {
	ConfigFile  string // --config
	ConfigDir   string // --config-dir
	WatchConfig bool   // --watch-config

	RootDir              string // --root-dir
	CertDir              string // --cert-dir, or its default
	LockFile             string // --lock-file
	ExitOnLockContention bool   // --exit-on-lock-contention
	RuntimeCgroups       string // --runtime-cgroups

	Kubeconfig          string            // --kubeconfig
	BootstrapKubeconfig string            // --bootstrap-kubeconfig
	HostnameOverride    string            // --hostname-override
	NodeIP              string            // --node-ip: empty, an address, or two separated by a comma
	NodeLabels          map[string]string // --node-labels
	CloudProvider       string            // --cloud-provider: empty, or "external"

	ImageCredentialProviderConfig string // --image-credential-provider-config
	ImageCredentialProviderBinDir string // --image-credential-provider-bin-dir

	MinimumContainerTTL               time.Duration // --minimum-container-ttl-duration
	MaximumDeadContainersPerContainer int32         // --maximum-dead-containers-per-container; negative for all
	MaximumDeadContainers             int32         // --maximum-dead-containers; negative for no limit

	Version Version // --version

	// The kubelet doesn't have the following flags.
	ContainerLogLinksDir string        // --container-log-links-dir
	JournalBytes         int           // --journal-bytes; 0 for no journal
	OfflineSecretsKey    string        // --offline-secrets-key: a file, or the name of a credential
	HoldPodsFor          time.Duration // --hold-pods-for
	AwaitDevicePlugins   time.Duration // --await-device-plugins
	EmbeddedBridge       string        // --embedded-bridge
	EmbeddedBinDir       string        // --embedded-bin-dir
}
