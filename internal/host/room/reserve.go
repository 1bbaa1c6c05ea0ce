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

// The reserve has files of fileSize bytes each: together 1 MiB and, with the directory, 33 inodes. Each write gets a
// part of perWrite files. A program that fills the disk may use the freed space first; then a part of the reserve has
// to be left for the time when that program has been ended.
const (
	files    = 32
	fileSize = 32 << 10
	perWrite = files / 8
)

// retryFirst is the delay before a reserve whose files were removed is made again. It doubles up to retryMost while
// there is no room for the files.
const (
	retryFirst = time.Second
	retryMost  = time.Minute
)

// Reserve is room on the disk of the root directory that is released for writes that end pods, so that pods can be
// stopped and removed on a full disk. It consists of files with real blocks and inodes. While Run runs, it also has
// descriptors, for a process with too many open files. It is safe for concurrent use; a nil Reserve is empty.
type Reserve struct {
	dir         string
	descriptors descriptors
	// missing is signaled when a part of the reserve was released.
	missing wake.Slot

	// mu is held while files of the reserve are made or removed.
	mu sync.Mutex
	// given counts how often a part was released.
	given int
}

// NewReserve returns the reserve of a root directory. It creates no files.
func NewReserve(root string) *Reserve {
	return &Reserve{dir: filepath.Join(root, Dir), missing: wake.NewSlot()}
}

// Run makes the reserve and, after a part was released, makes it again as soon as there is room, until ctx ends. The
// error is always nil.
func (r *Reserve) Run(ctx context.Context) error {
	r.descriptors.fill()
	defer r.descriptors.free(spares)
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

// made makes the reserve if there is room, and reports whether the reserve is complete.
func (r *Reserve) made() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.whole() {
		return true
	}
	if on, err := Measure(r.dir); err != nil || on.Full() {
		return false
	}
	return r.fill() == nil
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
			return errors.Join(fmt.Errorf("%s: %w", f.Name(), err), os.Remove(f.Name()))
		}
	}
	return nil
}

// allocate allocates the blocks of a file. If the file system doesn't support fallocate, it writes zeros.
func allocate(f *os.File) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, fileSize)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS):
			_, err := f.WriteAt(make([]byte, fileSize), 0)
			return errors.Join(err, f.Sync()) // without Sync, the file system may delay the allocation of the blocks
		default:
			return err
		}
	}
}

// giveUp removes up to n files of the reserve. gave reports whether it removed any. If the count of released parts
// isn't given any more, another call has released a part meanwhile: then giveUp removes no file, and others is true.
func (r *Reserve) giveUp(n, given int) (gave, others bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.given != given {
		return false, true
	}
	removed := 0
	for i := 0; i < files && removed < n; i++ {
		if os.Remove(r.file(i)) == nil {
			removed++
		}
	}
	_ = os.Remove(r.dir) // fails while it has files
	if removed == 0 {
		return false, false
	}
	r.given++
	r.missing.Wake()
	return true, false
}

// count returns how often a part was released.
func (r *Reserve) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.given
}

// Spend calls write, which ends or removes something, or belongs to the start of an agent (without an agent, nothing
// ends). If the disk is full, or too many files are open, Spend releases a part of the reserve and calls write again.
// If other calls have released parts meanwhile, Spend first calls write again without releasing another part.
func (r *Reserve) Spend(write func() error) error {
	if r == nil {
		return write()
	}
	for {
		given := r.count()
		err := r.descriptors.lend(write)
		if !atomicfile.DiskFull(err) {
			return err
		}
		switch gave, others := r.giveUp(perWrite, given); {
		case gave:
			return write()
		case !others:
			return err
		}
	}
}

// Release releases the whole reserve if the disk is full, before other programs write: the container runtime reports
// errors of a full disk late or never.
func (r *Reserve) Release() { r.release(files) }

// ReleasePart releases a part of the reserve if the disk is full, for a write that another program will retry.
func (r *Reserve) ReleasePart() { r.release(perWrite) }

func (r *Reserve) release(n int) {
	if r == nil {
		return
	}
	if on, err := Measure(r.dir); err == nil && on.Full() {
		_, _ = r.giveUp(n, r.count())
	}
}
