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

// The lock is tried again soon after an event, then ever more seldom, and once per
// lookAgain without any: a holder that unlocks without closing the file causes none.
const (
	soon      = 2 * time.Millisecond
	lookAgain = time.Second
)

// Named is a held lock on a file that a person named (--lock-file), by which programs
// take over a node from each other: the one that runs holds it, the next one waits. It is
// also released when the process ends, and isn't passed on to children.
type Named struct {
	path  string
	file  *os.File
	watch *watch
}

// errReplaced is the error for a lock file that was removed or replaced: the next process would lock another one.
var errReplaced = errors.New("the file was replaced")

// AcquireNamed takes the lock (flock(2)) of the file at path, which is made if it isn't there; its directory has to
// exist. The file's content stays. If another process holds the lock, that is logged once, and AcquireNamed waits until
// it is free or ctx ends.
//
// A waiting flock can't be interrupted from Go. So it is tried without waiting, again when inotify reports that a
// process has closed the file. The kernel reports that a moment before it drops the lock, hence the few tries after an
// event.
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

// openNamed opens the file and watches it, without the lock.
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
	w, err := newWatch(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Named{path: path, file: f, watch: w}, nil
}

// acquire takes the lock of the open file. It calls held whenever another has it.
func (n *Named) acquire(ctx context.Context, held func()) error {
	pause := soon
	for {
		// Events before the lock aren't contention; all later ones are.
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

// inPlace reports whether the open file is the one at the path.
func (n *Named) inPlace() bool {
	there, err := os.Lstat(n.path)
	if err != nil {
		return false
	}
	mine, err := n.file.Stat()
	return err == nil && os.SameFile(there, mine)
}

// Contended returns nil when another program has opened the lock file since it was
// locked, or has moved or removed it: it wants this node, and waits for the lock
// (--exit-on-lock-contention; the kubelet takes opening for contention as well). When
// ctx ends first, it returns ctx's error. Reading the file counts, so nobody should.
func (n *Named) Contended(ctx context.Context) error {
	for {
		events, err := n.watch.wait(ctx, 0)
		if err != nil {
			return err
		}
		if events&(unix.IN_OPEN|unix.IN_Q_OVERFLOW) != 0 || !n.inPlace() {
			return nil
		}
	}
}

// Release lets the lock go. The file stays: were it removed, a process that has
// just opened it could lock what nobody else sees. Contended must have returned.
func (n *Named) Release() error { return errors.Join(n.watch.close(), n.file.Close()) }
