// Package usage measures the disk usage of directories: from project quotas if the file system has them and they
// can be trusted, else by a walk through the tree at a limited rate. It also reports the usage of the file systems
// of mounted claims.
package usage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/volume/filetree"
)

// Usage is the disk usage of a directory, including the directory itself.
type Usage struct {
	// Bytes is the size of the allocated blocks, not the sum of the files' lengths.
	Bytes int64
	// Inodes is the number of files, directories, links and others.
	Inodes int64
}

// Add returns the sum of two usages.
func (u Usage) Add(v Usage) Usage { return Usage{u.Bytes + v.Bytes, u.Inodes + v.Inodes} }

// Config configures a Meter.
type Config struct {
	// Rate is the maximum number of files per second that all walks visit together; 0 means 20,000, which takes
	// about a twentieth of a CPU.
	Rate int
	// Etc is the directory of the files projects and projid, which list the project IDs of other programs
	// (projects(5), projid(5)); empty for /etc.
	Etc string
	// Took is called after each successful measurement with its duration, including the time that it waited for
	// other walks. quota says that a quota was read instead of a walk. Took may be nil.
	Took func(quota bool, took time.Duration)
}

const (
	defaultRate = 20_000
	// step is how many files a walk visits before it yields its turn to another walk.
	step = 512
	// turns is how many walks run at once. A walk that waits for its turn has closed all but two descriptors of its
	// directories.
	turns = 2
	// passes is how often a tree is walked at most: it is walked again if parts of it were missed.
	passes = 3
)

// Meter measures directories. Its methods are safe for concurrent use.
type Meter struct {
	budget *rate.Limiter
	turn   chan struct{}
	etc    string
	took   func(quota bool, took time.Duration)

	mu sync.Mutex
	// projects maps directories to the project IDs that Assign gave them.
	projects map[string]uint32
	next     uint32
}

// New returns a Meter.
func New(c Config) *Meter {
	if c.Rate <= 0 {
		c.Rate = defaultRate
	}
	if c.Etc == "" {
		c.Etc = "/etc"
	}
	if c.Took == nil {
		c.Took = func(bool, time.Duration) {}
	}
	return &Meter{
		budget:   rate.NewLimiter(rate.Limit(c.Rate), 2*step),
		turn:     make(chan struct{}, turns),
		etc:      c.Etc,
		took:     c.Took,
		projects: map[string]uint32{},
		next:     firstProject,
	}
}

// Measure returns the usage of the directory dir; the usage is zero if the directory doesn't exist. dir and its
// parents are trusted, its content isn't: no symbolic link is followed, and mounts in it don't count. If dir itself
// is a mount point, Measure returns an error.
//
// If the directory has a project, its quota is read at once. Otherwise the tree is walked. The time for that depends
// on the size of the tree and on the number of other walks. The result of a walk is approximate: changes during the
// walk may be counted or not, and deleted files that are still open aren't counted. A file with several hard links
// is counted once; after 10,000 such files, each further link counts as a fraction of its file. Pods that keep
// moving deep directories can hide parts of them. After an error, the usage counted so far is returned.
func (m *Meter) Measure(ctx context.Context, dir string) (Usage, error) {
	top, err := openDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Usage{}, nil
	}
	if err != nil {
		return Usage{}, fmt.Errorf("measure what is kept in %s: %w", dir, err)
	}
	defer top.Close()
	began := time.Now()
	if u, ok := m.byQuota(dir, top); ok {
		m.took(true, time.Since(began))
		return u, nil
	}
	u, err := m.byWalk(ctx, top)
	if err != nil {
		return u, fmt.Errorf("measure what is kept in %s: %w", dir, err)
	}
	m.took(false, time.Since(began))
	return u, nil
}

// byWalk walks through the tree, and again if the walk missed parts of it. If every walk did, it returns the largest
// result.
func (m *Meter) byWalk(ctx context.Context, top *os.File) (most Usage, _ error) {
	for range passes {
		u, lost, err := m.pass(ctx, top)
		most = Usage{max(most.Bytes, u.Bytes), max(most.Inodes, u.Inodes)}
		if err != nil {
			return most, err
		}
		if !lost {
			return u, nil
		}
	}
	return most, nil
}

// Forget drops a directory's project: the directory was removed, or won't be measured again.
func (m *Meter) Forget(dir string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.projects, dir)
}

// openDir opens a directory that isn't a symbolic link or a mount point: a container with Bidirectional mounts can
// mount a hanging file system on its volume.
func openDir(dir string) (*os.File, error) {
	parent, err := os.OpenFile(filepath.Dir(dir), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	return safeopen.Enter(parent, filepath.Base(dir))
}

// pass walks through the tree once. It reports whether the walk missed parts of the tree because directories were
// moved.
func (m *Meter) pass(ctx context.Context, top *os.File) (_ Usage, lost bool, _ error) {
	w, err := filetree.New(top)
	if err != nil {
		return Usage{}, false, err
	}
	defer w.Close()
	s := sum{linked: map[uint64]struct{}{}, device: deviceOf(w.Top())}
	s.add(w.Top())
	for done := false; !done; {
		if done, err = m.step(ctx, w, &s); err != nil {
			return s.total(), false, err
		}
	}
	if w.TooDeep() {
		return s.total(), false, filetree.ErrTooDeep
	}
	return s.total(), w.Lost(), nil
}

// step visits the next files of a tree when it has its turn. A walk waits for the rate limiter during its turn, so
// that walks proceed in the order of their requests and small trees don't wait for large ones.
func (m *Meter) step(ctx context.Context, w *filetree.Walk, s *sum) (done bool, err error) {
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	// Each step is charged to the limiter after it. So this waits until the rate allows the files of the previous
	// steps.
	if err := m.budget.WaitN(ctx, 1); err != nil {
		return false, err
	}
	n := 0
	defer func() { m.budget.ReserveN(time.Now(), n) }()
	for ; n < step; n++ {
		e, err := w.Next()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		s.add(e.Stat)
	}
	w.Park()
	return false, nil
}

// maxLinked is how many files with several links are remembered in a walk.
const maxLinked = 10_000

// sum adds up the usage of files.
type sum struct {
	usage Usage
	// shares is the sum of the counted fractions of inodes, in units of 1/shareUnit.
	shares int64
	// linked contains the counted inodes with several links, on the top directory's device.
	linked map[uint64]struct{}
	device uint64
}

const (
	blockSize = 512 // bytes in a block of stat(2)
	shareUnit = 1 << 20
)

func (s *sum) add(st *unix.Statx_t) {
	bytes := int64(min(st.Blocks, math.MaxInt64/blockSize)) * blockSize
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		here := deviceOf(st) == s.device
		if _, counted := s.linked[st.Ino]; counted && here {
			return
		}
		if !here || len(s.linked) == maxLinked {
			s.usage.Bytes += bytes / int64(st.Nlink)
			s.shares += shareUnit / int64(st.Nlink)
			return
		}
		s.linked[st.Ino] = struct{}{}
	}
	s.usage.Bytes += bytes
	s.usage.Inodes++
}

func deviceOf(st *unix.Statx_t) uint64 { return unix.Mkdev(st.Dev_major, st.Dev_minor) }

func (s *sum) total() Usage {
	return s.usage.Add(Usage{Inodes: (s.shares + shareUnit/2) / shareUnit})
}
