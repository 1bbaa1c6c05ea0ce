package room

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// Dir is the name of the reserve's directory in the root directory.
const Dir = "reserve"

// The reserve has files of fileSize bytes each: together 1 MiB and, with the directory, 33 inodes.
const (
	files    = 32
	fileSize = 32 << 10
)

// retryFirst is the delay before a reserve that has been given up is made again. It doubles up to retryMost while
// there is no room for it.
const (
	retryFirst = time.Second
	retryMost  = time.Minute
)

// Reserve is room on the disk of the root directory that is given up for writes that end pods, so that pods can be
// stopped and removed on a full disk. It has real blocks, and inodes. It is safe for concurrent use; a nil Reserve is
// empty.
type Reserve struct {
	dir string
	// missing is signaled when the reserve was given up.
	missing wake.Slot

	// mu is held while files of the reserve are made or removed.
	mu sync.Mutex
}

// NewReserve returns the reserve of a root directory. It makes nothing.
func NewReserve(root string) *Reserve {
	return &Reserve{dir: filepath.Join(root, Dir), missing: wake.NewSlot()}
}

// Run makes the reserve, and makes it again after it was given up as soon as there is room, until ctx ends. The error
// is always nil.
func (r *Reserve) Run(ctx context.Context) error {
	for {
		for pause := retryFirst; !r.made(); pause = min(2*pause, retryMost) {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(pause):
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.missing:
		}
	}
}

// made makes the reserve if there is room, and reports whether it is there.
func (r *Reserve) made() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.whole() {
		return true
	}
	if on, err := Measure(r.dir); err != nil || on.Full() {
		return false
	}
	if err := r.fill(); err != nil {
		_ = os.RemoveAll(r.dir) // a part of it is given up with the next one
		return false
	}
	return true
}

// whole reports whether all files of the reserve have their blocks.
func (r *Reserve) whole() bool {
	for i := range files {
		var st unix.Stat_t
		if unix.Lstat(r.file(i), &st) != nil || st.Blocks*512 < fileSize {
			return false
		}
	}
	return true
}

func (r *Reserve) file(i int) string { return filepath.Join(r.dir, strconv.Itoa(i)) }

func (r *Reserve) fill() error {
	if err := os.Mkdir(r.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for i := range files {
		f, err := os.OpenFile(r.file(i), os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		if err := errors.Join(allocate(f), f.Close()); err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
	return nil
}

// allocate gives a file its blocks. Where the file system has no fallocate, it writes zeros.
func allocate(f *os.File) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, fileSize)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS):
			_, err := f.WriteAt(make([]byte, fileSize), 0)
			return errors.Join(err, f.Sync()) // before, the file system may only have promised the blocks
		default:
			return err
		}
	}
}

// giveUp removes the reserve, and reports whether there was one.
func (r *Reserve) giveUp() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := os.Lstat(r.file(0)); err != nil {
		return false
	}
	err := os.RemoveAll(r.dir)
	r.missing.Wake()
	return err == nil
}

// Spend calls write, which ends or removes something. If the disk is full, it gives up the reserve and calls write
// again.
func (r *Reserve) Spend(write func() error) error {
	err := write()
	if r != nil && atomicfile.DiskFull(err) && r.giveUp() {
		err = write()
	}
	return err
}

// Release gives up the reserve if the disk is full, before other programs write: the container runtime reports such
// errors late or never.
func (r *Reserve) Release() {
	if r == nil {
		return
	}
	if on, err := Measure(r.dir); err == nil && on.Full() {
		r.giveUp()
	}
}
