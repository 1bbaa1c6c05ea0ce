package file

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxSize is the maximum size of a manifest in bytes.
	maxSize = 10 << 20
	// granularity is the assumed granularity of a file system's times: if a file was read within this time after its
	// last change, it may have changed again without a change of its times.
	granularity = 2 * time.Second
)

// writeState says whether a file is being written, according to events.
type writeState int

const (
	unknown writeState = iota
	beingWritten
	whole
)

// seenFile is the state of a file.
type seenFile struct {
	state writeState
	// dirty says that an event has reported a change of the file since it was read.
	dirty bool
	// deleted says that an event has reported the file's deletion since it was read.
	deleted bool
	// missing is when the file was first found to be missing; zero if it exists.
	missing time.Time
	// read says that the content with sum was read at readAt, from the file that version identifies.
	read    bool
	version fileVersion
	readAt  time.Time
	sum     [sha256.Size]byte
	// failure is why the file couldn't be read; empty if it could.
	failure string
}

// fileVersion changes when a file's content does, except for changes within the granularity of its times.
type fileVersion struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64
}

func versionOf(info fs.FileInfo) fileVersion {
	v := fileVersion{size: info.Size(), mtime: info.ModTime().UnixNano()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		v.dev, v.ino, v.ctime = stat.Dev, stat.Ino, stat.Ctim.Nano()
	}
	return v
}

// file returns the state of the file at an origin; a new state if there is none yet.
func (w *watch) file(origin string) *seenFile {
	f := w.files[origin]
	if f == nil {
		f = &seenFile{}
		w.files[origin] = f
	}
	return f
}

// check checks the file at one origin, and reads the file if it has changed and is complete.
func (w *watch) check(origin string, now time.Time) {
	if err := w.trustDir(); err != nil {
		w.unreachable(err.Error(), now)
		return
	}
	f := w.file(origin)
	info, err := os.Stat(origin)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		if _, err := os.Lstat(origin); err != nil {
			w.absent(origin, f, now)
			return
		}
		err = errors.New("it is a symbolic link to something that doesn't exist")
	}
	if err == nil && info.IsDir() && origin == w.path {
		w.rescan(now) // at the last check, the path was a file or missing
		return
	}
	f.missing = time.Time{}
	if err == nil {
		err = readable(info)
	}
	if err == nil {
		err = w.trust(origin, info)
	}
	if err != nil {
		w.fail(origin, f, err, now)
		return
	}
	if f.isRead(info) {
		return
	}
	if at := w.wholeAt(f, info, now); at.After(now) {
		w.lookAt(origin, at)
		return
	}
	w.read(origin, f, now)
}

// readable returns why a file won't be read; nil if it will be.
func readable(info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsRegular() && info.Size() > maxSize:
		return fmt.Errorf("it is larger than %d MiB, and isn't read", maxSize>>20)
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return errors.New("it is a directory; directories in the directory of manifests aren't read: move its files up")
	case mode&fs.ModeNamedPipe != 0:
		return errors.New("it is a FIFO, which isn't read: use a file")
	case mode&fs.ModeSocket != 0:
		return errors.New("it is a socket, which isn't read: use a file")
	default:
		return errors.New("it is a device, which isn't read: use a file")
	}
}

// isRead reports whether the file is unchanged since it was read.
func (f *seenFile) isRead(info fs.FileInfo) bool {
	return f.read && !f.dirty && f.failure == "" && f.version == versionOf(info) &&
		f.readAt.Sub(info.ModTime()) > granularity
}

// wholeAt returns when the file can be considered complete if it doesn't change any more.
func (w *watch) wholeAt(f *seenFile, info fs.FileInfo, now time.Time) time.Time {
	age := now.Sub(info.ModTime())
	if w.armed && f.state == whole || age < 0 || f.read && f.version == versionOf(info) {
		return now
	}
	if !w.armed || f.state == beingWritten {
		return info.ModTime().Add(openUnchangedFor)
	}
	return info.ModTime().Add(unchangedFor)
}

// read reads a file that is considered complete.
func (w *watch) read(origin string, f *seenFile, now time.Time) {
	data, version, err := readFile(origin)
	switch {
	case errors.Is(err, errChanging):
		f.dirty = true
		w.lookAt(origin, now.Add(unchangedFor))
		return
	case errors.Is(err, fs.ErrNotExist):
		w.lookAt(origin, now) // removed at this moment
		return
	case err != nil:
		w.fail(origin, f, err, now)
		return
	}
	sum := sha256.Sum256(data)
	anew := f.deleted && w.deletedAtOnce
	known := f.read && f.failure == "" && f.sum == sum && !anew
	if anew {
		w.keeper.Delete(origin)
	}
	f.read, f.dirty, f.failure, f.deleted = true, false, "", false
	f.version, f.readAt, f.sum = version, now, sum
	if known {
		return
	}
	w.log.V(2).Info("Manifest read", "origin", origin, "bytes", len(data))
	w.keeper.Accept(origin, data, now)
	w.changed = true
	if !w.reached {
		w.rescan(now) // if the text is valid, it shows that the manifests are reachable again
	}
}

func (w *watch) fail(origin string, f *seenFile, err error, now time.Time) {
	why := err.Error()
	f.dirty = false
	if f.failure == why && w.keeper.Has(origin) {
		return
	}
	f.failure = why
	w.keeper.Fail(origin, why, now)
	w.changed = true
}

// errChanging says that a file changed while it was read.
var errChanging = errors.New("it is being written")

// readFile reads a regular file. It follows links, because tools that update directories of files use them. That is
// safe: a user who can write to the directory of manifests can run any pod anyway.
func readFile(path string) ([]byte, fileVersion, error) {
	// Opening mustn't block on a FIFO that replaced the file, nor make a terminal the controlling terminal.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fileVersion{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = readable(info)
	}
	if err != nil {
		return nil, fileVersion{}, err
	}
	data := make([]byte, info.Size()+1)
	n, err := io.ReadFull(f, data)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, fileVersion{}, fmt.Errorf("it can't be read: %w", err)
	}
	after, err := f.Stat()
	if err != nil {
		return nil, fileVersion{}, err
	}
	version := versionOf(after)
	if int64(n) != info.Size() || version != versionOf(info) {
		return nil, fileVersion{}, errChanging
	}
	return data[:n], version, nil
}
