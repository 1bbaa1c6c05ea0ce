// Package reset removes everything that an agent created on its host: pods, containers and their shims, containerd,
// mounts, network, cgroups, logs and the root directory. It works from the objects that it finds, so it also cleans
// up after an agent, a containerd or a shim that has died.
package reset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/cni"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/orphans"
)

// Config is the configuration of the agent that ran.
type Config struct {
	// Runtime configures the embedded runtime; its RootDir is the directory to remove.
	Runtime embedded.Config
	// CgroupRoot is the parent of the agent's cgroup kubepods, such as "/" or "/deckhand".
	CgroupRoot string
	// Slices manages the pods' cgroups with the systemd driver; nil with the driver cgroupfs.
	Slices Slices
	// PodLogs and ContainerLogs are the log directories, by default /var/log/pods and /var/log/containers. Only this
	// agent's logs in them are removed.
	PodLogs, ContainerLogs string
	// Grace is the time for containers to stop before they are killed; 0 kills them at once.
	Grace time.Duration
}

// Slices are the systemd slices of pods' cgroups, which only systemd can remove.
type Slices interface {
	// Orphans lists the UIDs of pods that still have a slice.
	Orphans() ([]types.UID, error)
	Remove(ctx context.Context, uid types.UID) error
	// RemoveQoSCgroups removes the empty parents of the pods' slices.
	RemoveQoSCgroups(ctx context.Context) error
}

// resetter holds the data of one call of Run.
type resetter struct {
	config  Config
	layout  rootdir.Runtime
	network cni.Network
	log     logr.Logger
}

// Run removes everything that the agent created. It continues after errors, and returns all of them. If anything
// outside the root directory is left, Run keeps that directory, because its records are needed to finish in another
// call. Repeating a completed reset does nothing. The agent must not run meanwhile. When ctx ends, containers are
// killed instead of stopped.
func Run(ctx context.Context, config Config, log logr.Logger) error {
	config.Runtime = config.Runtime.WithDefaults()
	if err := config.Runtime.Validate(); err != nil {
		return fmt.Errorf("take down: %w", err)
	}
	l, err := config.Runtime.Layout()
	if err != nil {
		return fmt.Errorf("take down: %w", err)
	}
	network, err := config.Runtime.Network()
	if err != nil {
		return fmt.Errorf("take down: %w", err)
	}
	if err := refuse(l.Root); err != nil {
		return fmt.Errorf("take down: %w", err)
	}
	if err := embedded.CheckOurs(ctx, l); err != nil {
		return fmt.Errorf("take down: %w", err)
	}
	t := &resetter{config: config, layout: l, network: network, log: log}
	if err := t.run(ctx); err != nil {
		return fmt.Errorf("take down %s: %w", l.Root, err)
	}
	return nil
}

func (t *resetter) run(ctx context.Context) error {
	var errs []error
	step := func(what string, do func() error) (done bool) {
		t.log.V(4).Info("Removing", "object", what)
		err := do()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
		return err == nil
	}
	found := t.inventory()
	step("pods", func() error { return t.stopPods(ctx, found) })
	step("containerd", func() error { return t.stopContainerd(ctx) })
	// From here on nothing creates new objects, and the steps must not be cancelled half-way.
	ctx = context.WithoutCancel(ctx)
	done := step("processes", func() error { return t.killAll(found) })
	// These are the root file systems of containers, network namespaces and volumes.
	step("mounts", func() error {
		return errors.Join(orphans.Unmount(t.layout.Root, t.layout.Run()), mounts.Unshare(t.layout.Root))
	})
	done = step("network", func() error { return t.removeNetwork(ctx, found) }) && done
	done = step("cgroups", func() error { return t.removeCgroups(ctx, found) }) && done
	done = step("logs", func() error { return t.removeLogs(found) }) && done
	if done {
		step("files", t.removeFiles)
	} else {
		// The root directory has the records of the objects that are left.
		errs = append(errs, fmt.Errorf("%s is left for another try", t.layout.Root))
	}
	return errors.Join(errs...)
}

// refuse returns an error for a root that is a file or a system directory, even if an agent has marked the directory
// as its own: its loss would damage the host.
func refuse(root string) error {
	if rootdir.IsSystem(root) {
		return fmt.Errorf("%s is a directory of the system: not touched", root)
	}
	info, err := os.Lstat(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s isn't a directory: not touched", root)
	}
	return nil
}

// removeFiles removes the root directory, unless it contains files that deckhand didn't create.
func (t *resetter) removeFiles() error {
	var errs []error
	if _, err := os.Lstat(t.layout.Root); err == nil {
		errs = append(errs, t.removeRoot())
	}
	errs = append(errs, orphans.RemoveTree(t.layout.Run()), removeIfEmpty(t.layout.RunBase()))
	return errors.Join(errs...)
}

func (t *resetter) removeRoot() error {
	if t.layout.Claimed() {
		return orphans.RemoveTree(t.layout.Root)
	}
	// If the directory has no marker, only the directories in it that certainly belong to the agent are removed.
	var errs []error
	for _, dir := range []string{t.layout.Containerd(), filepath.Dir(t.layout.CNIConf())} {
		errs = append(errs, orphans.RemoveTree(dir))
	}
	entries, err := os.ReadDir(t.layout.Root)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s was there before deckhand (it has no file %s), so the directory is left: remove it "+
			"yourself if you don't need it",
			t.layout.Root, filepath.Base(t.layout.Marker()))
	} else if err == nil {
		err = os.Remove(t.layout.Root)
	}
	return errors.Join(append(errs, err)...)
}

// removeIfEmpty removes a directory that other programs may use as well, if it is empty and not in use.
func removeIfEmpty(dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EBUSY) {
		return nil
	}
	return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
}
