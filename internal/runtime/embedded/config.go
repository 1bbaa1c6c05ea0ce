// Package embedded runs containerd for the agent: as a child process in its own session, with generated
// configuration. It restarts containerd if it dies, adopts one that still runs, and leaves it running when the
// agent stops. The pod network is in package cni, the import of image archives in package archives, the removal of
// orphaned shims in package orphans.
//
// It also calls containerd's own API for functions that the CRI doesn't offer: the progress of a pull, and the
// removal of a task that the CRI lost track of.
package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/validation"
	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/report/tracing"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/cni"
)

// Defaults for empty fields of a Config.
const (
	// DefaultPauseImage is the name of the pause image that deckhand includes as an archive, so that no registry is
	// needed.
	DefaultPauseImage = "deckhand.local/pause:1"
	// DefaultLogLevel omits containerd's messages about every single call.
	DefaultLogLevel = "warn"
)

// Config is the configuration of the embedded runtime. Bridge and PodCIDR are host-wide, so they have to differ
// between two agents on one host; everything else is separated by RootDir.
type Config struct {
	// RootDir is the absolute path of the agent's root directory.
	RootDir string
	// BinDirs are searched for containerd, its shim, runc and the CNI plugins before PATH.
	BinDirs []string
	// PodCIDR is one prefix, or one of each IP family separated by a comma.
	PodCIDR string
	// Bridge is the name of the host's bridge interface for pods.
	Bridge string
	// PauseImage is the image of the pods' pause containers. It is never garbage-collected.
	PauseImage string
	// LogLevel is the log level of containerd: trace, debug, info, warn, error, fatal or panic.
	LogLevel string
	// SystemdCgroup makes runc use systemd for containers' cgroups, which is required if pods' cgroup parents are
	// slices (KubeletConfiguration cgroupDriver: systemd).
	SystemdCgroup bool
	// StopsOnly is for an agent that only stops pods: such an agent imports no images, because it needs none, and
	// adopts a containerd that runs with another configuration without restarting it.
	StopsOnly bool
	// Files reports changes of files; with nil, the runtime opens its own inotify instance.
	Files *filewatch.Instance
	// OnStart, if set, is called with the process ID of a containerd that was started or found. If it returns an
	// error, that containerd is stopped: Start fails, or Run restarts containerd.
	OnStart func(pid int) error
	// Collector receives the spans of traced calls by OTLP over gRPC: HOST:PORT, or empty for none.
	Collector string
	// OnRestore, if set, is called with a sentence after parts of the pod network that another program removed were
	// restored.
	OnRestore func(message string)
	// OnImport, if set, is called with the references of each archive's images when it was imported, but not when
	// it was found unchanged. It may be called from any goroutine, also before Start has returned; it must not
	// block, nor import.
	OnImport func(refs []string)
}

// ConfigOf returns the embedded runtime's part of an agent's configuration.
func ConfigOf(cfg *config.Config) Config {
	c := Config{RootDir: cfg.RootDir, Bridge: cfg.Embedded.Bridge, BinDirs: binDirs(cfg.Embedded.BinDir),
		SystemdCgroup: cfg.Kubelet.CgroupDriver == validation.CgroupDriverSystemd}
	for i, p := range cfg.Embedded.PodCIDRs {
		if i > 0 {
			c.PodCIDR += ","
		}
		c.PodCIDR += p.String()
	}
	if t := cfg.Kubelet.Tracing; t != nil {
		c.Collector = collector(cmp.Or(ptr.Deref(t.Endpoint, ""), tracing.DefaultEndpoint))
	}
	return c.WithDefaults()
}

// collector converts the endpoint of a collector for containerd, which supports only host and port; empty if it
// can't be converted.
func collector(endpoint string) string {
	at := strings.TrimPrefix(endpoint, "dns:///")
	if _, port, err := net.SplitHostPort(at); err != nil ||
		strings.ContainsFunc(port, func(r rune) bool { return r < '0' || r > '9' }) {
		return ""
	}
	return at
}

// binDirs returns the directories in which the runtime's programs are searched before PATH: the configured directory.
// Without one, these are the package's directory, because /usr/bin may have the host's containerd, and the directory of
// the agent's own program.
func binDirs(configured string) []string {
	if configured != "" {
		return []string{configured}
	}
	if exe, err := os.Executable(); err == nil {
		dir := filepath.Dir(exe)
		return []string{filepath.Join(filepath.Dir(dir), "libexec", "deckhand"), dir}
	}
	return nil
}

var logLevels = []string{"trace", "debug", "info", "warn", "error", "fatal", "panic"}

// WithDefaults sets empty fields that aren't host-wide.
func (c Config) WithDefaults() Config {
	c.PauseImage, c.LogLevel = cmp.Or(c.PauseImage, DefaultPauseImage), cmp.Or(c.LogLevel, DefaultLogLevel)
	if c.OnRestore == nil {
		c.OnRestore = func(string) {}
	}
	return c
}

// Layout returns the paths of the runtime of this configuration.
func (c Config) Layout() (rootdir.Runtime, error) { return rootdir.NewRuntime(c.RootDir) }

// Claim creates the root directory if it is missing. It marks a new or empty directory as deckhand's, which allows
// a teardown to remove the directory. The agent calls Claim before it writes there.
func (c Config) Claim() error {
	l, err := c.Layout()
	if err != nil {
		return err
	}
	return l.Claim()
}

// Network returns the pod network of this configuration.
func (c Config) Network() (cni.Network, error) {
	l, err := c.Layout()
	if err != nil {
		return cni.Network{}, err
	}
	prefixes, err := cni.ParseCIDRs(c.PodCIDR)
	if err != nil {
		return cni.Network{}, err
	}
	n := cni.Network{Bridge: c.Bridge, Prefixes: prefixes, Owner: l.Hash(), AddressDir: l.CNIState(),
		ResultsDir: cni.ResultsDir}
	return n, n.Validate()
}

// Validate returns all errors of a complete configuration.
func (c Config) Validate() error {
	_, err := c.Network()
	errs := []error{err}
	if c.PauseImage == "" || strings.ContainsFunc(c.PauseImage, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		errs = append(errs, fmt.Errorf("pause image %q: isn't an image reference", c.PauseImage))
	}
	if !slices.Contains(logLevels, c.LogLevel) {
		errs = append(errs, fmt.Errorf("containerd's log level %q: has to be one of %s", c.LogLevel,
			strings.Join(logLevels, ", ")))
	}
	return errors.Join(errs...)
}

// Endpoint returns the URL of containerd's CRI socket.
func (c Config) Endpoint() (string, error) {
	l, err := c.Layout()
	if err != nil {
		return "", err
	}
	return endpoint(l), nil
}

func endpoint(l rootdir.Runtime) string {
	return (&url.URL{Scheme: "unix", Path: l.Socket()}).String()
}
