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
	// A later mount can only be on or inside an earlier one, or elsewhere.
	slices.Reverse(points)
	return points, nil
}

// Unmount takes all mounts below the directories away. What is still in use goes
// when its user does.
func Unmount(dirs ...string) error {
	points, err := mountsUnder(dirs...)
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range points {
		err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		// EINVAL: it went together with one around it.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	return errors.Join(errs...)
}

// RemoveTree removes a directory with everything in it. It follows no link
// (os.RemoveAll works with openat and unlinkat) and refuses to cross a mount.
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
