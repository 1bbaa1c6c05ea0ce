// Package lockfile lets one agent at a time use a root directory (Acquire), and hands a
// node over from one agent to the next by a file that a person names (AcquireNamed).
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
)

// Name is the lock's file name within the root directory.
const Name = "deckhand.lock"

// HeldError says that another process holds the lock.
type HeldError struct {
	// Path is the lock file.
	Path string
	// PID is the process that holds it; 0 if the file doesn't say.
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

// Lock is a held lock. It is also released when the process ends, however it ends.
type Lock struct {
	file *os.File
}

// Acquire takes the lock of the directory rootDir, which must exist, without
// waiting (but for a fifth of a second), and writes the process's number into it if the disk has space. It fails with a
// *HeldError if another process has it. The lock is not passed on to child processes.
func Acquire(rootDir string) (*Lock, error) {
	path := filepath.Join(rootDir, Name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the root directory: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for range 10 {
		if !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		// A dead holder's child keeps the lock from its fork until its exec.
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
	// The number only serves the message of a refused process: on a full disk the lock holds without it, and a process
	// that frees space there has to be able to start.
	_ = l.write(strconv.Itoa(os.Getpid()) + "\n")
	return l, nil
}

// Release lets the lock go. The file stays: were it removed, a process that has
// just opened it could lock what nobody else sees.
func (l *Lock) Release() error {
	return errors.Join(l.write(""), l.file.Close())
}

func (l *Lock) write(text string) error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(text), 0)
	return err
}

// readPID returns 0 if the holder hasn't written its number (yet).
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
