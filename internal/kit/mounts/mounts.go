// Package mounts reads the mount table, unmounts without following links, shares directories with other mount
// namespaces, and mounts tmpfs file systems, which are never swapped out if the kernel supports that.
package mounts

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// Entry is a row of the mount table (proc_pid_mountinfo(5)).
type Entry struct {
	// Point is the mount point, as a path without links.
	Point string
	// ID is the mount's ID, Parent the ID of the mount that it is mounted on. Of two mounts at one mount point, the
	// upper one has the lower one as its parent.
	ID, Parent uint64
	// Major and Minor are the number of the file system's device. Except on btrfs, they equal st_dev of the files in
	// it. All mounts of a file system have the same numbers, including those of btrfs subvolumes.
	Major, Minor int
	// FSType is the type of the file system ("ext4", "fuse.sshfs"), and Source its device, as the file system names
	// it.
	FSType, Source string
	// Root is the directory or file of the file system that is seen at Point: "/", or
	// something below for a bind mount.
	Root string
	// ReadOnly says that nothing can be written through this mount.
	ReadOnly bool
	// Shared says that mounts below this mount propagate to its peers in other mount namespaces, and back. Slave says
	// that mounts propagate from there to this mount; they propagate back only if it is also Shared.
	Shared, Slave bool
}

// Device is the number of the file system's device, as MAJOR:MINOR.
func (e Entry) Device() string { return fmt.Sprintf("%d:%d", e.Major, e.Minor) }

// List returns the mounts at and below prefix, which is a path without links, in the order in which they can be
// unmounted: deeper mounts come first, and of several mounts at one path the topmost. The result includes mounts that
// are hidden by another mount; they can't be unmounted before that one.
func List(prefix string) ([]Entry, error) {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(prefix))
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	list := make([]Entry, len(infos))
	parents := make(map[uint64]uint64, len(infos))
	for i, info := range infos {
		list[i] = entryOf(info)
		parents[list[i].ID] = list[i].Parent
	}
	slices.SortStableFunc(list, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(len(b.Point), len(a.Point)),
			cmp.Compare(height(parents, b.ID), height(parents, a.ID)))
	})
	return list, nil
}

// Containing returns the mount that contains the path. A directory that is bound on itself (see Share) counts as a part
// of the mount around it. Containing blocks as long as a file system in the path blocks it.
func Containing(path string) (Entry, error) {
	path, err := filepath.EvalSymlinks(path) // the mount table has no symbolic links
	if err != nil {
		return Entry{}, fmt.Errorf("find the mount that contains a path: %w", err)
	}
	found, err := On(path)
	if err != nil {
		return Entry{}, err
	}
	for len(found) > 1 && found[0].isPartOf(found[1]) {
		found = found[1:]
	}
	return found[0], nil
}

func entryOf(i *mountinfo.Info) Entry {
	return Entry{
		Point: i.Mountpoint, ID: uint64(i.ID), Parent: uint64(i.Parent),
		Major: i.Major, Minor: i.Minor,
		FSType: i.FSType, Source: i.Source, Root: i.Root,
		ReadOnly: readOnly(i.Options) || readOnly(i.VFSOptions),
		Shared:   tagged(i, "shared:"),
		Slave:    tagged(i, "master:"),
	}
}

// Overlays returns the upper directory of each mounted overlay file system, by mount point. It omits file systems
// without an upper directory, and file systems whose upper directory is escaped in the mount table.
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

// height is the number of ancestors of a mount in parents.
func height(parents map[uint64]uint64, id uint64) int {
	n := 0
	for parent, ok := parents[id]; ok && parent != id && n < len(parents); parent, ok = parents[id] {
		id = parent
		n++
	}
	return n
}

func readOnly(options string) bool { return slices.Contains(strings.Split(options, ","), "ro") }

// Unmount unmounts the topmost mount at name in the open directory parent. flags are those of umount2(2); a link
// called name is never followed. The error is EINVAL if nothing is mounted there, EBUSY if the mount is in use. The
// call blocks as long as the file system blocks it.
func Unmount(parent *os.File, name string, flags int) error {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return fmt.Errorf("unmount %q: %w", name, unix.EINVAL)
	}
	if err := unix.Unmount(safeopen.Path(parent)+"/"+name, flags|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %q: %w", name, err)
	}
	return nil
}

// tagged reports whether a mount has this optional field.
func tagged(i *mountinfo.Info, tag string) bool {
	for field := range strings.FieldsSeq(i.Optional) {
		if strings.HasPrefix(field, tag) {
			return true
		}
	}
	return false
}
