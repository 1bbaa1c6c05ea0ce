// Package subpath bind-mounts parts of volumes for containers (API: VolumeMount.subPath, subPathExpr).
//
// A pod can change its volume while the part's path is resolved, for example to symbolic links to the host's files.
// So the part is opened without leaving the volume (package safeopen), and the open file is bind-mounted below the
// pod's directory, at a place that no pod can write to. The container gets this file even if its path is replaced
// later.
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

// directory is the name of the mount points' directory, below the pod's directory
// (https://kubernetes.io/docs/reference/node/kubelet-files).
const directory = "volume-subpaths"

// Maker bind-mounts parts of volumes.
type Maker struct {
	podsDir string

	mu    sync.Mutex
	taken map[string]chan struct{} // key: mount point in use; the channel is closed when the call that uses it ends
}

// New returns a Maker for the pods whose directories are in podsDir. Only root may have write permission for
// podsDir.
func New(podsDir string) *Maker {
	return &Maker{podsDir: podsDir, taken: make(map[string]chan struct{})}
}

// Request identifies a part of a volume, and the container's mount it is for.
type Request struct {
	UID types.UID
	// Volume is the name of the volume's directory.
	Volume, Container string
	// Index is the index of the container's volumeMount.
	Index int
	// Root is the path of the volume on the host. It and its parents are trusted.
	Root string
	// Path is relative to Root, without "..", as the API demands. Empty or "." is the whole volume.
	Path string
	// Expr is the expression that Path was expanded from (API: VolumeMount.subPathExpr); empty if there is none.
	// Errors contain it instead of Path, which may contain a Secret's value.
	Expr string
	// ReadOnly says that the volume is read-only: a missing directory can't be made in it.
	ReadOnly bool
}

// Bind mounts the part at pods/UID/volume-subpaths/VOLUME/CONTAINER/INDEX, and returns that path. Missing
// directories are made in the volume, with the permissions of the volume's root including the sticky bit (and with
// its group, if the root has the set-group-ID bit).
//
// A part may be a file of any type, also a device or a socket: it is opened with O_PATH only. The part may be on
// another mount inside the volume. Mounts below the part aren't included. A path that leaves the volume fails with
// safeopen.ErrEscapes, a path that is missing in a read-only volume with fs.ErrNotExist.
//
// Bind is called for each new instance of the container. It keeps an existing mount of the same file, and replaces
// one if the path leads to another file now. Calls for one mount point are serialized. A call may take as long as
// the volume's file system takes to respond. Package teardown unmounts the parts.
func (m *Maker) Bind(ctx context.Context, r Request) (hostPath string, err error) {
	names, err := r.place()
	if err != nil {
		return "", r.failed(err)
	}
	hostPath = filepath.Join(append([]string{m.podsDir}, names...)...)
	free, err := m.acquire(ctx, hostPath)
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

// Held reports which files, by device and inode, are parts of a volume that containers have mounted or are about to
// mount; nil if there are no such parts. These files must not be removed: the runtime can't mount a deleted file,
// neither when it creates a container nor when it starts it.
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

// place returns the path of the mount point below podsDir, in elements.
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

// failed adds the subPath or subPathExpr to an error. The caller adds the volume and the container.
func (r Request) failed(err error) error {
	if r.Expr != "" {
		return fmt.Errorf("subPathExpr %q: %w", r.Expr, err)
	}
	return fmt.Errorf("subPath %q: %w", r.Path, err)
}

// refusal is an error that explains in terms of the volume why a part can't be mounted.
type refusal struct {
	text string
	err  error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.err }

// open opens the part, and makes it first if it is missing.
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

// explain adds advice to an error about the path in the volume.
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

// make makes the missing directory, with the permissions of the volume's root.
func (r Request) make(root *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		return nil, fmt.Errorf("stat the volume: %w", err)
	}
	return safeopen.MkdirAll(root, r.Path, st.Mode&(0o777|unix.S_ISVTX))
}

// holder opens the parent directory of the mount point with O_PATH, and makes it if it is missing.
func (m *Maker) holder(names []string) (*os.File, error) {
	fd, err := unix.Open(m.podsDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the directory of all pods: %w", err)
	}
	pods := os.NewFile(uintptr(fd), m.podsDir)
	defer pods.Close()
	return safeopen.MkdirAll(pods, filepath.Join(names...), 0o750)
}

// acquire waits until no other call uses the mount point. The caller has to call free afterwards.
func (m *Maker) acquire(ctx context.Context, place string) (free func(), err error) {
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
