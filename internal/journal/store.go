package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/atomicfile"
	"github.com/deckhand-node/deckhand/internal/pathelement"
)

const (
	// maxTotal is how many bytes all files may take. What hasn't been written for
	// longest goes first, so much at a time that not every file calls for that.
	maxTotal = 64 << 20
	// marker is the file of an agent that runs.
	marker    = ".running"
	extension = ".txtar"
)

// part is a folder below the store's.
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
}

// store is the folder on disk. It knows what is in it, so that a pod of which
// there is nothing costs no system call.
type store struct {
	dir string
	max int64

	mu    sync.Mutex
	files map[file]entry
	total int64
}

func newStore(dir string) *store {
	return &store{dir: dir, max: maxTotal, files: map[file]entry{}}
}

func (s *store) path(f file) string {
	return filepath.Join(s.dir, string(f.part), string(f.uid)+extension)
}

// open makes the folders and takes stock. What was there of an agent is the
// previous one's from now on.
func (s *store) open() error {
	for _, p := range [...]part{current, previous, failed} {
		dir := filepath.Join(s.dir, string(p))
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			return err
		}
	}
	if err := s.turn(); err != nil {
		return err
	}
	for _, p := range [...]part{previous, failed} {
		list, err := os.ReadDir(filepath.Join(s.dir, string(p)))
		if err != nil {
			return err
		}
		for _, e := range list {
			if err := s.takeStock(p, e); err != nil {
				return err
			}
		}
	}
	return s.trim()
}

// turn makes the files of the last agent those of the previous one, and removes
// what it left half written.
func (s *store) turn() error {
	list, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		path := filepath.Join(s.dir, e.Name())
		switch {
		case !e.Type().IsRegular() || e.Name() == marker:
			continue
		case strings.HasSuffix(e.Name(), extension):
			err = os.Rename(path, filepath.Join(s.dir, string(previous), e.Name()))
		default:
			err = os.Remove(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeStock notes a file that is there, or removes one that was never finished.
func (s *store) takeStock(p part, e fs.DirEntry) error {
	info, err := e.Info()
	if err != nil {
		return err
	}
	uid, ok := strings.CutSuffix(e.Name(), extension)
	switch {
	case !info.Mode().IsRegular():
	case !ok:
		return os.Remove(filepath.Join(s.dir, string(p), e.Name()))
	default:
		s.note(file{p, types.UID(uid)}, entry{info.Size(), info.ModTime()})
	}
	return nil
}

// mark puts up the marker and reports whether it was there.
func (s *store) mark() (was bool, err error) {
	f, err := os.OpenFile(filepath.Join(s.dir, marker), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, f.Close()
}

func (s *store) unmark() error { return os.Remove(filepath.Join(s.dir, marker)) }

// write replaces a file. It isn't waited for the disk: a host that loses power may
// lose what it did last.
func (s *store) write(f file, text []byte) error {
	if err := pathelement.Check("UID", string(f.uid)); err != nil {
		return err
	}
	if err := atomicfile.WriteVolatile(s.path(f), text, 0o600); err != nil {
		return err
	}
	s.mu.Lock()
	s.note(f, entry{int64(len(text)), time.Now()})
	s.mu.Unlock()
	return s.trim()
}

// note takes a file into the books.
func (s *store) note(f file, e entry) {
	s.total += e.size - s.files[f].size
	s.files[f] = e
}

// read returns a file's text; nil if there is none.
func (s *store) read(f file) ([]byte, error) {
	s.mu.Lock()
	_, ok := s.files[f]
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
	return io.ReadAll(io.LimitReader(in, s.max))
}

// remove removes a file, if it is there.
func (s *store) remove(f file) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop(f)
}

func (s *store) drop(f file) error {
	e, ok := s.files[f]
	if !ok {
		return nil
	}
	delete(s.files, f)
	s.total -= e.size
	if err := os.Remove(s.path(f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove an old journal: %w", err)
	}
	return nil
}

// sweep removes the files that stale picks.
func (s *store) sweep(stale func(file, entry) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for f, e := range s.files {
		if stale(f, e) {
			errs = append(errs, s.drop(f))
		}
	}
	return errors.Join(errs...)
}

// trim removes the oldest files where all take too much.
func (s *store) trim() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total <= s.max {
		return nil
	}
	list := make([]file, 0, len(s.files))
	for f := range s.files {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b file) int { return s.files[a].written.Compare(s.files[b].written) })
	var errs []error
	for _, f := range list {
		if s.total <= s.max/8*7 {
			break
		}
		errs = append(errs, s.drop(f))
	}
	return errors.Join(errs...)
}
