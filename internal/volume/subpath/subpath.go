// Package subpath makes parts of volumes ready for containers that mount no more than that
// (API: VolumeMount.subPath, subPathExpr).
//
// A pod can change its volumes while their parts are looked for, also into links that lead to
// the host's own files. So a part is opened below its volume (package beneath), and it is
// the open file that is bind-mounted, to a place below the pod's folder that no pod can
// write to. What a container gets is what was found, whatever becomes of its path.
package subpath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/beneath"
	"github.com/deckhand-node/deckhand/internal/pathelement"
)

// folder is where a pod's places are, below its own (https://kubernetes.io/docs/reference/node/kubelet-files).
const folder = "volume-subpaths"

// Maker makes parts of volumes ready.
type Maker struct {
	podsDir string

	mu    sync.Mutex
	taken map[string]chan struct{} // by place; closed when whoever works on it is done
}

// New returns a Maker for the pods whose folders are in podsDir, which only root may be
// able to write to.
func New(podsDir string) *Maker {
	return &Maker{podsDir: podsDir, taken: make(map[string]chan struct{})}
}

// Request is a part of a volume that a container mounts.
type Request struct {
	UID types.UID
	// Volume is the name of the volume's folder.
	Volume, Container string
	// Index is that of the container's mount.
	Index int
	// Root is the host's path of the volume. It and the way to it are trusted.
	Root string
	// Path is below Root: relative and without "..", as the API demands. Empty or "." is
	// the whole volume.
	Path string
	// ReadOnly says that what is missing can't be made in the volume.
	ReadOnly bool
}

// Bind mounts the part at its place, pods/UID/volume-subpaths/VOLUME/CONTAINER/INDEX, and
// returns that. Folders that are missing in the volume are made, with the permission bits of the
// volume's root (and its group, where that has the set-group-ID bit).
//
// A part may be anything, also a device or a socket: nothing is opened for real. It may be in
// another mount inside the volume; mounts below it aren't taken along. A path that leads out
// of the volume fails with beneath.ErrEscapes, and one that is missing in a volume that is
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

// place is where the part is mounted, below the folder of all pods.
func (r Request) place() ([]string, error) {
	if err := errors.Join(
		pathelement.Check("the pod's UID", string(r.UID)),
		pathelement.Check("the volume's name", r.Volume),
		pathelement.Check("the container's name", r.Container),
	); err != nil {
		return nil, err
	}
	if r.Index < 0 {
		return nil, fmt.Errorf("a container has no mount number %d", r.Index)
	}
	return []string{string(r.UID), folder, r.Volume, r.Container, strconv.Itoa(r.Index)}, nil
}

func (r Request) failed(err error) error {
	return fmt.Errorf("subPath %q of volume %q for container %q: %w", r.Path, r.Volume, r.Container, err)
}

// open finds the part, after making it if it is missing.
func (r Request) open() (*os.File, error) {
	if filepath.IsAbs(r.Path) {
		return nil, fmt.Errorf("it is absolute, which %w: use a path relative to the volume", beneath.ErrEscapes)
	}
	for element := range strings.SplitSeq(r.Path, "/") {
		if element == ".." {
			return nil, fmt.Errorf(`it has ".." in it, which %w: use a path without`, beneath.ErrEscapes)
		}
	}
	fd, err := unix.Open(r.Root, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the volume: %w", err)
	}
	root := os.NewFile(uintptr(fd), r.Root)
	if filepath.Clean(r.Path) == "." {
		return root, nil
	}
	defer root.Close()
	found, err := beneath.Open(root, r.Path, unix.O_PATH, 0)
	if errors.Is(err, unix.ENOENT) && !r.ReadOnly {
		found, err = r.make(root)
	}
	switch {
	case err == nil:
		return found, nil
	case errors.Is(err, beneath.ErrEscapes):
		return nil, fmt.Errorf("it leads out of the volume, or into a circle of links: links have to be relative and stay inside the volume: %w", err)
	case errors.Is(err, unix.ENOENT) && r.ReadOnly, errors.Is(err, unix.EROFS):
		return nil, fmt.Errorf("it isn't there, and can't be made, because the volume is read-only: %w", err)
	case errors.Is(err, unix.ENOTDIR):
		return nil, fmt.Errorf("something on the way to it is not a folder: %w", err)
	}
	return nil, err
}

// make makes the folder that is missing. It is for all who may use the volume itself.
func (r Request) make(root *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		return nil, fmt.Errorf("look at the volume: %w", err)
	}
	return beneath.MkdirAll(root, r.Path, st.Mode&0o777)
}

// holder opens the folder that the place is in, with O_PATH.
func (m *Maker) holder(names []string) (*os.File, error) {
	fd, err := unix.Open(m.podsDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the folder of all pods: %w", err)
	}
	pods := os.NewFile(uintptr(fd), m.podsDir)
	defer pods.Close()
	return beneath.MkdirAll(pods, filepath.Join(names...), 0o750)
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
