package manager

import (
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/mounts"
)

// checkPropagation fails if the volume at this host path can't be mounted with the propagation mode. The mount that
// contains the path has to be shared for Bidirectional, and shared or a slave for HostToContainer (API:
// MountPropagationMode; mount_namespaces(7)). Symbolic links are followed, as runtimes do.
func checkPropagation(path string, mode v1.MountPropagationMode) error {
	if mode == "" || mode == v1.MountPropagationNone {
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	all, err := mounts.On(real)
	if err != nil {
		return err
	}
	on, state := all[0], "private"
	if on.Shared || on.Slave && mode == v1.MountPropagationHostToContainer {
		return nil
	}
	if on.Slave {
		state = "a slave"
	}
	return fmt.Errorf("mountPropagation %s needs a shared mount, and the one that %s is on, %s, is %s: run `mount "+
		"--make-rshared %s` on the node, before its pods are started",
		mode, path, on.Point, state, on.Point)
}
