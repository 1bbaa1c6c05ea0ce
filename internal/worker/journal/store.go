package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
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
	// leastTotal is the minimum of store.bound, in bytes: it applies on nodes with few pods.
	leastTotal = 64 << 20
	// marker is the file that marks a running agent.
	marker    = ".running"
	extension = ".txtar"
)

// part is a directory below the journal's directory.
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

// entry holds the data of a file in the index.
type entry struct {
	size    int64
	written time.Time
	// by is the record with the text of the file; nil for files of other agents and of failures.
	by *Record
}

// store is the directory on disk. It has an index of its files, so that a pod without files costs no system call.
type store struct {
	dir string
	// limit is the size of a pod's record in memory, in bytes; pods returns the number of pods with a record.
	limit int64
	pods  func() int
	// least is the minimum of bound, in bytes: leastTotal, except in tests.
	least int64

	// mu guards the fields below. It is held while a file is renamed or removed, so that the index stays correct, but
	// not while data is written.
	mu    sync.Mutex
	files map[file]entry
	total int64
	// earlier is the number of files of the previous agent.
	earlier int
	// lost has the pods with a file of this agent that trim has removed.
	lost map[types.UID]bool
}

func newStore(dir string, limit int, pods func() int) *store {
	return &store{dir: dir, limit: int64(limit), pods: pods, least: leastTotal, files: map[file]entry{},
		lost: map[types.UID]bool{}}
}

func (s *store) path(f file) string {
	return filepath.Join(s.dir, string(f.part), string(f.uid)+extension)
}

// write replaces a file with text, the text of the record by. If by has ended before the file is complete, the file
// isn't replaced. If by is nil, it is always replaced. write doesn't sync: if the host loses power, the last writes
// may be lost.
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

// fill writes the text to a temporary file next to its destination. If the agent dies, the next one removes that
// file.
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

// forget removes a file from the index, and reports whether the index had it.
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

// read returns a file's content; nil if there is no such file.
func (s *store) read(f file) ([]byte, error) {
	s.mu.Lock()
	e, ok := s.files[f]
	s.mu.Unlock()
	if !ok {
		return nil, nil
	}
	in, err := os.OpenFile(s.path(f), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the file was removed meanwhile
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(io.LimitReader(in, e.size))
}

// remove removes the files of a pod of which nothing is left, except a file that a newer record has written.
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

// sweep removes the files for which stale returns true. It holds the lock only per file.
func (s *store) sweep(stale func(file, entry) bool) error {
	s.mu.Lock()
	files := maps.Clone(s.files)
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
		return nil // the file was written meanwhile
	}
	return s.drop(f)
}

// bound is the limit of all files together, in bytes. It allows for a file of each pod, or for each file of the
// previous agent if these are more. A file takes up to twice the size of its record in memory.
func (s *store) bound(pods int) int64 {
	return max(s.least, 2*s.limit*int64(max(pods, s.earlier)))
}

// trim removes files if the total size of all files is above bound. It reduces the size to 7/8 of bound, so that not
// every write has to trim. It removes the previous agent's files first, then the least recently written files, and
// never the file that was just written.
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

// missing returns the number of pods with a file of this agent that trim has removed.
func (s *store) missing() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lost)
}
