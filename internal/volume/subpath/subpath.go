// Package subpath makes parts of volumes ready for containers that mount no more than that
// (API: VolumeMount.subPath, subPathExpr).
//
// A pod can change its volumes while their parts are looked for, also into links that lead to
// the host's own files. So a part is opened below its volume (package safeopen), and it is
// the open file that is bind-mounted, to a place below the pod's directory that no pod can
// write to. What a container gets is what was found, whatever becomes of its path.
package subpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// directory is where a pod's places are, below its own (https://kubernetes.io/docs/reference/node/kubelet-files).
const directory = "volume-subpaths"

// Maker makes parts of volumes ready.
type Maker struct {
	podsDir string

	mu    sync.Mutex
	taken map[string]chan struct{} // by place; closed when whoever works on it is done
}

// New returns a Maker for the pods whose directories are in podsDir, which only root may be
// able to write to.
func New(podsDir string) *Maker {
	return &Maker{podsDir: podsDir, taken: make(map[string]chan struct{})}
}

// Request is a part of a volume that a container mounts.
type Request struct {
	UID types.UID
	// Volume is the name of the volume's directory.
	Volume, Container string
	// Index is that of the container's mount.
	Index int
	// Root is the host's path of the volume. It and the way to it are trusted.
	Root string
	// Path is below Root: relative and without "..", as the API demands. Empty or "." is
	// the whole volume.
	Path string
	// Expr is what Path was made of by putting in the container's environment (API:
	// VolumeMount.subPathExpr); empty if it wasn't. Errors report it instead of Path, which may have a Secret's value
	// in it.
	Expr string
	// ReadOnly says that what is missing can't be made in the volume.
	ReadOnly bool
}

// Bind mounts the part at its place, pods/UID/volume-subpaths/VOLUME/CONTAINER/INDEX, and
// returns that. Directories that are missing in the volume are made, with the permission bits of the
// volume's root, the sticky bit among them (and its group, where that has the set-group-ID bit).
//
// A part may be anything, also a device or a socket: nothing is opened for real. It may be in
// another mount inside the volume; mounts below it aren't taken along. A path that leads out
// of the volume fails with safeopen.ErrEscapes, and one that is missing in a volume that is
// read-only with fs.ErrNotExist.
//
// It is called again for each new instance of the container: what is bound already stays; if
// the path leads to something else by now, that takes its place. Calls for one place wait for
// each other. It may take as long as the volume's file system takes to answer; what
// was mounted is taken off by teardown.
func (m *Maker) Bind(ctx context.Context, r Request) (hostPath string, err error) {
	names, err := r.place()
	if err != nil {
		return "", r.failed(err)
	}
	hostPath = filepath.Join(append([]string{m.podsDir}, names...)...)
	free, err := m.take(ctx, hostPath)
	if err != nil {
		return "", r.failed(err)
	}
	defer free()
	source, err := r.open()
	if err != nil {
		return "", r.failed(err)
	}
	defer source.Close()
	holder, err := m.holder(names[:len(names)-1])
	if err != nil {
		return "", r.failed(err)
	}
	defer holder.Close()
	if err := bind(ctx, source, holder, names[len(names)-1]); err != nil {
		return "", r.failed(err)
	}
	return hostPath, nil
}

