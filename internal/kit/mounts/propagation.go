package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Share makes mounts below dir propagate to and from the mount namespaces of containers (mount_namespaces(7)). If the
// mount that contains dir isn't shared, Share binds dir on itself, so that other directories keep their propagation. It
// does so only while nothing is mounted below dir: such mounts would be hidden by the new one, and couldn't be
// unmounted. A mount at dir, or an earlier bind, is only made shared. Share follows symbolic links.
func Share(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("make a shared mount: %w", err)
	}
	above, err := On(dir)
	if err != nil {
		return err
	}
	on := above[0]
	if on.Shared {
		return nil
	}
	if on.Point != dir {
		below, err := List(dir)
		if err != nil {
			return err
		}
		if len(below) > 0 {
			return fmt.Errorf("bind %[1]s on itself: something is mounted in it, at %[2]s: that is done by the first "+
				"start without such mounts, as after a reboot; or run `mount --bind %[1]s %[1]s && mount "+
				"--make-rshared %[1]s` before these are mounted", dir, below[0].Point)
		}
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s on itself: %w", dir, err)
		}
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make the mount at %s shared: %w", dir, err)
	}
	return nil
}

// Unshare unmounts dir if it is bound on itself, as by Share, and leaves any other mount alone. A mount in use
// disappears when its last user ends.
func Unshare(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("unmount a directory: %w", err)
	}
	for {
		above, err := On(dir)
		if err != nil {
			return err
		}
		if above[0].Point != dir || len(above) < 2 || !above[0].isPartOf(above[1]) {
			return nil
		}
		if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
}

// On returns the mount that contains a path without links, followed by the mounts on which it is mounted: each mount is
// the parent of the mount before it.
func On(path string) ([]Entry, error) {
	infos, err := mountinfo.GetMounts(mountinfo.ParentsFilter(path))
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	if len(infos) == 0 {
		return nil, fmt.Errorf("find the mount that contains %s: it isn't in the mount table", path)
	}
	deepest := infos[0]
	for _, i := range infos[1:] { // if there are several mounts at one path, the last one is on top
		if len(i.Mountpoint) >= len(deepest.Mountpoint) {
			deepest = i
		}
	}
	found := []Entry{entryOf(deepest)}
	for len(found) <= len(infos) {
		parent := slices.IndexFunc(infos, func(i *mountinfo.Info) bool {
			return uint64(i.ID) == found[len(found)-1].Parent
		})
		if parent < 0 {
			break
		}
		found = append(found, entryOf(infos[parent]))
	}
	return found, nil
}

// isPartOf reports whether mount e shows the directory that mount other has at the mount point of e: the directory is
// bound on itself.
func (e Entry) isPartOf(other Entry) bool {
	below, err := filepath.Rel(other.Point, e.Point)
	return err == nil && e.Major == other.Major && e.Minor == other.Minor && e.ReadOnly == other.ReadOnly &&
		e.Root == filepath.Join(other.Root, below)
}
