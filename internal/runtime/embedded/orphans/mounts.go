package orphans

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// mountsUnder lists the mount points below the directories, innermost first.
func mountsUnder(dirs ...string) ([]string, error) {
	infos, err := mountinfo.GetMounts(func(info *mountinfo.Info) (skip, stop bool) {
		return !slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(info.Mountpoint, dir+"/") }),
			false
	})
	if err != nil {
		return nil, fmt.Errorf("list the mounts: %w", err)
	}
	points := make([]string, 0, len(infos))
	for _, info := range infos {
		points = append(points, info.Mountpoint)
	}
	// A mount is listed after the mounts around it.
	slices.Reverse(points)
	return points, nil
}

// Unmount detaches all mounts below the directories. Mounts in use disappear when their last user ends.
func Unmount(dirs ...string) error {
	points, err := mountsUnder(dirs...)
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range points {
		err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		// EINVAL: it was detached together with its parent mount.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	return errors.Join(errs...)
}

// RemoveTree removes a directory with its contents. It follows no symbolic links (os.RemoveAll uses openat and
// unlinkat) and refuses to cross a mount.
func RemoveTree(dir string) error {
	points, err := mountsUnder(dir)
	if err != nil {
		return err
	}
	if len(points) > 0 {
		return fmt.Errorf("%s is still mounted, so %s isn't removed", points[len(points)-1], dir)
	}
	return os.RemoveAll(dir)
}
