package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

const (
	// leastTotal is how many bytes all files may take on a node with few pods; see store.bound.
	leastTotal = 64 << 20
	// marker is the file of an agent that runs.
	marker    = ".running"
	extension = ".txtar"
)

// part is a directory below the store's.
type part string

const (
	current  part = "."
	previous part = "previous"
	failed   part = "failed"
)

// file names one pod's file.
type file struct {
	part part
	uid  types.UID
}

// entry is what is known of a file.
type entry struct {
	size    int64
	written time.Time
	// by is the record that was written; nil where that doesn't matter.
	by *Record
}

// store is the directory on disk. It knows what is in it, so that a pod of which
// there is nothing costs no system call.
type store struct {
	dir string
	// limit is how many bytes are kept of a pod, pods tells how many there are.
	limit int64
	pods  func() int
	// least is leastTotal, but in tests.
	least int64

	// mu guards what follows, and is held while a file gets its name or is removed, so that
	// the index is right. It isn't held while anything is written.
	mu    sync.Mutex
	files map[file]entry
	total int64
	// earlier is how many files are in previous.
	earlier int
	// lost are the pods whose file of this agent was removed by trim.
	lost map[types.UID]bool
}

func newStore(dir string, limit int, pods func() int) *store {
	return &store{dir: dir, limit: int64(limit), pods: pods, least: leastTotal, files: map[file]entry{},
		lost: map[types.UID]bool{}}
}

func (s *store) path(f file) string {
	return filepath.Join(s.dir, string(f.part), string(f.uid)+extension)
}

// write replaces a file with what is recorded in by, unless that has ended before
// the file is whole; by is nil for what is written in any case. It doesn't sync
// the disk: a host that loses power may lose the last writes.
func (s *store) write(f file, text []byte, by *Record) error {
	if err := safeopen.Check("UID", string(f.uid)); err != nil {
		return err
	}
	tmp, err := s.fill(f, text)
	if err != nil {
		return fmt.Errorf("write %s: %w", s.path(f), err)
	}
	pods := s.pods()
	s.mu.Lock()
	defer s.mu.Unlock()
	if by.hasEnded() {
		return os.Remove(tmp)
	}
	if err := os.Rename(tmp, s.path(f)); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	s.note(f, entry{int64(len(text)), time.Now(), by})
	return s.trim(pods, f)
}

// fill writes a text to a file beside the one that it is to become. What is left of
// it when the agent dies is removed by the next.
func (s *store) fill(f file, text []byte) (name string, err error) {
	// CreateTemp opens with O_EXCL and 0600.
	out, err := os.CreateTemp(filepath.Join(s.dir, string(f.part)), "."+string(f.uid)+".tmp-*")
	if err != nil {
		return "", err
	}
	_, err = out.Write(text)
	if err = errors.Join(err, out.Close()); err != nil {
		return "", errors.Join(err, os.Remove(out.Name()))
	}
	return out.Name(), nil
}

// note adds a file to the index.
func (s *store) note(f file, e entry) {
	s.forget(f)
	s.files[f] = e
	s.total += e.size
	switch f.part {
	case current:
		delete(s.lost, f.uid)
	case previous:
		s.earlier++
	}
}

// forget removes a file from the index and reports whether it was there.
func (s *store) forget(f file) bool {
	e, ok := s.files[f]
	if !ok {
		return false
	}
	delete(s.files, f)
	s.total -= e.size
	if f.part == previous {
		s.earlier--
	}
	return true
}

// read returns a file's text; nil if there is none.
func (s *store) read(f file) ([]byte, error) {
	s.mu.Lock()
	e, ok := s.files[f]
	s.mu.Unlock()
	if !ok {
		return nil, nil
	}
	in, err := os.OpenFile(s.path(f), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it went meanwhile
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(io.LimitReader(in, e.size))
}

// remove removes what there is of a pod of which nothing is left, but not what a
// record has written since that goes on.
func (s *store) remove(uid types.UID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lost, uid)
	err := s.drop(file{previous, uid})
	f := file{current, uid}
	if by := s.files[f].by; by != nil && !by.hasEnded() {
		return err
	}
	return errors.Join(err, s.drop(f))
}

func (s *store) drop(f file) error {
	if !s.forget(f) {
		return nil
	}
	if err := os.Remove(s.path(f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove an old journal: %w", err)
	}
	return nil
}

// sweep removes the files that stale picks, and lets others go between two of them.
func (s *store) sweep(stale func(file, entry) bool) error {
	s.mu.Lock()
	files := make(map[file]entry, len(s.files))
	for f, e := range s.files {
		files[f] = e
	}
	s.mu.Unlock()
	var errs []error
	for f, e := range files {
		if stale(f, e) {
			errs = append(errs, s.dropIfStill(f, e))
		}
	}
	return errors.Join(errs...)
}

func (s *store) dropIfStill(f file, e entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[f] != e {
		return nil // it was written meanwhile
	}
	return s.drop(f)
}

// bound is how many bytes all files may take. There is always room for the files of
// all pods, those that are and those that were when the last agent stopped: a file
// takes up to twice as much as its record does in memory.
func (s *store) bound(pods int) int64 {
	return max(s.least, 2*s.limit*int64(max(pods, s.earlier)))
}

// trim removes files where all take too much, so much at a time that not every file
// calls for that: first those of the previous agent, then of all others, what hasn't
// been written for longest; never the one that has just been.
func (s *store) trim(pods int, written file) error {
	bound := s.bound(pods)
	if s.total <= bound {
		return nil
	}
	list := make([]file, 0, len(s.files))
	for f := range s.files {
		if f != written {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b file) int {
		if (a.part == previous) != (b.part == previous) {
			if a.part == previous {
				return -1
			}
			return 1
		}
		return s.files[a].written.Compare(s.files[b].written)
	})
	var errs []error
	for _, f := range list {
		if s.total <= bound/8*7 {
			break
		}
		if f.part == current {
			s.lost[f.uid] = true
		}
		errs = append(errs, s.drop(f))
	}
	return errors.Join(errs...)
}

// missing returns how many pods' files of this agent trim removed.
func (s *store) missing() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lost)
}
