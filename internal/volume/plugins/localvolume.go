package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// LocalVolume is the volume plugin for local PersistentVolumes: directories of the node that an administrator
// provides, bind-mounted into the directories of pods. Its zero value is ready to use.
type LocalVolume struct{}

// Name is the plugin's name.
func (LocalVolume) Name() string { return "kubernetes.io/local-volume" }

// Supports reports whether the volume is a claim that is bound to a local PersistentVolume.
func (LocalVolume) Supports(s volume.Spec) bool {
	return s.Persistent != nil && s.Persistent.Spec.Local != nil
}

// Mount bind-mounts the PersistentVolume's directory at the volume's directory. Symbolic links in the
// PersistentVolume's path are followed, because an administrator sets the path. Nothing below the path is opened. An
// existing mount of the directory is kept; other mounts at the volume's path are unmounted, unless containers use
// them.
//
// The mount flags among the PersistentVolume's mountOptions are applied. Its nodeAffinity is checked when the claim
// is bound.
func (LocalVolume) Mount(ctx context.Context, r volume.Request) (volume.Mounted, error) {
	if err := ctx.Err(); err != nil {
		return volume.Mounted{}, err
	}
	pv := r.Spec.Persistent
	flags, err := mountFlags(pv)
	if err == nil {
		if r.Spec.ReadOnly() {
			flags |= unix.MS_RDONLY
		}
		err = bindLocal(r, flags)
	}
	if err != nil {
		return volume.Mounted{}, fmt.Errorf("PersistentVolume %s: %w", pv.Name, err)
	}
	readOnly := flags&unix.MS_RDONLY != 0
	return volume.Mounted{Path: r.Dir, ReadOnly: readOnly, Ownership: !readOnly}, nil
}

func bindLocal(r volume.Request, flags uintptr) error {
	if r.Spec.Block() {
		return fmt.Errorf("volumeMode Block is %w: use volumeMode Filesystem with a directory", volume.ErrUnsupported)
	}
	source, err := openLocal(r.Spec.Persistent.Spec.Local.Path)
	if err != nil {
		return err
	}
	defer source.Close()
	p, err := enter(r.Dir)
	if err != nil {
		return err
	}
	defer p.close()
	bound, err := p.holds(source)
	if err != nil {
		return err
	}
	if !bound {
		if p.mounted && r.InUse {
			return nil // running containers use this mount, and further containers of the pod have to use the same
		}
		if err := p.bind(source); err != nil {
			return err
		}
	}
	return p.restrict(flags)
}

// openLocal opens the PersistentVolume's directory.
func openLocal(path string) (*os.File, error) {
	f, err := safeopen.Top(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("its path %s does not exist on this node: make the directory, or mount its disk there",
			path)
	}
	if err != nil {
		return nil, fmt.Errorf("open its path: %w", err)
	}
	st, err := f.Stat()
	switch {
	case err != nil:
		err = fmt.Errorf("open its path: %w", err)
	case st.Mode().Type() == fs.ModeDevice:
		err = fmt.Errorf("its path %s is a block device, and to format and mount one is %w: mount it on the host, "+
			"and name the directory that it is mounted at", path, volume.ErrUnsupported)
	case !st.IsDir():
		err = fmt.Errorf("its path %s isn't a directory: a local PersistentVolume has to be one", path)
	default:
		return f, nil
	}
	_ = f.Close() // it was only opened to check it
	return nil, err
}

// restrictions maps the mount options that apply to a directory to the kernel's mount flags, and to the flags that
// statfs reports.
var restrictions = map[string]struct {
	flag uintptr
	stat int64
}{
	"ro":          {unix.MS_RDONLY, unix.ST_RDONLY},
	"nosuid":      {unix.MS_NOSUID, unix.ST_NOSUID},
	"nodev":       {unix.MS_NODEV, unix.ST_NODEV},
	"noexec":      {unix.MS_NOEXEC, unix.ST_NOEXEC},
	"noatime":     {unix.MS_NOATIME, unix.ST_NOATIME},
	"nodiratime":  {unix.MS_NODIRATIME, unix.ST_NODIRATIME},
	"nosymfollow": {unix.MS_NOSYMFOLLOW, 0x2000}, // ST_NOSYMFOLLOW
}

// mountFlags converts the PersistentVolume's mountOptions to the kernel's mount flags. Other mount options are
// errors.
func mountFlags(pv *v1.PersistentVolume) (uintptr, error) {
	var flags uintptr
	for _, o := range pv.Spec.MountOptions {
		switch r, ok := restrictions[o]; {
		case ok:
			flags |= r.flag
		case o == "rw", o == "bind", o == "defaults":
		default:
			return 0, fmt.Errorf("mount option %q of a directory is %w: use ro, nosuid, nodev, noexec, noatime, "+
				"nodiratime or nosymfollow, or mount the disk with it on the host", o, volume.ErrUnsupported)
		}
	}
	return flags, nil
}
