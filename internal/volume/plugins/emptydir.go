// Package plugins has the volume plugins that need only the node: emptyDir (on disk, in memory or in huge pages),
// hostPath, local PersistentVolumes, and image volumes (KEP-4639), which the container runtime mounts.
package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// Config configures an EmptyDir.
type Config struct {
	// MemoryLimit returns the pod's memory limit in bytes, which also limits its volumes in memory.
	MemoryLimit func(*v1.Pod) (bytes int64, ok bool)
	// Quotas measure the usage of volumes on disk, if the file system supports it; it may be nil.
	Quotas Quotas
	// HugePages is the kernel's directory of huge page pools; empty for /sys/kernel/mm/hugepages.
	HugePages string
	Log       logr.Logger
}

// Quotas assigns project quotas to directories. *usage.Meter implements it.
type Quotas interface {
	// Assign assigns a quota project to an empty directory; see usage.Meter.
	Assign(dir string) (bool, error)
	// Forget drops the project of a directory that is about to be removed.
	Forget(dir string)
}

// EmptyDir is the volume plugin for emptyDir: directories on the node's disk, in memory, or in huge pages. They are
// deleted with their pod.
type EmptyDir struct{ conf Config }

// NewEmptyDir returns the plugin for emptyDir volumes.
func NewEmptyDir(c Config) *EmptyDir {
	if c.HugePages == "" {
		c.HugePages = "/sys/kernel/mm/hugepages"
	}
	return &EmptyDir{conf: c}
}

// Name is the plugin's name.
func (*EmptyDir) Name() string { return "kubernetes.io/empty-dir" }

// Supports reports whether the volume is an emptyDir.
func (*EmptyDir) Supports(s volume.Spec) bool { return s.Persistent == nil && s.Volume.EmptyDir != nil }

// Mount makes an empty directory that every user can write to (0777); with an fsGroup, the directory and its new
// files belong to that group. An existing volume isn't changed: the pod may have changed its content and its mode.
// After a reboot, a volume in memory is empty.
func (p *EmptyDir) Mount(ctx context.Context, r volume.Request) (volume.Mounted, error) {
	if err := ctx.Err(); err != nil {
		return volume.Mounted{}, err
	}
	var err error
	switch medium := r.Spec.Volume.EmptyDir.Medium; {
	case medium == v1.StorageMediumDefault:
		if err = p.onDisk(r); err == nil {
			p.assign(r)
		}
	case medium == v1.StorageMediumMemory:
		err = p.inMemory(r)
	case medium == v1.StorageMediumHugePages,
		strings.HasPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)):
		err = p.inHugePages(r)
	default:
		err = fmt.Errorf("medium %q is %w: use Memory or HugePages, or leave it out for the node's disk", medium,
			volume.ErrUnsupported)
	}
	if err != nil {
		return volume.Mounted{}, err
	}
	return volume.Mounted{Path: r.Dir}, nil
}

// onDisk makes the directory at another path (r.Meta), and renames it to the volume's path when its group and mode
// are set. So a directory at the volume's path is complete, even after a crash. A directory that a kubelet has made
// counts as complete, too.
func (p *EmptyDir) onDisk(r volume.Request) error {
	there, err := isDir(r.Dir)
	if there || err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.Dir), 0o750); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.Meta), 0o750); err != nil {
		return err
	}
	if err := os.Mkdir(r.Meta, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	unready, err := openDir(r.Meta)
	if err != nil {
		return err
	}
	defer unready.Close()
	if gid, ok := volume.FSGroup(r.Pod); ok {
		if err := unready.Chown(-1, gid); err != nil {
			return fmt.Errorf("give the volume to fsGroup %d: %w", gid, err)
		}
	}
	if err := unix.Fchmod(int(unready.Fd()), mode(r.Pod)); err != nil {
		return fmt.Errorf("set the mode of %s: %w", r.Meta, err)
	}
	return os.Rename(r.Meta, r.Dir)
}

// assign assigns a quota project to the directory if it is empty and the pod has a user namespace: processes of
// other pods could change the project of their files.
func (p *EmptyDir) assign(r volume.Request) {
	if p.conf.Quotas == nil || r.InUse || ptr.Deref(r.Pod.Spec.HostUsers, true) {
		return
	}
	if _, err := p.conf.Quotas.Assign(r.Dir); err != nil && !errors.Is(err, usage.ErrNotEmpty) {
		p.conf.Log.V(2).Info("Volume will be measured file by file, without a project quota", "path", r.Dir, "err", err)
	}
}

// Unmount drops the quota project. The manager removes the directory.
func (p *EmptyDir) Unmount(_ context.Context, at volume.Place, _ volume.Say) error {
	if p.conf.Quotas != nil {
		p.conf.Quotas.Forget(at.Dir)
	}
	return nil
}

// isDir reports whether there is a directory at this path. Another type of file, such as a symbolic link, is an
// error: only an intruder could have made it.
func isDir(path string) (bool, error) {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil && !st.IsDir() {
		err = fmt.Errorf("%s isn't a directory but %s, which isn't followed: remove it", path, st.Mode().Type())
	}
	return err == nil, err
}

// openDir opens a directory that isn't a symbolic link.
func openDir(path string) (*os.File, error) {
	return os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// inMemory mounts a tmpfs at the volume's directory.
func (p *EmptyDir) inMemory(r volume.Request) error {
	o := mounts.TmpfsOptions{Mode: mode(r.Pod) | unix.S_ISVTX, Size: p.size(r)}
	if gid, ok := volume.FSGroup(r.Pod); ok {
		o.GID = &gid
	}
	return mounts.MountTmpfs(r.Dir, o)
}

// mode returns the mode of the volume's directory: writable for every user. With an fsGroup it includes the
// set-group-ID bit, so that new files belong to that group.
func mode(p *v1.Pod) uint32 {
	if _, ok := volume.FSGroup(p); ok {
		return unix.S_ISGID | 0o777
	}
	return 0o777
}

// size returns the smaller of the volume's size limit and the pod's memory limit in bytes (API:
// EmptyDirVolumeSource.sizeLimit). It is 0 if neither is set.
func (p *EmptyDir) size(r volume.Request) int64 {
	limit, _ := p.conf.MemoryLimit(r.Pod)
	return smaller(limit, r.Spec.Volume.EmptyDir)
}

// smaller returns the smaller of this limit and the volume's sizeLimit, in bytes. 0 means no limit.
func smaller(limit int64, source *v1.EmptyDirVolumeSource) int64 {
	if q := source.SizeLimit; q != nil && q.Sign() > 0 && (limit == 0 || q.Value() < limit) {
		return q.Value()
	}
	return limit
}
