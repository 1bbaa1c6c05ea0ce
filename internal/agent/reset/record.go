package reset

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/config/validation"
	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/child"
)

// record is the install record. It says whose the root directory is, and how that agent was configured to make
// things outside it. It is in the root directory, so that a reset needs nothing but that directory's path,
// and an agent that is too old for what is there touches nothing.
type record struct {
	// Version is the format of the root directory as a whole: see recordVersion.
	Version int `json:"version"`
	// Deckhand is the version of the agent that last ran here.
	Deckhand   string `json:"deckhand,omitempty"`
	PodCIDR    string `json:"podCIDR"`
	Bridge     string `json:"bridge"`
	CgroupRoot string `json:"cgroupRoot"`
	// Driver is the cgroup driver.
	Driver   string `json:"cgroupDriver,omitempty"`
	PodLogs  string `json:"podLogsDir"`
	LogLinks string `json:"containerLogLinksDir"`
	// BinDirs have the portmap plugin, which a reset calls.
	BinDirs []string `json:"binDirs"`
	// Endpoint is the runtime's; empty for the embedded one.
	Endpoint string `json:"containerRuntimeEndpoint,omitempty"`
	// Cluster says that the agent was told of an API server, whose pods it leaves alone.
	Cluster bool `json:"cluster,omitempty"`
	// Node is the node's name, which is part of static pods' names; Manifests is where those came from.
	Node      string `json:"nodeName,omitempty"`
	Manifests string `json:"staticPodPath,omitempty"`
}

// recordVersion is raised with every format below the root directory that an older agent
// couldn't read (UPGRADING.md lists them): one refusal before anything is touched, instead of
// one by each package that meets its own file.
const recordVersion = 1

// grace is how long containers may take to end in a reset.
const grace = 10 * time.Second

func recordPath(root string) string { return filepath.Join(root, rootdir.Record) }

// CheckRecord refuses a root directory that a newer deckhand has used. It changes nothing.
func CheckRecord(root string) error {
	if _, _, err := load(root); errors.Is(err, checkpoint.ErrNewer) {
		return err
	}
	return nil // one that is damaged is made again
}

// Recorded reports whether an agent has run with this root directory. A record that is damaged
// was made by an agent, too.
func Recorded(root string) bool {
	_, found, _ := load(root)
	return found
}

// InCluster reports whether the last agent with this root directory had an API server.
func InCluster(root string) bool {
	r, _, err := load(root)
	return err == nil && r.Cluster
}

// Replaced returns where the manifests of the last agent came from, and how many pods it has left there, if an agent
// with this configuration takes others: it will end those. It returns 0 if there is nothing to lose.
func Replaced(cfg *config.Config) (manifests string, pods int) {
	r, found, err := load(cfg.RootDir)
	if err != nil || !found || r.Manifests == "" ||
		filepath.Clean(r.Manifests) == filepath.Clean(cfg.Kubelet.StaticPodPath) {
		return "", 0
	}
	dirs, err := rootdir.New(cfg.RootDir, cfg.CertDir)
	if err != nil {
		return "", 0 // the agent will say what is wrong
	}
	left, err := os.ReadDir(dirs.Pods())
	if err != nil {
		return "", 0
	}
	return r.Manifests, len(left)
}

// load reads the record; found is false if there is none.
func load(root string) (r record, found bool, err error) {
	path := recordPath(root)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, true, err
	}
	if err := checkpoint.CheckVersion(data, recordVersion); errors.Is(err, checkpoint.ErrNewer) {
		var by struct{ Deckhand string }
		_ = json.Unmarshal(data, &by) // for the message only
		return r, true, fmt.Errorf(
			"the root directory %s can't be used by deckhand %s: %w; nothing was changed, and pods run on: install "+
				"%s or newer again, or have it remove everything (`deckhand reset`) before you go back",
			root, buildinfo.Get().Version, err, cmp.Or(by.Deckhand, "that version"))
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, true, fmt.Errorf("%s can't be understood: %w", path, err)
	}
	return r, true, nil
}

