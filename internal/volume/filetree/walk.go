// Package filetree walks a tree of files that pods can write to while others write to it, and
// gives a volume's files to the group of the pod that uses it (fsGroup). It follows no link and
// enters no mount, and neither depth nor width costs descriptors or much memory.
package filetree

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// keep is how many directories are open at once, beside the top one. The way back to those above
	// leads through "..".
	keep = 16
	// MaxDepth is how many levels of directories are looked into; each costs 32 bytes while the walk is below it.
	MaxDepth = 120_000
)

// ErrTooDeep says that directories lay deeper than MaxDepth.
var ErrTooDeep = fmt.Errorf("directories lie more than %d levels deep", MaxDepth)

// Entry is something in the tree. It is valid until the walk goes on.
type Entry struct {
	// Parent is an open descriptor of the directory that Name is in.
	Parent int
	Name   string
	// Dir is an open descriptor of the entry itself if it is a directory, else -1.
	Dir int
	// Stat has the basic statistics. It is of what Name was a moment ago, as this node knows it where
	// the file system is elsewhere, but for directories, where it is of what is open.
	Stat *unix.Statx_t
}

// Walk is a walk through one tree, by one goroutine at a time.
type Walk struct {
	levels []level
	// open is the first of the levels below the top one whose directory is open; those after it are too.
	open int
	top  unix.Statx_t
	stat unix.Statx_t
	// free holds buffers of directories that were closed.
	free [][]byte

	lost    bool
	tooDeep bool
}

// level is a directory on the way from the top to where the walk is.
type level struct {
	id identity
	// next is where reading goes on once the directory is opened again.
	next int64
	at   *cursor // nil while it isn't open
}

// identity is what a directory is known by, on the way back up.
type identity struct {
	ino          uint64
	major, minor uint32
}

func identify(st *unix.Statx_t) identity { return identity{st.Ino, st.Dev_major, st.Dev_minor} }

// New begins a walk through the directory top, which may be a mount itself. The caller keeps top, and closes it after
// the walk only.
func New(top *os.File) (*Walk, error) {
	// A descriptor of its own, so that the place in the directory isn't shared.
	fd, err := retry(func() (int, error) { return unix.Openat(int(top.Fd()), ".", dirFlags, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: top.Name(), Err: err}
	}
	w := &Walk{open: 1}
	if err := statFD(fd, &w.top); err != nil {
		_ = unix.Close(fd) // it was only looked at
		return nil, &os.PathError{Op: "stat", Path: top.Name(), Err: err}
	}
	w.levels = append(w.levels, level{id: identify(&w.top), at: &cursor{fd: fd, buf: w.buffer()}})
	return w, nil
}

// Top is the statistics of the top directory, as they were when the walk began.
func (w *Walk) Top() *unix.Statx_t { return &w.top }

// Next returns what comes next: a directory before what is in it, in no further order. The top
// directory isn't among it, nor what is mounted in the tree and what vanishes while it is looked for. At
// the end the error is io.EOF.
func (w *Walk) Next() (Entry, error) {
	for {
		l := &w.levels[len(w.levels)-1]
		if l.at == nil {
			// Closed by Park, which leaves the last one open: never so.
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
		e, ok, err := w.look(l.at.fd, name, kind)
		if err != nil || ok {
			return e, err
		}
	}
}

// Lost reports whether parts of the tree were missed, because directories on the way back were moved
// while the walk was below them.
func (w *Walk) Lost() bool { return w.lost }

// TooDeep reports whether something was missed because it lies deeper than MaxDepth.
func (w *Walk) TooDeep() bool { return w.tooDeep }

// Park closes all directories but the top one and the one that the walk is in. It can go on
// at any time.
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

// look finds out what a name is, and goes into it if it is a directory.
func (w *Walk) look(parent int, name string, kind uint8) (Entry, bool, error) {
	if kind == unix.DT_DIR || kind == unix.DT_UNKNOWN {
		// Opened before anything is asked of it: a question to something that is mounted there
		// may never be answered.
		e, ok, err := w.enter(parent, name)
		if kind == unix.DT_DIR || ok || !errors.Is(err, unix.ENOTDIR) {
			if skips(err) {
				return Entry{}, false, nil
			}
			return e, ok, err
		}
	}
	// A file may be mounted on it whose file system doesn't answer: what is known of it is enough to see that.
	err := unix.Statx(parent, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC,
		unix.STATX_BASIC_STATS, &w.stat)
	switch {
	case skips(err):
		return Entry{}, false, nil
	case err != nil:
		return Entry{}, false, &os.PathError{Op: "stat", Path: name, Err: err}
	case w.mounted(), w.stat.Mode&unix.S_IFMT == unix.S_IFDIR:
		return Entry{}, false, nil // mounted, or a directory only since a moment ago
	}
	return Entry{Parent: parent, Name: name, Dir: -1, Stat: &w.stat}, true, nil
}

// mounted reports whether what was looked at is mounted where it is.
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
		_ = unix.Close(fd) // it was only looked at
		return Entry{}, false, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if len(w.levels)-w.open == keep {
		w.shut()
	}
	// The parent may be the one that was shut, but for keep > 1.
	w.levels = append(w.levels, level{id: identify(&w.stat), at: &cursor{fd: fd, buf: w.buffer()}})
	return Entry{Parent: parent, Name: name, Dir: fd, Stat: &w.stat}, true, nil
}

// shut closes the first of the open levels.
func (w *Walk) shut() {
	l := &w.levels[w.open]
	l.next = l.at.next
	_ = unix.Close(l.at.fd) // it was only read
	w.free = append(w.free, l.at.buf)
	l.at = nil
	w.open++
}

// leave goes back to the directory above.
func (w *Walk) leave() error {
	last := w.levels[len(w.levels)-1].at
	above := len(w.levels) - 2
	if w.levels[above].at == nil {
		fd, err := w.climb(last.fd, &w.levels[above])
		if err != nil {
			return err
		}
		if fd < 0 {
			// Somebody moved it. What is left of the directories in between is missed.
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

// climb opens the directory above, at the place where it was left, and makes sure that it is the
// one the walk came from. -1 says that it isn't.
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
	_ = unix.Close(fd) // it was only looked at
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
