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
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/child"
)

// record is the install record, a file in the root directory. It contains the format of the directory's files, so that
// an older agent refuses to start. It also contains the settings by which the agent creates objects outside of the
// directory, so that a reset needs only the directory's path.
type record struct {
	// Version is the format of the root directory as a whole: see recordVersion.
	Version int `json:"version"`
	// Deckhand is the version of the agent that last ran with this root directory.
	Deckhand   string `json:"deckhand,omitempty"`
	PodCIDR    string `json:"podCIDR"`
	Bridge     string `json:"bridge"`
	CgroupRoot string `json:"cgroupRoot"`
	// Driver is the cgroup driver with which pods' cgroups were created.
	Driver   string `json:"cgroupDriver,omitempty"`
	PodLogs  string `json:"podLogsDir"`
	LogLinks string `json:"containerLogLinksDir"`
	// BinDirs are the directories with the CNI plugin portmap, which a reset runs.
	BinDirs []string `json:"binDirs"`
	// Endpoint is the container runtime's endpoint; empty for the embedded runtime.
	Endpoint string `json:"containerRuntimeEndpoint,omitempty"`
	// Cluster means that the agent was configured with an API server. An agent of LastConfig then keeps pods that may
	// be that API server's (worker.Config.KeepUnknownPods).
	Cluster bool `json:"cluster,omitempty"`
	// Node is the node's name, which is part of static pods' names. Manifests is the path of the static pods'
	// manifests.
	Node      string `json:"nodeName,omitempty"`
	Manifests string `json:"staticPodPath,omitempty"`
}

// recordVersion is increased with every change of a format below the root directory that an older agent couldn't read
// (UPGRADING.md lists them). So an older agent refuses the directory before it changes anything, instead of failing
// in each package that reads a changed file.
const recordVersion = 1

// grace is the grace period that a reset gives to containers.
const grace = 10 * time.Second

func recordPath(root string) string { return filepath.Join(root, rootdir.Record) }

// CheckRecord returns an error for a root directory that a newer deckhand has used. It changes nothing.
func CheckRecord(root string) error {
	if _, _, err := load(root); errors.Is(err, checkpoint.ErrNewer) {
		return err
	}
	return nil // a damaged record is replaced
}

// Recorded reports whether an agent has run with this root directory. It also returns true if the record is damaged.
func Recorded(root string) bool {
	_, found, _ := load(root)
	return found
}

// InCluster reports whether the last agent with this root directory was configured with an API server.
func InCluster(root string) bool {
	r, _, err := load(root)
	return err == nil && r.Cluster
}

// Replaced is for an agent with this configuration. If the agent reads its manifests from another path than the last
// agent, it will stop the last agent's pods: then Replaced returns the last agent's manifest path and the number of its
// pods that are left. Otherwise it returns "" and 0.
func Replaced(cfg *config.Config) (manifests string, pods int) {
	r, found, err := load(cfg.RootDir)
	if err != nil || !found || r.Manifests == "" ||
		filepath.Clean(r.Manifests) == filepath.Clean(cfg.Kubelet.StaticPodPath) {
		return "", 0
	}
	dirs, err := rootdir.New(cfg.RootDir, cfg.CertDir)
	if err != nil {
		return "", 0 // the agent reports this error itself
	}
	left, err := os.ReadDir(dirs.Pods())
	if err != nil {
		return "", 0
	}
	return r.Manifests, len(left)
}

// load reads the record; found is false if it doesn't exist.
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

// Record writes the install record of an agent with this configuration. The caller holds the root directory's lock.
// Record returns the same errors as CheckRecord.
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
		return nil // unchanged: the agent can be restarted even with a full disk
	}
	return atomicfile.Write(path, data, 0o600)
}

// RecordedConfig returns the configuration of a reset according to the record. Without a record it returns the
// defaults: an agent writes the record before it creates anything outside of the root directory.
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
		c.Slices = cgroup.New(cgroup.Config{Driver: tree.DriverSystemd, CgroupRoot: r.CgroupRoot}, logr.Discard())
	}
	return c, nil
}

// LastConfig returns a configuration with which an agent can stop the pods of the last agent. An agent with this
// configuration opens no ports. found is false if no agent has run with this root directory.
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
	// These settings have no flags; warnings about deprecated flags aren't about flags of the user.
	last.Kubelet.PodLogsDir, last.Standalone, last.Deprecated = r.PodLogs, !r.Cluster, nil
	return &last, true, nil
}

// Running reports whether there is anything for an agent to stop: pods, or a containerd of this root directory.
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
