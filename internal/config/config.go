// Package config makes one validated, immutable Config out of the
// configuration file, the command line and what the host says of itself.
//
// The order is the kubelet's: the file (--config), then the flags that were
// given, then the documented defaults for what neither says.
package config

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/kubelet/config/v1beta1"
)

// Defaults of settings that no KubeletConfiguration field carries. RootDir is
// the kubelet's, since deckhand takes its place on a node.
const (
	DefaultRootDir              = "/var/lib/kubelet"
	DefaultContainerLogLinksDir = "/var/log/containers"
	DefaultBridge               = "deckhand0"
	// DefaultPodCIDR is the embedded runtime's network where podCIDR isn't set.
	// Docker, Podman, CRI-O, flannel, k3s and the service ranges use others.
	DefaultPodCIDR = "10.72.0.0/16"
	// DefaultReadOnlyPort is served on 127.0.0.1 unless the file sets readOnlyPort.
	DefaultReadOnlyPort = 10255
	// DefaultDeadPerContainer and DefaultDeadContainers are the kubelet's: one ended
	// instance of each container is kept, however many that are.
	DefaultDeadPerContainer = 1
	DefaultDeadContainers   = -1
	// DefaultJournalBytes is how much is kept of each pod in the flight recorder.
	DefaultJournalBytes = 64 << 10
)

// What --journal-bytes may be, if it isn't 0: less holds no pod's start, and more
// would be the agent's memory.
const (
	minJournalBytes = 4 << 10
	maxJournalBytes = 64 << 20
)

// Config is everything the agent is told. It is complete and valid, and must
// not be changed: one Config is shared by all.
type Config struct {
	// File is the absolute path of the configuration file; empty without one.
	File string
	// Kubelet holds file, flags and defaults. Its paths are absolute.
	Kubelet v1beta1.KubeletConfiguration
	// RootDir is the absolute path under which the agent keeps its state.
	RootDir string
	// NodeName is the node's name: a lower-case DNS subdomain.
	NodeName string
	// NodeIPs are the node's addresses: one, or one of each IP family.
	NodeIPs []netip.Addr
	// Healthz is where /healthz is served; port 0 means nowhere.
	Healthz netip.AddrPort
	// ReadOnly is where the read-only API is served; port 0 means nowhere.
	//
	// It departs from KubeletConfiguration's default (0, disabled): without an
	// API server there is no other way to look at a node, so unless the file sets
	// readOnlyPort it is 10255, and on 127.0.0.1 unless the file sets address.
	ReadOnly netip.AddrPort
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
	// NotActedOn lists the fields the file sets without effect in this build,
	// each with its line and the reason, to be told at start.
	NotActedOn []string
}

// CredentialProviders says where plugins for credentials are. Both paths are absolute,
// or both empty.
type CredentialProviders struct {
	// Config is a CredentialProviderConfig file, or a folder of such.
	Config string
	// BinDir is the folder of the plugins' programs.
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
// on one host. Its sockets and folders lie under RootDir.
type Embedded struct {
	// Bridge is the name of the network interface all pods are attached to.
	Bridge string
	// PodCIDRs are the networks pods get addresses from: one, or one of each IP family.
	PodCIDRs []netip.Prefix
	// BinDir is the folder with the runtime's programs; empty for the folder of
	// the agent's own program, then PATH.
	BinDir string
}

// UsesEmbeddedRuntime reports whether no runtime endpoint was given.
func (c *Config) UsesEmbeddedRuntime() bool { return c.Kubelet.ContainerRuntimeEndpoint == "" }

// InvalidError is a configuration that can't be used, with everything that is
// wrong about it. Each problem names the file and line, or the flag, and the
// field.
type InvalidError struct {
	Problems []string
}

// Error renders one problem on one line, and several on a line each below a heading.
func (e *InvalidError) Error() string {
	if len(e.Problems) == 1 {
		return "invalid configuration: " + e.Problems[0]
	}
	return fmt.Sprintf("invalid configuration, %d problems:\n  %s", len(e.Problems), strings.Join(e.Problems, "\n  "))
}
