// Package hostpath makes hostPath volumes: files and folders of the node itself.
package hostpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/volume"
)

// Plugin is the volume plugin for hostPath. Its zero value is ready to use.
type Plugin struct{}

// Name is the plugin's name.
func (Plugin) Name() string { return "kubernetes.io/host-path" }

// Supports reports whether the volume is a hostPath.
func (Plugin) Supports(v *v1.Volume) bool { return v.HostPath != nil }

// HostPath is the path that the volume names.
func (Plugin) HostPath(r volume.Request) string { return r.Volume.HostPath.Path }

// kinds says for each type how to know it, and what to call it.
var kinds = map[v1.HostPathType]struct {
	name string
	is   func(fs.FileMode) bool
}{
	v1.HostPathDirectoryOrCreate: {"a directory", fs.FileMode.IsDir},
	v1.HostPathDirectory:         {"a directory", fs.FileMode.IsDir},
	v1.HostPathFileOrCreate:      {"a file", fs.FileMode.IsRegular},
	v1.HostPathFile:              {"a file", fs.FileMode.IsRegular},
	v1.HostPathSocket:            {"a UNIX socket", func(m fs.FileMode) bool { return m.Type() == fs.ModeSocket }},
	v1.HostPathCharDev:           {"a character device", func(m fs.FileMode) bool { return m.Type() == fs.ModeDevice|fs.ModeCharDevice }},
	v1.HostPathBlockDev:          {"a block device", func(m fs.FileMode) bool { return m.Type() == fs.ModeDevice }},
}

// Prepare checks that the path is what its type says, and makes what the type
// says to make (API: HostPathType). Without a type nothing is checked. Links on the node are
// followed: whoever may use hostPath may use the whole node.
func (Plugin) Prepare(ctx context.Context, r volume.Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	source := r.Volume.HostPath
	if source.Type == nil || *source.Type == v1.HostPathUnset {
		return nil
	}
	kind, ok := kinds[*source.Type]
	if !ok {
		return fmt.Errorf("hostPath type %q is %w", *source.Type, volume.ErrUnsupported)
	}
	st, err := os.Stat(source.Path)
	if errors.Is(err, fs.ErrNotExist) {
		switch *source.Type {
		case v1.HostPathDirectoryOrCreate:
			return makeDir(source.Path)
		case v1.HostPathFileOrCreate:
			return makeFile(source.Path)
		}
		return fmt.Errorf("hostPath type check failed: %s does not exist, and type %s makes nothing", source.Path, *source.Type)
	}
	if err != nil {
		return fmt.Errorf("hostPath type check failed: %w", err)
	}
	if !kind.is(st.Mode()) {
		return fmt.Errorf("hostPath type check failed: %s is not %s", source.Path, kind.name)
	}
	return nil
}

// makeDir makes the folder with mode 0755, whatever the umask.
func makeDir(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	return os.Chmod(path, 0o755)
}

// makeFile makes an empty file with mode 0644, whatever the umask. Its folder has to exist.
func makeFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		// Another pod made it just now, or it is a link that leads nowhere.
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("make the file: %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the file (its folder %s has to exist): %w", filepath.Dir(path), err)
	}
	return errors.Join(f.Chmod(0o644), f.Close())
}
