package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// HostPath is the volume plugin for hostPath. Its zero value is ready to use.
type HostPath struct{}

// Name is the plugin's name.
func (HostPath) Name() string { return "kubernetes.io/host-path" }

// Supports reports whether the volume is a hostPath, or a claim that is bound to one.
func (HostPath) Supports(s volume.Spec) bool { return hostPathOf(s) != nil }

func hostPathOf(s volume.Spec) *v1.HostPathVolumeSource {
	if s.Persistent != nil {
		return s.Persistent.Spec.HostPath
	}
	return s.Volume.HostPath
}

// kind describes a HostPathType.
type kind struct {
	name string
	is   func(fs.FileMode) bool
	// make creates the missing path; nil if the type doesn't allow that.
	make func(path string) error
}

// kinds has an entry for each HostPathType of the API but the empty one, with which nothing is checked.
var kinds = map[v1.HostPathType]kind{
	v1.HostPathDirectoryOrCreate: {"a directory", fs.FileMode.IsDir, makeDir},
	v1.HostPathDirectory:         {"a directory", fs.FileMode.IsDir, nil},
	v1.HostPathFileOrCreate:      {"a regular file", fs.FileMode.IsRegular, makeFile},
	v1.HostPathFile:              {"a regular file", fs.FileMode.IsRegular, nil},
	v1.HostPathSocket:            {"a UNIX socket", isType(fs.ModeSocket), nil},
	v1.HostPathCharDev:           {"a character device", isType(fs.ModeDevice | fs.ModeCharDevice), nil},
	v1.HostPathBlockDev:          {"a block device", isType(fs.ModeDevice), nil},
}

func isType(want fs.FileMode) func(fs.FileMode) bool {
	return func(m fs.FileMode) bool { return m.Type() == want }
}

// Mount checks the type of the path, and creates the path if the type says so (API: HostPathType). Without a type it
// checks nothing; the runtime creates a directory if the path is missing. Symbolic links on the node are followed,
// as the API says ("If the path is a symlink, it will follow the link to the real path"): pods that may use hostPath
// may use the whole node. But nothing is created through a dangling link. The pod's fsGroup isn't applied to the
// files of a hostPath.
func (p HostPath) Mount(ctx context.Context, r volume.Request) (volume.Mounted, error) {
	if err := ctx.Err(); err != nil {
		return volume.Mounted{}, err
	}
	s := hostPathOf(r.Spec)
	switch {
	case r.Spec.Block():
		return volume.Mounted{},
			fmt.Errorf("PersistentVolume %s: volumeMode Block of a hostPath is %w: leave it out", r.Spec.Name(),
				volume.ErrUnsupported)
	case r.Spec.Persistent != nil && len(r.Spec.Persistent.Spec.MountOptions) > 0:
		return volume.Mounted{},
			fmt.Errorf("PersistentVolume %s: mountOptions of a hostPath, which isn't mounted by the agent, are %w: "+
				"leave them out", r.Spec.Name(), volume.ErrUnsupported)
	case !filepath.IsAbs(s.Path):
		return volume.Mounted{},
			fmt.Errorf("hostPath %q doesn't begin with /, and a relative path is %w", s.Path, volume.ErrUnsupported)
	}
	if err := check(s); err != nil {
		return volume.Mounted{}, err
	}
	return volume.Mounted{Path: s.Path, ReadOnly: r.Spec.ReadOnly()}, nil
}

// Recheck checks the type of the path like Mount, and creates the path again if it is missing and its type says so.
func (HostPath) Recheck(ctx context.Context, s volume.Spec) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return check(hostPathOf(s))
}

func check(s *v1.HostPathVolumeSource) error {
	if s.Type == nil || *s.Type == v1.HostPathUnset {
		return nil
	}
	k, ok := kinds[*s.Type]
	if !ok {
		return fmt.Errorf("hostPath type %q is %w: use DirectoryOrCreate, Directory, FileOrCreate, File, Socket, "+
			"CharDevice or BlockDevice, or leave it out", *s.Type, volume.ErrUnsupported)
	}
	st, err := os.Stat(s.Path)
	if errors.Is(err, fs.ErrNotExist) && k.make != nil {
		if err := k.make(s.Path); err != nil {
			return fmt.Errorf("hostPath type %s: %w", *s.Type, err)
		}
		// Another process may have created a file of another type: check it.
		st, err = os.Stat(s.Path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("hostPath type check failed: %s, and type %s makes nothing: put it there, or correct the path", missing(s.Path), *s.Type)
	case err != nil:
		return fmt.Errorf("hostPath type check failed: %w", err)
	case !k.is(st.Mode()):
		return fmt.Errorf("hostPath type check failed: %s is %s, and type %s wants %s: correct the path or the type",
			s.Path, what(st.Mode()), *s.Type, k.name)
	}
	return nil
}

// missing describes, for a message, a path that doesn't exist, possibly because it is a dangling symbolic link.
func missing(path string) string {
	if to, err := os.Readlink(path); err == nil {
		return fmt.Sprintf("%s is a link to %s, which does not exist", path, to)
	}
	return path + " does not exist"
}

// what returns the name of a file's type.
func what(m fs.FileMode) string {
	for _, k := range []v1.HostPathType{v1.HostPathDirectory, v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev,
		v1.HostPathBlockDev} {
		if kinds[k].is(m) {
			return kinds[k].name
		}
	}
	if m.Type() == fs.ModeNamedPipe {
		return "a named pipe"
	}
	return "neither a file nor a directory"
}

// makeDir makes the directory with mode 0755, whatever the umask is, and its missing parents.
func makeDir(path string) error {
	path = strings.TrimRight(path, "/")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the directories above %s: %w", path, err)
	}
	err := safeopen.WithoutUmask(func() error { return os.Mkdir(path, 0o755) })
	if errors.Is(err, fs.ErrExist) {
		return led(path)
	}
	if err != nil {
		return fmt.Errorf("make the directory: %w", err)
	}
	return nil
}

// makeFile makes an empty file with mode 0644, whatever the umask is. Its directory has to exist.
func makeFile(path string) error {
	err := safeopen.WithoutUmask(func() error {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	})
	if errors.Is(err, fs.ErrExist) {
		return led(path)
	}
	if err != nil {
		return fmt.Errorf("make the file (its directory %s has to exist): %w", filepath.Dir(path), err)
	}
	return nil
}

// led explains why a file or directory couldn't be created at a path at which nothing existed before. If the path is a
// dangling symbolic link, led returns an error. Otherwise another process has just created the file, and led returns
// nil.
func led(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s, and nothing is made through a link: make that, or remove the link", missing(path))
	}
	return nil
}
