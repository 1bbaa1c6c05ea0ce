// Package checkpoint keeps small records of pods on disk: the state that has to outlive the agent and can't be read
// from running containers. Each record is a file, which is always replaced as a whole:
//
//	DIR/UID/KIND.json {"version":1,"sum":"sha256:...","data":...}
//
// It also has the file format of all state that outlives a restart: a file names the version of its format and the
// checksum of its content. A file of a newer version is left alone, a damaged file is renamed, and a file of an
// older version is read. A change that raises a version must keep reading the earlier versions, and adds a line to
// UPGRADING.md.
package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// version is the version of the format of a pod's records. Files of newer versions aren't read.
const version = 1

// Store keeps the records of all pods below one directory. It is safe for concurrent use, except that a record may
// only have one caller at a time.
type Store struct {
	dir string
	// turns is a semaphore of atOnce slots for callers that access the disk, durable one for those that also wait for
	// it: while a disk doesn't answer, they don't hold up the others.
	turns, durable chan struct{}
	// writing is called before a durable write, and the function that it returns afterwards.
	writing func(path string) (end func())

	mu sync.Mutex
	// refused maps the path of a record that was written by a newer version to the error of reading it.
	refused map[string]error
}

// New returns the store of the records in dir. Save creates dir if it is missing (mode 0700). A directory may have
// only one Store at a time.
func New(dir string) *Store {
	return &Store{dir: dir, turns: make(chan struct{}, atOnce), durable: make(chan struct{}, atOnce),
		writing: func(string) func() { return func() {} }, refused: map[string]error{}}
}

// Observe makes the store call a function with the path of each record before a durable write, and the function's
// result afterwards. It has to be called before the store is used.
func (s *Store) Observe(writing func(path string) (end func())) { s.writing = writing }

// atOnce is the number of records that are read, written or removed at a time. An access to the disk blocks a thread,
// and Go never ends threads; thousands of pods may need an access at the same time. More parallel accesses don't make a
// disk faster.
const atOnce = 16

// turn waits for a slot of a semaphore, and returns the function that releases the slot.
func turn(slots chan struct{}) (done func()) {
	slots <- struct{}{}
	return func() { <-slots }
}

// Load reads the pod's newest saved record of this kind into v, a pointer for encoding/json. found is false if
// there is no record or it can't be used; in the latter case there is also an error, and v may be partly filled. A
// corrupt record has been renamed to end in ".corrupt" (replacing an earlier one). A record of a newer version
// (ErrNewer) is left alone, and Save refuses to replace it.
func (s *Store) Load(uid types.UID, kind string, v any) (found bool, err error) {
	path, err := s.path(uid, kind)
	if err != nil {
		return false, err
	}
	defer turn(s.turns)()
	Sweep(path)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("the pod's record can't be read: %w", err)
	}
	switch err := Open(text, version, v); {
	case errors.Is(err, ErrNewer):
		return false, s.refuse(path, err)
	case err != nil:
		return false, setAside(path, err)
	}
	return true, nil
}

func (s *Store) refuse(path string, why error) error {
	err := fmt.Errorf("the pod's record %s isn't used, and no new one is kept: %w; run that version, or delete the file", path, why)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[path] = err
	return err
}

// refusal returns the reason why the record at path mustn't be replaced, or nil. It checks whether the file still
// exists, because an administrator may have deleted it.
func (s *Store) refusal(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.refused[path]
	if err == nil {
		return nil
	}
	if _, statErr := os.Lstat(path); errors.Is(statErr, fs.ErrNotExist) {
		delete(s.refused, path)
		return nil
	}
	return err
}

func setAside(path string, why error) error {
	aside, err := SetAside(path)
	if err != nil {
		return fmt.Errorf("the pod's record %s is corrupt (%w) and can't be renamed: %w", path, why, err)
	}
	return fmt.Errorf("the pod's record %s is corrupt and isn't used: %w; it was renamed to %s", path, why, aside)
}

// Save replaces the pod's record of this kind with v. If durable is true, the record survives a loss of power once Save
// has returned. Otherwise it survives only the agent's death, and after a loss of power it may be old, corrupt or
// missing. After an error the old record counts, unless the new one is in place but couldn't be made durable.
func (s *Store) Save(uid types.UID, kind string, v any, durable bool) error {
	path, err := s.path(uid, kind)
	if err != nil {
		return err
	}
	if durable {
		defer turn(s.durable)()
		defer s.writing(path)() // not while it waits for its turn: then others write
	} else {
		defer turn(s.turns)()
	}
	if err := s.refusal(path); err != nil {
		return err
	}
	text, err := Seal(version, v)
	if err != nil {
		return fmt.Errorf("the pod's record %s can't be encoded: %w", path, err)
	}
	if err := s.replace(path, text, durable); err != nil {
		return fmt.Errorf("the pod's record can't be kept on disk: %w", err)
	}
	return nil
}

func (s *Store) replace(path string, text []byte, durable bool) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if !durable {
		return atomicfile.WriteVolatile(path, text, 0o600)
	}
	if err := atomicfile.Write(path, text, 0o600); err != nil {
		return err
	}
	return atomicfile.SyncDir(s.dir) // the pod's directory may be new
}

// Remove deletes all records of the pod. A pod without records isn't an error. If Remove was interrupted, UIDs
// still lists the pod, and Remove may be repeated.
func (s *Store) Remove(uid types.UID) error {
	dir, err := s.podDir(uid)
	if err != nil {
		return err
	}
	defer turn(s.turns)()
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the pod's records: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for path := range s.refused {
		if filepath.Dir(path) == dir {
			delete(s.refused, path)
		}
	}
	return nil
}

// UIDs lists the pods that have a directory in the store, sorted. The directory may be empty if a Save or Remove
// was interrupted.
func (s *Store) UIDs() ([]types.UID, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the pods' records: %w", err)
	}
	uids := make([]types.UID, 0, len(entries))
	for _, e := range entries {
		if e.IsDir() && safeopen.Check("pod UID", e.Name()) == nil {
			uids = append(uids, types.UID(e.Name()))
		}
	}
	return uids, nil
}

func (s *Store) podDir(uid types.UID) (string, error) {
	if err := safeopen.Check("pod UID", string(uid)); err != nil {
		return "", err
	}
	return filepath.Join(s.dir, string(uid)), nil
}

func (s *Store) path(uid types.UID, kind string) (string, error) {
	dir, err := s.podDir(uid)
	if err != nil {
		return "", err
	}
	if err := safeopen.Check("kind of record", kind); err != nil {
		return "", err
	}
	return filepath.Join(dir, kind+".json"), nil
}
