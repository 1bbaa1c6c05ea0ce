package teardown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// maxDepth is how many levels of directories are open at once. A deeper directory is first moved to the top of the
// tree, so that neither the number of descriptors nor the stack nor the length of paths grows with the depth.
const maxDepth = 16

// batch is how many names are read from a directory at once.
const batch = 256

// walk removes a tree depth first.
type walk struct {
	parent *os.File
	stack  []*level
	moved  int
}

// level is a directory between the top and the current position, inclusive.
type level struct {
	dir     *os.File
	name    string
	pending []string // names that were read, but not removed yet
	// changed says that entries were removed or replaced since the directory was opened, so that reading may have
	// missed some: if the directory isn't empty at the end, it has to be read again.
	changed bool
}

func removeTree(ctx context.Context, parent *os.File, name string) error {
	w := &walk{parent: parent}
	defer w.close()
	if err := w.remove(ctx, parent, name); err != nil {
		return w.explain(name, err)
	}
	for len(w.stack) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// step removes one entry of the current directory, or the directory itself if no entry is left.
func (w *walk) step(ctx context.Context) error {
	l := w.stack[len(w.stack)-1]
	if len(l.pending) == 0 {
		names, err := l.dir.Readdirnames(batch)
		if err != nil && !errors.Is(err, io.EOF) {
			return w.explain("", err)
		}
		if len(names) == 0 {
			return w.leave(l)
		}
		l.pending = names
	}
	name := l.pending[0]
	l.pending = l.pending[1:]
	if err := w.remove(ctx, l.dir, name); err != nil {
		return w.explain(name, err)
	}
	return nil
}

// remove deletes an entry of dir, or enters the entry if it is a directory that isn't empty. Before that it unmounts
// the mounts on the entry.
func (w *walk) remove(ctx context.Context, dir *os.File, name string) error {
	fd := int(dir.Fd())
	err := unlink(fd, name)
	for errors.Is(err, unix.EBUSY) {
		if err := ctx.Err(); err != nil {
			return err // an unmount that begins now would continue after the return
		}
		err = unmountAt(ctx, dir, name, w.path(name))
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", errMounted, err)
		}
		if err != nil {
			return err
		}
		err = unlink(fd, name)
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		// The entry was removed, or it became another type of file between the two system calls. Then the directory
		// is read again.
		w.touch()
		return nil
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		if len(w.stack) == maxDepth {
			return w.moveUp(fd, name)
		}
		return w.enter(dir, name)
	}
	return err
}

// unlink deletes a file or an empty directory. It fails with EBUSY for a mount point.
func unlink(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	return err
}

func (w *walk) enter(dir *os.File, name string) error {
	sub, err := safeopen.Enter(dir, name)
	switch {
	case errors.Is(err, unix.EXDEV):
		return errMounted
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		// The entry has just been removed or has become another type of file: the directory is read again.
		w.touch()
		return nil
	case err != nil:
		return err
	}
	w.stack = append(w.stack, &level{dir: sub, name: name})
	return nil
}

// moveUp moves a directory to the top of the tree, under a unique name.
func (w *walk) moveUp(fd int, name string) error {
	top := w.stack[0]
	for {
		target := fmt.Sprintf("removing-%d", w.moved)
		w.moved++
		err := unix.Renameat2(fd, name, int(top.dir.Fd()), target, unix.RENAME_NOREPLACE)
		switch {
		case errors.Is(err, unix.EEXIST):
			continue
		case errors.Is(err, unix.EBUSY):
			return errMounted
		case err == nil, errors.Is(err, unix.ENOENT):
			top.changed = true
			w.touch()
			return nil
		}
		return err
	}
}

// leave removes the current directory after all its entries were read. If the directory isn't empty, because entries
// were missed or added meanwhile, it is read again.
func (w *walk) leave(l *level) error {
	holder := w.parent
	if len(w.stack) > 1 {
		holder = w.stack[len(w.stack)-2].dir
	}
	err := unix.Unlinkat(int(holder.Fd()), l.name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) && l.changed {
		l.changed = false
		_, err := l.dir.Seek(0, io.SeekStart)
		return err
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		_ = l.dir.Close() // it was only read
		w.stack = w.stack[:len(w.stack)-1]
		w.touch()
		return nil
	case errors.Is(err, unix.EBUSY):
		err = errMounted
	}
	return w.explain("", err)
}

// touch records that an entry of the current directory has changed.
func (w *walk) touch() {
	if len(w.stack) > 0 {
		w.stack[len(w.stack)-1].changed = true
	}
}

// explain adds the path of the entry to an error. Paths are quoted, because pods choose the names in them.
func (w *walk) explain(name string, err error) error {
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w: it, or the directory that it is in, may be immutable or append-only: see `lsattr`, and "+
			"allow it with `chattr -i -a`", err)
	}
	return fmt.Errorf("remove %q: %w", w.path(name), err)
}

// path returns the path of an entry in the current directory, truncated to the longest possible path.
func (w *walk) path(name string) string {
	parts := []string{w.parent.Name()}
	for _, l := range w.stack {
		parts = append(parts, l.name)
	}
	path := filepath.Join(append(parts, name)...)
	if len(path) > unix.PathMax {
		path = path[:unix.PathMax] + strings.Repeat(".", 3)
	}
	return path
}

func (w *walk) close() {
	for _, l := range w.stack {
		_ = l.dir.Close() // it was only read
	}
}
