package manager

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
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
	// The table lists mounts in the order in which they were made.
	above, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		return !below(real, i.Mountpoint), false
	})
	if err != nil {
		return fmt.Errorf("read the mount table: %w", err)
	}
	var on *mountinfo.Info
	for _, i := range above {
		if on == nil || len(i.Mountpoint) >= len(on.Mountpoint) { // a later mount covers an earlier one
			on = i
		}
	}
	if on == nil {
		return fmt.Errorf("the mount table has nothing that %s is on", real)
	}
	shared, slave := tagged(on, "shared:"), tagged(on, "master:")
	if shared || slave && mode == v1.MountPropagationHostToContainer {
		return nil
	}
	what := "private"
	if slave {
		what = "a slave"
	}
	return fmt.Errorf("mountPropagation %s needs a shared mount, and the one that %s is on, %s, is %s: run `mount "+
		"--make-rshared %s` on the node, before its pods are started",
		mode, path, on.Mountpoint, what, on.Mountpoint)
}

func below(path, top string) bool {
	return path == top || strings.HasPrefix(path, strings.TrimSuffix(top, "/")+"/")
}

func tagged(i *mountinfo.Info, tag string) bool {
	for field := range strings.FieldsSeq(i.Optional) {
		if strings.HasPrefix(field, tag) {
			return true
		}
	}
	return false
}
