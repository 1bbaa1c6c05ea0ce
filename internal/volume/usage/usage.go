// Package usage measures how much directories hold: by the project quotas of their file system
// where it has them and they can be trusted, else by a walk through the tree at a bounded pace.
// It also reports how full the file systems of mounted claims are; one that doesn't answer is
// left out until it does.
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

// Usage is how much a directory holds, itself included.
type Usage struct {
	// Bytes is what is taken of the disk: blocks, not the lengths of files.
	Bytes int64
	// Inodes is how many files, directories, links and others there are.
	Inodes int64
}

// Add returns the sum of both.
func (u Usage) Add(v Usage) Usage { return Usage{u.Bytes + v.Bytes, u.Inodes + v.Inodes} }

// Config is how a Meter works.
type Config struct {
	// Rate is how many files a second all walks together look at; 0 for 20,000, which costs about a
	// twentieth of a CPU.
	Rate int
	// Etc is the directory of the files projects and projid, where other people's project IDs are listed
	// (projects(5), projid(5)); empty for /etc.
	Etc string
	// Took is called with how long it took to measure a directory, the waiting for its turn included, and whether its
	// quota project was asked; nil for nobody.
	Took func(quota bool, took time.Duration)
}

const (
	defaultRate = 20_000
	// step is how many files one walk looks at before others get their turn.
	step = 512
	// turns is how many walks work at one moment. Others wait, with no more than two open descriptors each.
	turns = 2
	// passes is how often a tree is gone through of which something was missed.
	passes = 3
)

// Meter measures directories. Its methods may be called by many goroutines.
type Meter struct {
	budget *rate.Limiter
	turn   chan struct{}
	etc    string
	took   func(quota bool, took time.Duration)

	mu sync.Mutex
	// projects holds what Assign gave, by directory.
	projects map[string]uint32
	next     uint32
}

// New returns a meter.
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

// Measure returns how much the directory dir holds. A directory that isn't there holds nothing. dir and what is
// above it are trusted, nothing in it is: no link is followed, and what is mounted in it doesn't count. If something
// is mounted on dir, it isn't known what that holds: an error.
//
// A directory that was assigned a project is asked for at once. Any other is walked through, which takes as long as
// its size and the other walks make it, and of which this is to be known: what changes meanwhile is counted or not;
// files that are deleted but open aren't counted; a file with many names is counted once (but for names outside of the
// directory, each a part, if there are more than 10,000 of such files); of somebody who moves deep directories around
// to hide from it, it may see a part only. With an error comes what was counted so far.
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

// byWalk walks through a tree, again if it misses something.
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

// Forget says that a directory is gone, or won't be measured any more.
func (m *Meter) Forget(dir string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.projects, dir)
}

// openDir opens a directory, whose last element is no link and has nothing mounted on it: a container whose mounts
// reach the node can mount on its volume what never answers.
func openDir(dir string) (*os.File, error) {
	parent, err := os.OpenFile(filepath.Dir(dir), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	return safeopen.Enter(parent, filepath.Base(dir))
}

// pass walks through a tree once. It reports whether it knows that it missed something.
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

// step looks at the next files of a tree when it is its turn. The budget is waited for by those whose turn it is, so
// that all come to their turn in the order in which they asked for it, large trees with small ones in between.
func (m *Meter) step(ctx context.Context, w *filetree.Walk, s *sum) (done bool, err error) {
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	// Whoever went before paid for what it took; what this one takes is paid for by whoever follows.
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

// maxLinked is how many files with several names are remembered in a walk.
const maxLinked = 10_000

// sum adds up files.
type sum struct {
	usage Usage
	// shares is what counts in part, in 1/shareUnit of an inode.
	shares int64
	// linked holds the inodes with several names that were counted, on the top directory's device.
	linked map[uint64]struct{}
	device uint64
}

const (
	blockSize = 512 // of stat(2)'s blocks
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
