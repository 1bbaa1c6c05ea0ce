// Package objectfiles provides the volumes whose files the agent writes and updates: configMap, secret, downwardAPI
// and projected. They behave as the API comments of their sources specify. Volumes that may contain secrets are in
// memory only.
//
// Errors that another version of an object may resolve are *volume.AwaitsError. Errors contain no values of
// Secrets; names of keys aren't secret.
package objectfiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/atomicwriter"
)

// source defines a type of volume.
type source struct {
	// Name is the plugin's name.
	Name string
	// Supports reports whether a volume is of this type.
	Supports func(volume.Spec) bool
	// Files returns the files that the volume should hold. It is safe for concurrent use.
	Files func(context.Context, volume.Request) (map[string]atomicwriter.File, error)
	// Memory is set if the files must not be written to disk: it returns the number of objects in a volume, each of
	// up to 1 MiB. It is nil for volumes on disk.
	Memory func(volume.Spec) int
}

// Plugin is the volume plugin for one type of volume.
type Plugin struct{ source source }

var _ volume.Live = (*Plugin)(nil)

// newPlugin returns a plugin for this type of volume.
func newPlugin(s source) *Plugin { return &Plugin{s} }

// Name is the plugin's name.
func (p *Plugin) Name() string { return p.source.Name }

// Supports reports whether the volume is of the plugin's type.
func (p *Plugin) Supports(s volume.Spec) bool { return s.Persistent == nil && p.source.Supports(s) }

// Mount makes the directory and writes the files. If that fails while containers use the volume, it keeps the
// previous files: a restarted agent adopts pods whose objects were deleted meanwhile, or have become invalid for the
// volume. The next Refresh reports the error.
func (p *Plugin) Mount(ctx context.Context, r volume.Request) (volume.Mounted, error) {
	changed, err := p.mount(ctx, r)
	retained := err != nil && r.InUse && ctx.Err() == nil && p.whole(ctx, r)
	if err != nil && !retained {
		return volume.Mounted{}, err
	}
	return volume.Mounted{Path: r.Dir, ReadOnly: true, Retained: retained, Updated: changed && r.InUse}, nil
}

func (p *Plugin) mount(ctx context.Context, r volume.Request) (changed bool, err error) {
	files, err := p.files(ctx, r)
	if err != nil {
		return false, err
	}
	if err := p.directory(r); err != nil {
		return false, err
	}
	return p.write(ctx, r, files)
}

// Refresh updates the files if they differ from the objects. If the objects can't be read, readers keep the current
// files, and older generations are removed.
func (p *Plugin) Refresh(ctx context.Context, r volume.Request) (changed bool, err error) {
	files, err := p.files(ctx, r)
	if err != nil {
		p.whole(ctx, r)
		return false, err
	}
	return p.write(ctx, r, files)
}

func (p *Plugin) files(ctx context.Context, r volume.Request) (map[string]atomicwriter.File, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	files, err := p.source.Files(ctx, r)
	if err != nil {
		return nil, err
	}
	return files, atomicwriter.CheckAll(files)
}

// directory makes the volume's directory unless it exists.
func (p *Plugin) directory(r volume.Request) error {
	group, mode := owner(r)
	if p.source.Memory != nil {
		return mounts.MountTmpfs(r.Dir,
			mounts.TmpfsOptions{Mode: mode | unix.S_ISVTX, GID: group, Size: p.size(r.Spec)})
	}
	if err := os.MkdirAll(filepath.Dir(r.Dir), 0o750); err != nil {
		return err
	}
	if err := os.Mkdir(r.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	dir, err := p.open(r)
	if err != nil {
		return err
	}
	defer dir.Close()
	return chown(dir, group, mode)
}

// chown sets the directory's owner and mode if they differ.
func chown(dir *os.File, group *int, mode uint32) error {
	uid, gid := os.Geteuid(), ptr.Deref(group, os.Getegid())
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return fmt.Errorf("stat %s: %w", dir.Name(), err)
	}
	if int(st.Uid) == uid && int(st.Gid) == gid && st.Mode == unix.S_IFDIR|mode {
		return nil
	}
	if err := dir.Chown(uid, gid); err != nil {
		return fmt.Errorf("give the volume to its group: %w", err)
	}
	if err := unix.Fchmod(int(dir.Fd()), mode); err != nil {
		return fmt.Errorf("set the mode of %s: %w", dir.Name(), err)
	}
	return nil
}

// owner returns the pod's fsGroup, and the mode of the volume's directory: open to all, like the kubelet's.
// Containers mount it read-only, and other users can't enter the pod's directory.
func owner(r volume.Request) (group *int, mode uint32) {
	if gid, ok := volume.FSGroup(r.Pod); ok {
		return &gid, unix.S_ISGID | 0o777
	}
	return nil, 0o777
}

// perObject is the memory limit per object in bytes. An object has up to 1 MiB of data, which is stored twice during
// an update, in up to some thousands of small files that take a page each.
const perObject = 32 << 20

// size returns the memory limit of a volume in bytes. The tmpfs allocates memory only for the files in it.
func (p *Plugin) size(s volume.Spec) int64 { return int64(max(p.source.Memory(s), 1)) * perObject }

// open opens the volume's directory. For a volume in memory it fails if the directory isn't on a tmpfs; writing
// through the descriptor then can't reach a disk.
func (p *Plugin) open(r volume.Request) (*os.File, error) {
	if p.source.Memory != nil {
		return mounts.OpenTmpfs(r.Dir)
	}
	return os.OpenFile(r.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

func (p *Plugin) write(ctx context.Context, r volume.Request,
	files map[string]atomicwriter.File) (changed bool, err error) {
	dir, err := p.open(r)
	if err != nil {
		return false, fmt.Errorf(
			"the volume's directory doesn't exist any more (its containers keep their files; to restore it, remove "+
				"the pod and create it again): %w", err)
	}
	defer dir.Close()
	changed, err = atomicwriter.WriteTo(ctx, dir, files, options(r))
	if p.source.Memory != nil && errors.Is(err, unix.ENOSPC) {
		return changed, fmt.Errorf(
			"the files don't fit into the %d MiB of memory that the volume may take: have fewer keys: %w",
			p.size(r.Spec)>>20, err)
	}
	return changed, err
}

func options(r volume.Request) atomicwriter.Options {
	group, _ := owner(r)
	return atomicwriter.Options{Group: group, MountPoints: mountPoints(r.Pod, r.Spec.Volume.Name), Held: r.Held}
}

// whole reports whether the volume contains a complete earlier version of its files. It completes an interrupted
// update.
func (p *Plugin) whole(ctx context.Context, r volume.Request) bool {
	dir, err := p.open(r)
	if err != nil {
		return false
	}
	defer dir.Close()
	whole, err := atomicwriter.Recover(ctx, dir, options(r))
	return whole && err == nil
}
