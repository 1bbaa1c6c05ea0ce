// Package filetree walks trees of files that pods can write to during the walk, and changes the group of a volume's
// files to the pod's fsGroup. It follows no symbolic link and enters no mount. Neither depth nor width of a tree
// costs descriptors or much memory.
package filetree

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// keep is how many directories are open at once besides the top one. On the way back up, a closed directory is
	// reopened as ".." of the directory below it.
	keep = 16
	// MaxDepth is how many levels of directories are walked; each level takes 32 bytes of memory while the walk is
	// below it.
	MaxDepth = 120_000
)

// ErrTooDeep is the error for directories below MaxDepth.
var ErrTooDeep = fmt.Errorf("directories lie more than %d levels deep", MaxDepth)

// Entry is a file or directory in the tree. It is valid until the next call of Next, Park or Close.
type Entry struct {
	// Parent is an open descriptor of the directory that contains Name.
	Parent int
	Name   string
	// Dir is an open descriptor of the entry if it is a directory, else -1.
	Dir int
	// Stat has the basic statistics. For directories they are those of Dir. For other files they are those of the
	// file that had the name when Next read it; on a remote file system they may come from this node's cache.
	Stat *unix.Statx_t
}

// Walk is a walk through one tree. It is used by one goroutine at a time.
type Walk struct {
	levels []level
	// open is the index of the first level below the top whose directory is open; all later ones are open too.
	open int
	top  unix.Statx_t
	stat unix.Statx_t
	// free holds buffers of closed directories.
	free [][]byte

	lost    bool
	tooDeep bool
}

// level is a directory between the top and the current position, inclusive.
type level struct {
	id identity
	// next is the offset to continue from when the directory is reopened.
	next int64
	at   *cursor // nil while it isn't open
}

// identity identifies a directory on the way back up.
type identity struct {
	ino          uint64
	major, minor uint32
}

func identify(st *unix.Statx_t) identity { return identity{st.Ino, st.Dev_major, st.Dev_minor} }

// New begins a walk through the tree below the directory top, which may be a mount point itself. The caller has to
// close top after the walk.
func New(top *os.File) (*Walk, error) {
	// A separate descriptor has its own offset in the directory.
	fd, err := retry(func() (int, error) { return unix.Openat(int(top.Fd()), ".", dirFlags, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: top.Name(), Err: err}
	}
	w := &Walk{open: 1}
	if err := statFD(fd, &w.top); err != nil {
		_ = unix.Close(fd) // it was only read
		return nil, &os.PathError{Op: "stat", Path: top.Name(), Err: err}
	}
	w.levels = append(w.levels, level{id: identify(&w.top), at: &cursor{fd: fd, buf: w.buffer()}})
	return w, nil
}

// Top returns the statistics of the top directory at the begin of the walk.
func (w *Walk) Top() *unix.Statx_t { return &w.top }

// Next returns the next entry. A directory comes before its content; otherwise the order isn't defined. The top
// directory, mount points in the tree and entries that vanish during the call are left out. At the end the error is
// io.EOF.
func (w *Walk) Next() (Entry, error) {
	for {
		l := &w.levels[len(w.levels)-1]
		if l.at == nil {
			// Can't happen: Park leaves the last level open.
			return Entry{}, errors.New("a directory on the way back isn't open")
		}
		name, kind, err := l.at.read()
		if errors.Is(err, io.EOF) {
			if len(w.levels) == 1 {
				return Entry{}, io.EOF
			}
			if err := w.leave(); err != nil {
				return Entry{}, err
			}
			continue
		}
		if err != nil {
			return Entry{}, err
		}
		e, ok, err := w.visit(l.at.fd, name, kind)
		if err != nil || ok {
			return e, err
		}
	}
}

// Lost reports whether parts of the tree were missed because directories were moved while the walk was below them.
func (w *Walk) Lost() bool { return w.lost }

// TooDeep reports whether entries below MaxDepth were missed.
func (w *Walk) TooDeep() bool { return w.tooDeep }

// Park closes all directories but the top one and the current one. The walk can continue at any time.
func (w *Walk) Park() {
	for w.open < len(w.levels)-1 {
		w.shut()
	}
}

// Close ends the walk.
func (w *Walk) Close() {
	for i := range w.levels {
		if at := w.levels[i].at; at != nil {
			_ = unix.Close(at.fd) // it was only read
		}
	}
	w.levels = nil
}

// visit stats an entry, and enters it if it is a directory.
func (w *Walk) visit(parent int, name string, kind uint8) (Entry, bool, error) {
	if kind == unix.DT_DIR || kind == unix.DT_UNKNOWN {
		// The entry is opened before it is stated, because stat may hang on a mount point.
		e, ok, err := w.enter(parent, name)
		if kind == unix.DT_DIR || ok || !errors.Is(err, unix.ENOTDIR) {
			if skips(err) {
				return Entry{}, false, nil
			}
			return e, ok, err
		}
	}
	// Don't wait for a mounted file system that hangs: cached attributes are enough to detect a mount.
	err := unix.Statx(parent, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC,
		unix.STATX_BASIC_STATS, &w.stat)
	switch {
	case skips(err):
		return Entry{}, false, nil
	case err != nil:
		return Entry{}, false, &os.PathError{Op: "stat", Path: name, Err: err}
	case w.mounted(), w.stat.Mode&unix.S_IFMT == unix.S_IFDIR:
		return Entry{}, false, nil // a mount point, or it has just become a directory
	}
	return Entry{Parent: parent, Name: name, Dir: -1, Stat: &w.stat}, true, nil
}

// mounted reports whether the entry in w.stat is a mount point.
func (w *Walk) mounted() bool {
	if w.stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return w.stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
	}
	return w.stat.Dev_major != w.top.Dev_major || w.stat.Dev_minor != w.top.Dev_minor // before Linux 5.8
}