// Record records that an agent with this configuration runs here now. The caller holds the
// root directory's lock. It refuses what CheckRecord refuses.
func Record(cfg *config.Config) error {
	if err := CheckRecord(cfg.RootDir); err != nil {
		return err
	}
	e := embedded.ConfigOf(cfg)
	data, err := json.MarshalIndent(
		record{Version: recordVersion, Deckhand: buildinfo.Get().Version, PodCIDR: e.PodCIDR, Bridge: e.Bridge,
			CgroupRoot: cfg.Kubelet.CgroupRoot, Driver: cfg.Kubelet.CgroupDriver, PodLogs: cfg.Kubelet.PodLogsDir,
			LogLinks: cfg.ContainerLogLinksDir, BinDirs: e.BinDirs,
			Endpoint: cfg.Kubelet.ContainerRuntimeEndpoint, Cluster: !cfg.Standalone, Node: cfg.NodeName,
			Manifests: cfg.Kubelet.StaticPodPath}, "", "  ")
	if err != nil {
		return err
	}
	path, data := recordPath(cfg.RootDir), append(data, '\n')
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil // an agent that comes back to a full disk doesn't need to write it
	}
	return atomicfile.Write(path, data, 0o600)
}

// RecordedConfig returns what a reset has to look for. Without a record the agent never came far
// enough to make anything outside its defaults.
func RecordedConfig(root string) (Config, error) {
	c := Config{Runtime: embedded.Config{RootDir: root, PodCIDR: config.DefaultPodCIDR,
		Bridge: flags.DefaultBridge}.WithDefaults(), Grace: grace,
		PodLogs: "/var/log/pods", ContainerLogs: flags.DefaultContainerLogLinksDir}
	r, found, err := load(root)
	if err != nil || !found {
		return c, err
	}
	c.Runtime.PodCIDR, c.Runtime.Bridge, c.CgroupRoot = r.PodCIDR, r.Bridge, r.CgroupRoot
	c.PodLogs, c.ContainerLogs = r.PodLogs, r.LogLinks
	c.Runtime.BinDirs = r.BinDirs
	if r.Driver == validation.CgroupDriverSystemd {
		c.Slices = cgroup.New(cgroup.Config{Driver: cgroup.DriverSystemd, CgroupRoot: r.CgroupRoot}, logr.Discard())
	}
	return c, nil
}

// LastConfig returns the configuration of an agent that can stop what the last one ran here. found is false if none
// did. It opens no ports.
func LastConfig(ctx context.Context, root string) (cfg *config.Config, found bool, err error) {
	r, found, err := load(root)
	if err != nil || !found {
		return nil, found, err
	}
	set := flags.New(root)
	given := pflag.NewFlagSet("last", pflag.ContinueOnError)
	set.AddTo(given)
	values := map[string]string{"root-dir": root, "pod-cidr": r.PodCIDR, "embedded-bridge": r.Bridge,
		"cgroup-root": r.CgroupRoot, "cgroup-driver": r.Driver,
		"container-log-links-dir": r.LogLinks, "container-runtime-endpoint": r.Endpoint, "hostname-override": r.Node,
		"healthz-port": "0", "read-only-port": "0"}
	if len(r.BinDirs) == 1 {
		values["embedded-bin-dir"] = r.BinDirs[0]
	}
	for name, value := range values {
		if value == "" {
			continue
		}
		if err := given.Set(name, value); err != nil {
			return nil, true, fmt.Errorf("%s: %w", recordPath(root), err)
		}
	}
	loaded, err := config.Load(ctx, set)
	if err != nil {
		return nil, true, fmt.Errorf("the configuration of the agent that ran last: %w", err)
	}
	last := *loaded
	// These have no flags, or none that a person gave.
	last.Kubelet.PodLogsDir, last.Standalone, last.Deprecated = r.PodLogs, !r.Cluster, nil
	return &last, true, nil
}

// Running reports whether anything is there for an agent to stop: pods, or a containerd of this root directory.
func Running(root string) (bool, error) {
	if len(names(filepath.Join(root, "pods"))) > 0 {
		return true, nil
	}
	layout, err := rootdir.NewRuntime(root)
	if err != nil {
		return false, err
	}
	p, err := child.Find(layout.Config())
	if err != nil || p == nil {
		return false, err
	}
	p.Reap()
	return true, nil
}
