// Package room measures the free room on the node's disks, describes errors of full disks, and keeps a reserve for
// the writes that end pods.
package room

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/mounts"
)

// Enough is the minimum free room in bytes, and enoughInodes the minimum number of free inodes, with which a file
// system doesn't count as full. With less, there is no room for another pod, and a log or a database that grows will
// soon fail.
const (
	Enough       = 16 << 20
	enoughInodes = 128
)

// FileSystem has the total and the free room of a file system.
type FileSystem struct {
	// Point is the mount point. Path is the directory that was measured: a project quota may leave less room there than
	// elsewhere on the file system.
	Point, Path string
	// Size and Free are in bytes.
	Size, Free uint64
	// Inodes and FreeInodes are 0 on a file system that doesn't limit their number.
	Inodes, FreeInodes uint64
}

// Measure returns the room at path, or at its closest ancestor that is a directory, because the kernel applies project
// quotas to the figures of directories alone. The free room is that for root, because the agent and the runtime run as
// root.
func Measure(path string) (FileSystem, error) {
	path, err := directory(path)
	if err != nil {
		return FileSystem{}, fmt.Errorf("measure free room: %w", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return FileSystem{}, fmt.Errorf("measure free room on the file system of %s: %w", path, err)
	}
	on, err := mounts.Containing(path)
	if err != nil {
		return FileSystem{}, fmt.Errorf("measure free room: %w", err)
	}
	size := uint64(max(st.Bsize, 0))
	return FileSystem{Point: on.Point, Path: path, Size: st.Blocks * size, Free: freeForRoot(&st) * size,
		Inodes: st.Files, FreeInodes: st.Ffree}, nil
}

// ownPart and ownMost limit the blocks of an ext4 file system that not even root gets: one of ownPart blocks, but at
// most ownMost.
const ownPart, ownMost = 50, 4096

// freeForRoot returns the number of free blocks that root can use. They include the blocks that ext4 reserves for root
// (mkfs.ext4 -m). On other file systems, the free blocks that users can't get aren't available to root, either.
func freeForRoot(st *unix.Statfs_t) uint64 {
	free := min(st.Bavail, st.Bfree)
	if own := min(st.Blocks/ownPart, ownMost); st.Type == unix.EXT4_SUPER_MAGIC && st.Bfree > own {
		return max(free, st.Bfree-own)
	}
	return free
}

// Full reports whether there is hardly any room. A file system without a size, such as that of control groups, is never
// full.
func (f FileSystem) Full() bool { return f.Size > 0 && f.Free < Enough || f.NoInodes() }

// Roomier reports whether there is clearly more room than in an earlier measurement.
func (f FileSystem) Roomier(before FileSystem) bool {
	return f.Free >= before.Free+Enough || f.FreeInodes >= before.FreeInodes+enoughInodes
}

// NoInodes reports whether there are hardly any free inodes.
func (f FileSystem) NoInodes() bool { return f.Inodes > 0 && f.FreeInodes < enoughInodes }

// Room returns the free room as text for people: "0 B of 20.0 GiB and 1200000 of 1310720 inodes".
func (f FileSystem) Room() string {
	text := fmt.Sprintf("%s of %s", Bytes(f.Free), Bytes(f.Size))
	if f.Inodes > 0 {
		text += fmt.Sprintf(" and %d of %d inodes", f.FreeInodes, f.Inodes)
	}
	return text
}

// String returns the mount point and the free room: "/var has 0 B of 20.0 GiB and 1200000 of 1310720 inodes free".
func (f FileSystem) String() string { return f.Point + " has " + f.Room() + " free" }

// Bytes formats a number of bytes as text for people: "613.0 MiB".
func Bytes(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n)/(1<<10), 0
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	for size >= 1023.95 && unit < len(units)-1 {
		size /= 1 << 10
		unit++
	}
	return fmt.Sprintf("%.1f %s", size, units[unit])
}

// directory returns path or its closest ancestor that is a directory.
func directory(path string) (string, error) {
	path, err := filepath.Abs(path)
	for ; err == nil; path = filepath.Dir(path) {
		info, failed := os.Stat(path)
		if failed == nil && info.IsDir() {
			return path, nil
		}
		err = failed
		if gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR); gone && path != "/" {
			err = nil
		}
	}
	return "", err
}
