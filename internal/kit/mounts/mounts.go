// Package mounts reads the mount table below a directory, takes mounts off without following
// links, and mounts tmpfs file systems, which never go to swap where the kernel can do that.
package mounts

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// Entry is a row of the mount table (proc_pid_mountinfo(5)).
type Entry struct {
	// Point is where it is mounted, as a path without links.
	Point string
	// ID is its number, and Parent that of the mount it is mounted on. Of two that are mounted
	// at one place, the upper has the lower one as its parent.
	ID, Parent uint64
	// Major and Minor number the mount's device: they are st_dev of the files in it.
	Major, Minor int
	// FSType is the kind of file system ("ext4", "fuse.sshfs"), and Source what it calls its device.
	FSType, Source string
	// Root is the directory or file of the file system that is seen at Point: "/", or
	// something below for a bind mount.
	Root string
	// ReadOnly says that nothing can be written through this mount.
	ReadOnly bool
}

// List returns the mounts at prefix and below, which is a path without links, in the order in which they can be
// unmounted: deeper ones come first, and of several at one place the topmost. It includes mounts that are hidden by
// another one; they can't be unmounted before that one.
func List(prefix string) ([]Entry, error) {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(prefix))
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	list := make([]Entry, len(infos))
	parents := make(map[uint64]uint64, len(infos))
	for i, info := range infos {
		list[i] = Entry{
			Point: info.Mountpoint, ID: uint64(info.ID), Parent: uint64(info.Parent),
			Major: info.Major, Minor: info.Minor,
			FSType: info.FSType, Source: info.Source, Root: info.Root,
			ReadOnly: readOnly(info.Options) || readOnly(info.VFSOptions),
		}
		parents[list[i].ID] = list[i].Parent
	}
	slices.SortStableFunc(list, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(len(b.Point), len(a.Point)),
			cmp.Compare(height(parents, b.ID), height(parents, a.ID)))
	})
	return list, nil
}

// Overlays returns the upper directories of the overlay file systems that are mounted, by the place of each. It leaves
// out those without one, and those whose path the mount table can't give as it is.
func Overlays() (map[string]string, error) {
	infos, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("overlay"))
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	uppers := make(map[string]string, len(infos))
	for _, info := range infos {
		for option := range strings.SplitSeq(info.VFSOptions, ",") {
			if dir, ok := strings.CutPrefix(option, "upperdir="); ok && !strings.Contains(dir, `\`) {
				uppers[info.Mountpoint] = dir
			}
		}
	}
	return uppers, nil
}

// height is how many mounts of the list are below this one.
func height(parents map[uint64]uint64, id uint64) int {
	n := 0
	for parent, ok := parents[id]; ok && parent != id && n < len(parents); parent, ok = parents[id] {
		id = parent
		n++
	}
	return n
}

func readOnly(options string) bool { return slices.Contains(strings.Split(options, ","), "ro") }

// Unmount takes the topmost mount off name in the open directory parent. flags are those of
// umount2(2); a link called name is never followed. EINVAL says that nothing is mounted there, EBUSY
// that it is in use. It waits for as long as the file system lets it.
func Unmount(parent *os.File, name string, flags int) error {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return fmt.Errorf("unmount %q: %w", name, unix.EINVAL)
	}
	if err := unix.Unmount(safeopen.Path(parent)+"/"+name, flags|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %q: %w", name, err)
	}
	return nil
}
