package file

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/host/rootdir"
)

// trust checks whether the file or directory at a path may decide what runs as root here. It returns an error if
// every user of the machine may change it. Other non-root writers, such as the file's owner, may be intended, so they
// are recorded as an exposure.
func (s *Source) trust(path string, info fs.FileInfo) error {
	anybody, others := rootdir.Writers(info, s.invoker)
	s.expose(path, info.IsDir(), others)
	if !anybody {
		return nil
	}
	what := "it"
	if info.IsDir() {
		what = "the directory of manifests " + path
	}
	return fmt.Errorf("every user of this machine can write to %s (its mode is %04o), and whoever writes manifests "+
		"is root here: chmod o-w %s, after a look at what is there; "+
		"if its file system has no modes, mount it with umask=022", what, info.Mode().Perm(), path)
}

// Check returns why manifests at a path (staticPodPath) wouldn't be read: nothing is there, it can't be listed, or
// every user of the machine may change it. exposures name the users besides root and the invoker who may change it.
// The content of manifests isn't checked.
func Check(path string, by rootdir.Invoker) (exposures []string, err error) {
	s := &Source{path: filepath.Clean(path), invoker: by, log: logr.Discard(), exposed: map[string]string{}}
	w := &watch{Source: s}
	found, err := w.list()
	if err != nil {
		return nil, err
	}
	for _, origin := range found.origins {
		info, err := os.Stat(origin)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the file was just removed, or is a dangling link, which the source reports for its pods
		}
		if err == nil && w.single {
			err = readable(info)
		}
		if err == nil {
			err = s.trust(origin, info)
		}
		if err != nil {
			return nil, fmt.Errorf("manifest %s: %w", origin, err)
		}
	}
	return s.Exposures(), nil
}

// trustDir applies trust to the directory that contains the manifests.
func (w *watch) trustDir() error {
	dir := w.path
	if w.single {
		dir = filepath.Dir(w.path)
	}
	info, err := os.Stat(dir)
	if err != nil || w.single && info.Mode()&fs.ModeSticky != 0 {
		return nil // the read reports the error; in a directory like /tmp users can't replace others' files
	}
	return w.trust(dir, info)
}

// expose records the users who may change the file or directory at a path; empty for none.
func (s *Source) expose(path string, dir bool, others string) {
	s.exposing.Lock()
	defer s.exposing.Unlock()
	if others == "" {
		delete(s.exposed, path)
		return
	}
	end := "chown root:root " + path
	if dir {
		end = "chown -R root:root " + path
	}
	text := fmt.Sprintf("%s: %s can change it, and whoever writes manifests is root on this machine; %s, unless that "+
		"is meant", path, others, end)
	if s.exposed[path] == text {
		return
	}
	s.exposed[path] = text
	s.log.Info("Others than root decide which pods run", "origin", path, "message", text)
}

// unexpose drops the record of a path that doesn't exist any more.
func (s *Source) unexpose(path string) { s.expose(path, false, "") }

// Exposures returns, per manifest or for their whole directory, the users besides root who decide what runs.
func (s *Source) Exposures() []string {
	s.exposing.Lock()
	defer s.exposing.Unlock()
	for _, dir := range []string{filepath.Dir(s.path), s.path} {
		if text, ok := s.exposed[dir]; ok {
			return []string{text}
		}
	}
	return slices.Sorted(maps.Values(s.exposed))
}
