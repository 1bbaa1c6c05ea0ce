package config

import (
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/config/kubeletconfig"
)

// Options are the values of the command line's flags. A value counts if its
// flag was given; in Options that AddFlags didn't fill, if it isn't zero.
type Options struct {
	ConfigFile               string              // --config
	RootDir                  string              // --root-dir
	ContainerRuntimeEndpoint string              // --container-runtime-endpoint
	PodManifestPath          string              // --pod-manifest-path
	ManifestURL              string              // --manifest-url
	ManifestURLHeader        map[string][]string // --manifest-url-header
	HostnameOverride         string              // --hostname-override
	NodeIP                   string              // --node-ip
	Verbosity                uint32              // -v, --v
	LoggingFormat            string              // --logging-format

	ImageCredentialProviderConfig string // --image-credential-provider-config
	ImageCredentialProviderBinDir string // --image-credential-provider-bin-dir

	MinimumContainerTTL               time.Duration // --minimum-container-ttl-duration
	MaximumDeadContainersPerContainer int           // --maximum-dead-containers-per-container
	MaximumDeadContainers             int           // --maximum-dead-containers

	// The rest has no counterpart in the kubelet.
	ContainerLogLinksDir string // --container-log-links-dir
	JournalBytes         int    // --journal-bytes
	EmbeddedBridge       string // --embedded-bridge
	EmbeddedBinDir       string // --embedded-bin-dir

	given func(flag string) bool
}

// AddFlags defines the agent's flags on fs, to be parsed into o. Words in flag
// names may be separated by "-" or "_".
func AddFlags(fs *pflag.FlagSet, o *Options) {
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	fs.StringVar(&o.ConfigFile, "config", "", "Read a KubeletConfiguration (kubelet.config.k8s.io/v1beta1) from this `file`. Flags overwrite what it says.")
	fs.StringVar(&o.RootDir, "root-dir", DefaultRootDir, "Keep the agent's state in this `folder`. One agent at a time can use it.")
	fs.StringVar(&o.ContainerRuntimeEndpoint, "container-runtime-endpoint", "", "Use the container runtime at this `socket` (unix:///path). Empty: run the embedded containerd.")
	fs.StringVar(&o.PodManifestPath, "pod-manifest-path", "", "Run the pods in this `path`: a folder with manifests, or one file.")
	fs.StringVar(&o.ManifestURL, "manifest-url", "", "Run the pods this `URL` returns.")
	fs.Var(cliflag.NewColonSeparatedMultimapStringString(&o.ManifestURLHeader), "manifest-url-header", "Send these HTTP headers to --manifest-url: `name:value`, several separated by commas. May be repeated; names too.")
	fs.StringVar(&o.HostnameOverride, "hostname-override", "", "Call the node this `name` instead of its host name.")
	fs.StringVar(&o.NodeIP, "node-ip", "", "The node's IP `address`, or one of each family separated by a comma. Unset (or 0.0.0.0, or :: to prefer IPv6): the address of the default route.")
	fs.Uint32VarP(&o.Verbosity, "v", "v", 0, "How much to log: a higher `number` logs more; 2 tells normal operations, 4 details.")
	fs.StringVar(&o.LoggingFormat, "logging-format", kubeletconfig.LogFormatText, "Log in this `format`: text or json.")
	fs.StringVar(&o.ImageCredentialProviderConfig, "image-credential-provider-config", "", "Ask the plugins that this CredentialProviderConfig `file` (or the files of a folder) names for credentials of registries.")
	fs.StringVar(&o.ImageCredentialProviderBinDir, "image-credential-provider-bin-dir", "", "Look for these plugins in this `folder`.")
	fs.DurationVar(&o.MinimumContainerTTL, "minimum-container-ttl-duration", 0, "Keep containers that have ended for at least this `duration`.")
	fs.IntVar(&o.MaximumDeadContainersPerContainer, "maximum-dead-containers-per-container", DefaultDeadPerContainer, "Keep so `many` ended instances of each container; negative for all.")
	fs.IntVar(&o.MaximumDeadContainers, "maximum-dead-containers", DefaultDeadContainers, "Keep so `many` ended containers on the node; negative for no limit.")
	fs.StringVar(&o.ContainerLogLinksDir, "container-log-links-dir", DefaultContainerLogLinksDir, "Make links to container logs in this `folder`, where log shippers look for them.")
	fs.IntVar(&o.JournalBytes, "journal-bytes", DefaultJournalBytes, "Keep so many `bytes` of what was decided about each pod, for `deckhand journal`: 0 for none, or 4096 (4 KiB) to 67108864 (64 MiB).")
	fs.StringVar(&o.EmbeddedBridge, "embedded-bridge", DefaultBridge, "Embedded runtime: attach pods to the bridge of this `name`.")
	fs.StringVar(&o.EmbeddedBinDir, "embedded-bin-dir", "", "Embedded runtime: look for its programs in this `folder` first. Unset: beside this program, then in PATH.")
	o.given = fs.Changed
}

// overlay is a flag that overwrites a field of the configuration file.
type overlay struct {
	flag, field string
	nonzero     bool
	apply       func(*v1beta1.KubeletConfiguration)
}

func (o *Options) overlays() []overlay {
	return []overlay{
		{"pod-manifest-path", "staticPodPath", o.PodManifestPath != "", func(c *v1beta1.KubeletConfiguration) { c.StaticPodPath = o.PodManifestPath }},
		{"manifest-url", "staticPodURL", o.ManifestURL != "", func(c *v1beta1.KubeletConfiguration) { c.StaticPodURL = o.ManifestURL }},
		{"manifest-url-header", "staticPodURLHeader", len(o.ManifestURLHeader) > 0, func(c *v1beta1.KubeletConfiguration) { c.StaticPodURLHeader = o.ManifestURLHeader }},
		{"container-runtime-endpoint", "containerRuntimeEndpoint", o.ContainerRuntimeEndpoint != "", func(c *v1beta1.KubeletConfiguration) { c.ContainerRuntimeEndpoint = o.ContainerRuntimeEndpoint }},
		{"v", "logging.verbosity", o.Verbosity != 0, func(c *v1beta1.KubeletConfiguration) { c.Logging.Verbosity = logsapi.VerbosityLevel(o.Verbosity) }},
		{"logging-format", "logging.format", o.LoggingFormat != "", func(c *v1beta1.KubeletConfiguration) { c.Logging.Format = o.LoggingFormat }},
	}
}

// apply overwrites the fields whose flags were given and returns the flag by
// field.
func (o *Options) apply(c *v1beta1.KubeletConfiguration) map[string]string {
	from := map[string]string{}
	for _, ov := range o.overlays() {
		if o.given != nil && o.given(ov.flag) || o.given == nil && ov.nonzero {
			ov.apply(c)
			from[ov.field] = ov.flag
		}
	}
	return from
}
