// Package embedded runs containerd for the agent: as a child in a session of its own, with
// generated configuration, restarted if it dies, adopted if it still runs, and left running
// when the agent stops. Its network is in package cni, the image archives it imports in package
// archives, the shims it has lost in package orphans.
//
// It also asks containerd for what the CRI doesn't offer: how far a pull is, and the removal of
// a task that the CRI has lost sight of.
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
	"github.com/deckhand-node/deckhand/internal/report/tracing"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/cni"
)

// What a Config gets where it says nothing.
const (
	// DefaultPauseImage comes as an archive with deckhand, so that no registry is needed.
	DefaultPauseImage = "deckhand.local/pause:1"
	// DefaultLogLevel leaves out containerd's lines for every single call.
	DefaultLogLevel = "warn"
)

// Config is what can be chosen about the embedded runtime. What is host-wide
// (Bridge, PodCIDR) has to differ between two agents on one host; everything
// else follows from RootDir.
type Config struct {
	// RootDir is the agent's root directory, absolute.
	RootDir string
	// BinDirs are searched for containerd, its shim, runc and the CNI plugins before PATH.
	BinDirs []string
	// PodCIDR is one range, or one of each IP family with a comma between.
	PodCIDR string
	// Bridge is the name of the host's interface that pods are plugged into.
	Bridge string
	// PauseImage holds each pod's namespaces. It is never collected as garbage.
	PauseImage string
	// LogLevel is containerd's: trace, debug, info, warn, error, fatal or panic.
	LogLevel string
	// SystemdCgroup has runc ask systemd for containers' cgroups, which has to be so if
	// pods' cgroup parents are slices (KubeletConfiguration cgroupDriver: systemd).
	SystemdCgroup bool
	// OnStart, if set, is called with the number of a containerd that was started or found. An error of it keeps the
	// runtime from being used: that containerd is stopped, and fails Start, or is started again by Run.
	OnStart func(pid int) error
	// Collector is where spans go of calls that the agent traces, by OTLP over gRPC: HOST:PORT, or empty for nowhere.
	Collector string
	// OnRestore, if set, is called with a sentence after parts of the pods' network that another program
	// removed were made again.
	OnRestore func(message string)
	// OnImport, if set, is called with the references of each archive's images when it was
	// imported, not when it was found unchanged. It is called from any goroutine,
	// also before Start has returned; it must not block, nor import.
	OnImport func(refs []string)
}

// ConfigOf is the embedded runtime's part of an agent's configuration.
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

// collector is an endpoint of a collector as containerd can have it: nowhere but at a host and port.
func collector(endpoint string) string {
	at := strings.TrimPrefix(endpoint, "dns:///")
	if _, port, err := net.SplitHostPort(at); err != nil ||
		strings.ContainsFunc(port, func(r rune) bool { return r < '0' || r > '9' }) {
		return ""
	}
	return at
}

// binDirs are where the runtime's programs are looked for before PATH, unless a directory is
// configured: where the package puts them, whose /usr/bin may have a containerd of the host,
// and beside the agent's own program.
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

// WithDefaults fills in what is empty and isn't host-wide.
func (c Config) WithDefaults() Config {
	for _, f := range []struct {
		field *string
		value string
	}{
		{&c.PauseImage, DefaultPauseImage}, {&c.LogLevel, DefaultLogLevel},
	} {
		if *f.field == "" {
			*f.field = f.value
		}
	}
	if c.OnRestore == nil {
		c.OnRestore = func(string) {}
	}
	return c
}

// Layout has the paths of the runtime of this configuration.
func (c Config) Layout() (rootdir.Runtime, error) { return rootdir.NewRuntime(c.RootDir) }

// Claim makes the root directory and marks it as deckhand's if it is new or empty,
// which lets a teardown remove it. The agent calls it before it writes there.
func (c Config) Claim() error {
	l, err := c.Layout()
	if err != nil {
		return err
	}
	return l.Claim()
}

// Network is the pod network of this configuration.
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

// Validate reports everything that is wrong with a complete configuration.
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

// Endpoint is where containerd of this configuration answers CRI calls, as a URL.
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
