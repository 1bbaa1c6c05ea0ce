package lockfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

// The delay before the next attempt to lock. It is soon at first and after each event of the file, and doubles up to
// lookAgain. Polling is necessary because a process that unlocks the file without closing it causes no event.
const (
	soon      = 2 * time.Millisecond
	lookAgain = time.Second
)

// Named is a held lock on a file that the user configures (--lock-file), with which agents hand over a node: the
// running agent holds the lock, and the next agent waits for it. The kernel also releases the lock when the process
// ends. Child processes don't inherit the lock.
type Named struct {
	path  string
	file  *os.File
	watch *watch
}

// errReplaced means that the lock file was removed or replaced: another process would lock the new file instead.
var errReplaced = errors.New("the file was replaced")

// AcquireNamed locks the file at path with flock(2), and creates it if it is missing; its directory has to exist. The
// file's content isn't changed. If another process holds the lock, AcquireNamed logs that once, and waits until the
// lock is free or ctx ends.
//
// A blocking flock can't be interrupted from Go. So AcquireNamed tries to lock without blocking, and tries again when
// inotify reports that a process has closed the file. The kernel reports that a moment before it releases the lock;
// therefore AcquireNamed retries a few times after an event. If the file can't be watched, AcquireNamed polls.
func AcquireNamed(ctx context.Context, path string, log logr.Logger) (*Named, error) {
	logged := false
	held := func() {
		if !logged {
			logged = true
			log.Info("Waiting for another process to release the lock file (lslocks shows which)", "path", path)
		}
	}
	for {
		n, err := openNamed(path)
		if err != nil {
			return nil, fmt.Errorf("lock file %s: %w", path, err)
		}
		if err = n.acquire(ctx, held); err == nil {
			return n, nil
		}
		if closeErr := n.Release(); closeErr != nil || !errors.Is(err, errReplaced) {
			return nil, errors.Join(fmt.Errorf("lock file %s: %w", path, err), closeErr)
		}
	}
}

// openNamed opens and watches the file, but doesn't lock it.
func openNamed(path string) (*Named, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("the directory to create it in doesn't exist: create it, or give --lock-file another " +
			"path")
	case errors.Is(err, unix.ELOOP):
		return nil, errors.New("it is a symbolic link, and those aren't followed: give --lock-file the path that it " +
			"leads to")
	case err != nil:
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it isn't a regular file: give --lock-file another path")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Named{path: path, file: f, watch: newWatch(f)}, nil
}

// acquire locks the open file. It calls held after each attempt that fails because another process holds the lock.
func (n *Named) acquire(ctx context.Context, held func()) error {
	pause := soon
	for {
		// Events from before the lock is acquired don't count as contention; all later events do.
		if err := n.watch.drain(); err != nil {
			return err
		}
		err := unix.Flock(int(n.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if !n.inPlace() {
			return errReplaced
		}
		if err == nil {
			return nil
		}
		held()
		events, err := n.watch.wait(ctx, pause)
		if err != nil {
			return err
		}
		pause = min(2*pause, lookAgain)
		if events != 0 {
			pause = soon
		}
	}
}

// inPlace reports whether the open file is still the file at the path.
func (n *Named) inPlace() bool {
	there, err := os.Lstat(n.path)
	if err != nil {
		return false
	}
	mine, err := n.file.Stat()
	return err == nil && os.SameFile(there, mine)
}

// Contended returns nil once another process has opened, moved or removed the lock file after it was locked: that
// process wants to take over this node, and waits for the lock (--exit-on-lock-contention; the kubelet also treats
// opening as contention). If ctx ends first, Contended returns ctx's error. A process that only reads the file also
// counts, so no program should read it. While the file can't be watched, Contended polls. Then each process with the
// file open counts, even if it opened the file before this process locked it.
func (n *Named) Contended(ctx context.Context) error {
	for {
		polled := n.watch.inotify == nil
		events, err := n.watch.wait(ctx, 0)
		if err != nil {
			return err
		}
		// wait may just have begun to watch the file: a process that opened the file before that causes no event.
		if events&(unix.IN_OPEN|unix.IN_Q_OVERFLOW) != 0 || !n.inPlace() || polled && n.openElsewhere() {
			return nil
		}
	}
}

// openElsewhere reports whether the file is open in another process; false if the file system can't report that. The
// kernel grants a write lease (fcntl(2), F_SETLEASE) only on a file that no other process has open. The lease is
// released immediately; a process that opens the file waits for the release.
func (n *Named) openElsewhere() bool {
	_, err := unix.FcntlInt(n.file.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	if err == nil {
		_, err = unix.FcntlInt(n.file.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	}
	return errors.Is(err, unix.EAGAIN)
}

// Unwatched returns why the lock file can't be watched, so that Contended polls; nil if it can be. It may be called
// before Contended.
func (n *Named) Unwatched() error { return n.watch.failure }

// Release releases the lock. It doesn't remove the file: a process that has just opened the file would lock a
// removed file, and another process would lock a new one. Call it only after Contended has returned.
func (n *Named) Release() error { return errors.Join(n.watch.close(), n.file.Close()) }
