// Package reset removes everything that an agent made on its host: pods, containers and their
// shims, containerd, mounts, network, cgroups, logs and the root directory. It works from what it
// finds, so it also cleans up after an agent, a containerd or a shim that has died.
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
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/cni"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/orphans"
)

// Config says how the agent was configured when it ran.
type Config struct {
	// Runtime is the embedded runtime's; RootDir in it is the directory to remove.
	Runtime embedded.Config
	// CgroupRoot is the cgroup above the agent's kubepods, such as "/" or "/deckhand".
	CgroupRoot string
	// Slices are the pods' cgroups where systemd makes them; nil where it doesn't.
	Slices Slices
	// PodLogs and ContainerLogs are the directories of logs, /var/log/pods and
	// /var/log/containers by default. Only this agent's logs in them are removed.
	PodLogs, ContainerLogs string
	// Grace is how long containers may take to stop before they are killed; 0 is at once.
	Grace time.Duration
}

// Slices are pods' cgroups that only systemd can remove.
type Slices interface {
	// Orphans lists the pods that have one.
	Orphans() ([]types.UID, error)
	Remove(ctx context.Context, uid types.UID) error
	// RemoveQoSCgroups removes those above the pods' that are empty.
	RemoveQoSCgroups(ctx context.Context) error
}

// resetter is one reset under way.
type resetter struct {
	config  Config
	layout  rootdir.Runtime
	network cni.Network
	log     logr.Logger
}

// Run removes everything. It goes on past what fails, and returns all that
// did; if anything outside the root directory is left, it leaves that directory too:
// called again, it finishes by what is recorded there. On what is down already it
// does nothing. The agent must not run. When ctx ends, containers are killed
// instead of stopped.
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
	// From here on nothing makes anything new, and nothing may be given up half-way.
	ctx = context.WithoutCancel(ctx)
	done := step("processes", func() error { return t.killAll(found) })
	// Container roots, network namespaces, volumes.
	step("mounts", func() error { return orphans.Unmount(t.layout.Root, t.layout.Run()) })
	done = step("network", func() error { return t.removeNetwork(ctx, found) }) && done
	done = step("cgroups", func() error { return t.removeCgroups(ctx, found) }) && done
	done = step("logs", func() error { return t.removeLogs(found) }) && done
	if done {
		step("files", t.removeFiles)
	} else {
		// In the root directory is written what there is to remove.
		errs = append(errs, fmt.Errorf("%s is left for another try", t.layout.Root))
	}
	return errors.Join(errs...)
}

// refuse stops at directories whose loss would hurt, whatever marker they have.
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

// removeFiles removes the root directory, unless someone else's files are in it.
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
	// Without the marker only what is surely ours goes.
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

// removeIfEmpty removes a directory that may be shared, when nobody else needs it.
func removeIfEmpty(dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EBUSY) {
		return nil
	}
	return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
}