func (w *Walk) enter(parent int, name string) (Entry, bool, error) {
	if len(w.levels) > MaxDepth {
		w.tooDeep = true
		return Entry{}, false, nil
	}
	fd, err := openDir(parent, name)
	if err != nil {
		return Entry{}, false, err
	}
	if err := statFD(fd, &w.stat); err != nil {
		_ = unix.Close(fd) // it was only read
		return Entry{}, false, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if len(w.levels)-w.open == keep {
		w.shut()
	}
	// Because keep is greater than 1, shut didn't close the parent.
	w.levels = append(w.levels, level{id: identify(&w.stat), at: &cursor{fd: fd, buf: w.buffer()}})
	return Entry{Parent: parent, Name: name, Dir: fd, Stat: &w.stat}, true, nil
}

// shut closes the first open level below the top.
func (w *Walk) shut() {
	l := &w.levels[w.open]
	l.next = l.at.next
	_ = unix.Close(l.at.fd) // it was only read
	w.free = append(w.free, l.at.buf)
	l.at = nil
	w.open++
}

// leave returns to the parent directory.
func (w *Walk) leave() error {
	last := w.levels[len(w.levels)-1].at
	above := len(w.levels) - 2
	if w.levels[above].at == nil {
		fd, err := w.climb(last.fd, &w.levels[above])
		if err != nil {
			return err
		}
		if fd < 0 {
			// The directory was moved: the remaining entries of the directories in between are missed.
			w.lost = true
			above = 0
		} else {
			w.levels[above].at = &cursor{fd: fd, buf: w.buffer(), next: w.levels[above].next}
		}
	}
	_ = unix.Close(last.fd) // it was only read
	w.free = append(w.free, last.buf)
	w.levels = w.levels[:above+1]
	w.open = min(w.open, max(above, 1))
	return nil
}

// climb opens the parent of the directory from, and continues reading it at its saved offset. It returns -1 if the
// parent isn't the directory through which the walk came, because a directory was moved.
func (w *Walk) climb(from int, to *level) (int, error) {
	fd, err := retry(func() (int, error) { return unix.Openat(from, "..", dirFlags, 0) })
	if errors.Is(err, unix.ENOENT) {
		return -1, nil
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: "..", Err: err}
	}
	err = statFD(fd, &w.stat)
	if err == nil && identify(&w.stat) == to.id {
		if _, err = unix.Seek(fd, to.next, io.SeekStart); err == nil {
			return fd, nil
		}
	}
	_ = unix.Close(fd) // it was only read
	if err != nil {
		return -1, fmt.Errorf("go back to the directory above: %w", err)
	}
	return -1, nil
}

func (w *Walk) buffer() []byte {
	if n := len(w.free); n > 0 {
		b := w.free[n-1]
		w.free = w.free[:n-1]
		return b
	}
	return make([]byte, bufferSize)
}
