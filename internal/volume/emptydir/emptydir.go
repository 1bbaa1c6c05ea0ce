// Package emptydir makes emptyDir volumes: folders on the node's disk, or in memory.
package emptydir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/volume"
)

// Plugin is the volume plugin for emptyDir.
type Plugin struct {
	memoryLimit func(*v1.Pod) (bytes int64, ok bool)
}

// New makes the plugin. memoryLimit tells how much memory a pod may use, which
// also bounds its volumes in memory.
func New(memoryLimit func(*v1.Pod) (bytes int64, ok bool)) *Plugin {
	return &Plugin{memoryLimit: memoryLimit}
}

// Name is the plugin's name.
func (*Plugin) Name() string { return "kubernetes.io/empty-dir" }

// Supports reports whether the volume is an emptyDir.
func (*Plugin) Supports(v *v1.Volume) bool { return v.EmptyDir != nil }

// HostPath is the volume's folder.
func (*Plugin) HostPath(r volume.Request) string { return r.Dir }

// Prepare makes the folder, empty and open to every user (0777), or to the pod's
// fsGroup with new files belonging to that group. Once the volume is ready it
// isn't touched again: what is in it, and its mode, are the pod's.
func (p *Plugin) Prepare(ctx context.Context, r volume.Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch medium := r.Volume.EmptyDir.Medium; {
	case medium == v1.StorageMediumDefault:
		return p.onDisk(r)
	case medium == v1.StorageMediumMemory:
		return p.inMemory(r)
	case strings.HasPrefix(string(medium), string(v1.StorageMediumHugePages)):
		return fmt.Errorf("medium %s is %w: use Memory", medium, volume.ErrUnsupported)
	default:
		return fmt.Errorf("medium %q is %w: use Memory or leave it out", medium, volume.ErrUnsupported)
	}
}

// onDisk makes the folder under another name and gives it its own when it is
// complete: so a folder that is there is ready, even after a crash.
func (p *Plugin) onDisk(r volume.Request) error {
	if _, err := os.Lstat(r.Dir); err == nil {
		return nil
	}
	parent, name := filepath.Split(r.Dir)
	if err := os.MkdirAll(parent, 0o750); err != nil {
		return err
	}
	unready := filepath.Join(parent, "."+name+".new") // no volume is called that: names begin with a letter or digit
	if err := os.Mkdir(unready, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if gid, ok := fsGroup(r); ok {
		if err := os.Chown(unready, -1, gid); err != nil {
			return fmt.Errorf("give the volume to fsGroup %d: %w", gid, err)
		}
	}
	if err := unix.Chmod(unready, mode(r)); err != nil {
		return fmt.Errorf("set the mode of %s: %w", unready, err)
	}
	return os.Rename(unready, r.Dir)
}

// inMemory mounts a tmpfs that never goes to swap, where the kernel can do that (6.4).
func (p *Plugin) inMemory(r volume.Request) error {
	if err := os.MkdirAll(r.Dir, 0o750); err != nil {
		return err
	}
	if mounted, err := mountinfo.Mounted(r.Dir); mounted || err != nil {
		return err
	}
	options := fmt.Sprintf("mode=%o", mode(r)|unix.S_ISVTX)
	if gid, ok := fsGroup(r); ok {
		options += fmt.Sprintf(",gid=%d", gid)
	}
	if size := p.size(r); size > 0 {
		options += fmt.Sprintf(",size=%d", size)
	}
	err := unix.Mount("tmpfs", r.Dir, "tmpfs", 0, options+",noswap")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("tmpfs", r.Dir, "tmpfs", 0, options)
	}
	if err != nil {
		return fmt.Errorf("mount a tmpfs (%s) at %s: %w", options, r.Dir, err)
	}
	return nil
}

// fsGroup is the group that the pod wants its volumes to belong to, if any
// (API: PodSecurityContext.fsGroup).
func fsGroup(r volume.Request) (gid int, ok bool) {
	if sc := r.Pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		return int(*sc.FSGroup), true
	}
	return 0, false
}

// mode lets every user write; with an fsGroup, new files belong to that group.
func mode(r volume.Request) uint32 {
	if _, ok := fsGroup(r); ok {
		return unix.S_ISGID | 0o777
	}
	return 0o777
}

// size is the smaller of the volume's size limit and the pod's memory limit, in
// bytes (API: EmptyDirVolumeSource.sizeLimit); 0 if there is neither.
func (p *Plugin) size(r volume.Request) int64 {
	limit, _ := p.memoryLimit(r.Pod)
	if q := r.Volume.EmptyDir.SizeLimit; q != nil && q.Sign() > 0 && (limit == 0 || q.Value() < limit) {
		limit = q.Value()
	}
	return limit
}
