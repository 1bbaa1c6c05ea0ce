package plugins

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// place is the directory of a volume, opened so that symbolic links can't redirect mounts there.
type place struct {
	path   string
	parent *os.File
	name   string
	// dir is the volume's directory or, if mounted is true, the root of the topmost mount on it.
	dir     *os.File
	mounted bool
}

// enter opens the volume's directory, and makes it if it is missing.
func enter(dir string) (*place, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return nil, err
	}
	parent, err := os.OpenFile(filepath.Dir(dir), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	p := &place{path: dir, parent: parent, name: filepath.Base(dir)}
	if err := unix.Mkdirat(int(parent.Fd()), p.name, 0o750); err != nil && err != unix.EEXIST {
		p.close()
		return nil, fmt.Errorf("make %s: %w", dir, err)
	}
	if err := p.reopen(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// reopen reopens the directory after a mount or unmount.
func (p *place) reopen() error {
	if p.dir != nil {
		_ = p.dir.Close() // it was only opened as a path
		p.dir = nil
	}
	dir, err := safeopen.OpenNoLinks(p.parent, p.name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("%s has to be a directory and no link: %w", p.path, err)
	}
	p.dir = dir
	above, err := safeopen.MountID(p.parent)
	if err != nil {
		return err
	}
	here, err := safeopen.MountID(p.dir)
	p.mounted = here != above
	return err
}

func (p *place) close() {
	_ = p.parent.Close() // both were only opened as paths
	if p.dir != nil {
		_ = p.dir.Close()
	}
}

// holds reports whether the source directory is mounted at the volume's directory.
func (p *place) holds(source *os.File) (bool, error) {
	want, err := source.Stat()
	if err != nil {
		return false, err
	}
	got, err := p.dir.Stat()
	if err != nil {
		return false, err
	}
	return p.mounted && os.SameFile(want, got), nil
}

// bind unmounts all mounts at the volume's directory, and then bind-mounts the source directory there.
func (p *place) bind(source *os.File) error {
	for p.mounted {
		_ = p.dir.Close() // an open descriptor keeps the mount busy
		if err := mounts.Unmount(p.parent, p.name, 0); err != nil {
			return fmt.Errorf("unmount what is mounted at %s and isn't the volume: %w", p.path, err)
		}
		if err := p.reopen(); err != nil {
			return err
		}
	}
	if err := unix.Mount(safeopen.Path(source), safeopen.Path(p.dir), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", source.Name(), p.path, err)
	}
	return p.reopen()
}

// restrict adds these mount flags to the mount at the volume's directory, and keeps the restrictions that the mount
// already has.
func (p *place) restrict(flags uintptr) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(p.dir.Fd()), &st); err != nil {
		return fmt.Errorf("find out how %s is mounted: %w", p.path, err)
	}
	has := uintptr(0)
	for _, r := range restrictions {
		if st.Flags&r.stat != 0 {
			has |= r.flag
		}
	}
	if has&flags == flags {
		return nil
	}
	if err := unix.Mount("", safeopen.Path(p.dir), "", unix.MS_REMOUNT|unix.MS_BIND|has|flags, ""); err != nil {
		return fmt.Errorf("change the options of the mount at %s: %w", p.path, err)
	}
	return nil
}
