// Package lockfile ensures that only one agent at a time uses a root directory (Acquire). It also hands a node over
// from one agent to the next, with a lock file that the user configures (AcquireNamed).
package lockfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

// Name is the lock's file name within the root directory.
const Name = "deckhand.lock"

// HeldError means that another process holds the lock.
type HeldError struct {
	// Path is the path of the lock file.
	Path string
	// PID is the ID of the process that holds the lock; 0 if the file doesn't contain it.
	PID int
}

func (e *HeldError) Error() string {
	holder := "another process"
	if e.PID > 0 {
		holder = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("%s already uses this root directory (it holds %s): stop it, or give this agent a --root-dir "+
		"of its own", holder, e.Path)
}

// Lock is a held lock. The kernel also releases it when the process ends for any reason.
type Lock struct {
	file *os.File
}

// Acquire locks the directory rootDir, which must exist, and writes the process ID into the lock file if the disk
// has space. If another process holds the lock, Acquire retries for a fifth of a second and then fails with a
// *HeldError. Child processes don't inherit the lock.
func Acquire(rootDir string) (*Lock, error) { return acquire(rootDir, false) }

// AcquireToEnd is Acquire for a process that starts no pods, but stops or removes them. On a disk that can't be
// written, an existing lock file is enough.
func AcquireToEnd(rootDir string) (*Lock, error) { return acquire(rootDir, true) }

func acquire(rootDir string, toEnd bool) (*Lock, error) {
	path := filepath.Join(rootDir, Name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if toEnd && atomicfile.DiskFails(err) {
		if existing, failed := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0); failed == nil {
			f, err = existing, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("locking the root directory: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for range 10 {
		if !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		// The process that held the lock may just have died: a child that it forked holds the lock until the child's
		// exec.
		time.Sleep(20 * time.Millisecond)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &HeldError{Path: path, PID: readPID(f)}
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	l := &Lock{file: f}
	// The process ID is only for the error message of another process. An error is ignored: the lock works without
	// the ID, and an agent has to be able to start on a full disk in order to free space.
	_ = l.write(strconv.Itoa(os.Getpid()) + "\n")
	return l, nil
}

// Release releases the lock. It doesn't remove the file: a process that has just opened the file would lock a
// removed file, and another process would lock a new one.
func (l *Lock) Release() error {
	_ = l.write("") // an error is ignored as in Acquire
	return l.file.Close()
}

func (l *Lock) write(text string) error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(text), 0)
	return err
}

// readPID reads the process ID from the lock file; 0 if the process that holds the lock hasn't written it (yet).
func readPID(f *os.File) int {
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}