// Held reports which files are the parts of a volume that containers have or are about to get, by device and inode; nil
// for none. Nobody may remove these: what has no name any more can't be mounted, neither into a container that is
// created nor into one that is started.
func (m *Maker) Held(uid types.UID, volume string) (func(device, inode uint64) bool, error) {
	if err := errors.Join(safeopen.Check("the pod's UID", string(uid)),
		safeopen.Check("the volume's name", volume)); err != nil {
		return nil, err
	}
	type file struct{ device, inode uint64 }
	held := map[file]bool{}
	dir := filepath.Join(m.podsDir, string(uid), directory, volume)
	var errs []error
	list := func(dir string) []os.DirEntry {
		entries, err := os.ReadDir(dir)
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		return entries
	}
	for _, container := range list(dir) {
		for _, place := range list(filepath.Join(dir, container.Name())) {
			var st unix.Stat_t
			err := unix.Lstat(filepath.Join(dir, container.Name(), place.Name()), &st)
			if !errors.Is(err, unix.ENOENT) {
				errs = append(errs, err)
			}
			held[file{st.Dev, st.Ino}] = true
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("look for parts of the volume that containers have: %w", err)
	}
	if len(held) == 0 {
		return nil, nil
	}
	return func(device, inode uint64) bool { return held[file{device, inode}] }, nil
}

// place is where the part is mounted, below the directory of all pods.
func (r Request) place() ([]string, error) {
	if err := errors.Join(
		safeopen.Check("the pod's UID", string(r.UID)),
		safeopen.Check("the volume's name", r.Volume),
		safeopen.Check("the container's name", r.Container),
	); err != nil {
		return nil, err
	}
	if r.Index < 0 {
		return nil, fmt.Errorf("a container has no mount number %d", r.Index)
	}
	return []string{string(r.UID), directory, r.Volume, r.Container, strconv.Itoa(r.Index)}, nil
}

// failed doesn't say which volume of which container it is: the caller does.
func (r Request) failed(err error) error {
	if r.Expr != "" {
		return fmt.Errorf("subPathExpr %q: %w", r.Expr, err)
	}
	return fmt.Errorf("subPath %q: %w", r.Path, err)
}

// refusal says in a volume's terms why there is no such part.
type refusal struct {
	text string
	err  error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.err }

// open finds the part, after making it if it is missing.
func (r Request) open() (*os.File, error) {
	if filepath.IsAbs(r.Path) {
		return nil, &refusal{"it is absolute: use a path relative to the volume", safeopen.ErrEscapes}
	}
	for element := range strings.SplitSeq(r.Path, "/") {
		if element == ".." {
			return nil, &refusal{`it has ".." in it: use a path without`, safeopen.ErrEscapes}
		}
	}
	root, err := safeopen.Top(r.Root)
	if err != nil {
		return nil, fmt.Errorf("open the volume: %w", err)
	}
	if filepath.Clean(r.Path) == "." {
		return root, nil
	}
	defer root.Close()
	found, err := safeopen.Open(root, r.Path, unix.O_PATH, 0)
	if errors.Is(err, unix.ENOENT) && !r.ReadOnly {
		found, err = r.make(root)
	}
	if err != nil {
		return nil, r.explain(err)
	}
	return found, nil
}

// explain says what to do about an error of a look below the volume.
func (r Request) explain(err error) error {
	text := ""
	switch {
	case errors.Is(err, safeopen.ErrEscapes) && errors.Is(err, unix.ELOOP):
		text = "its links form a loop, or lead through /proc: links have to be relative and stay inside the volume"
	case errors.Is(err, safeopen.ErrEscapes):
		text = "it leads out of the volume: links have to be relative and stay inside the volume"
	case errors.Is(err, unix.ENOENT) && r.ReadOnly:
		text = "it isn't in the volume, and can't be made there, because the volume is read-only: correct the path, " +
			"or put it there first"
	case errors.Is(err, unix.EROFS):
		text = "it isn't in the volume, and can't be made there, because the volume's file system is read-only: " +
			"correct the path, or put it there first"
	case errors.Is(err, unix.ENOTDIR):
		text = "a part of it isn't a directory: correct the path, or replace that"
	case r.Expr == "":
		return err
	default: // it quotes the path
		text = "it can't be used"
		if errno := unix.Errno(0); errors.As(err, &errno) {
			text += ": " + errno.Error()
		}
	}
	return &refusal{text, err}
}

// make makes the directory that is missing. It is for all who may use the volume itself.
func (r Request) make(root *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		return nil, fmt.Errorf("look at the volume: %w", err)
	}
	return safeopen.MkdirAll(root, r.Path, st.Mode&(0o777|unix.S_ISVTX))
}

// holder opens the directory that the place is in, with O_PATH.
func (m *Maker) holder(names []string) (*os.File, error) {
	fd, err := unix.Open(m.podsDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the directory of all pods: %w", err)
	}
	pods := os.NewFile(uintptr(fd), m.podsDir)
	defer pods.Close()
	return safeopen.MkdirAll(pods, filepath.Join(names...), 0o750)
}

// take waits for its turn at the place. The caller has to give it back by calling free.
func (m *Maker) take(ctx context.Context, place string) (free func(), err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m.mu.Lock()
		before, busy := m.taken[place]
		if !busy {
			done := make(chan struct{})
			m.taken[place] = done
			m.mu.Unlock()
			return func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				delete(m.taken, place)
				close(done)
			}, nil
		}
		m.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
		}
	}
}
