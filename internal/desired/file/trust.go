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

// trust reports whether what is at a path may say what runs as root here: an error if every user of the machine may
// change it. That others than root may, be it their own file, is what somebody may want, and is an exposure.
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

// Check says why manifests at a path (staticPodPath) wouldn't be read: nothing is there, it can't be listed, or every
// user of the machine may change it. exposures say who beside root and the invoker may. What the manifests say isn't
// checked.
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
			continue // gone this moment, or a link to nothing, which is the matter of the pods in it
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

// trustDir is trust in the directory whose entries decide what is read.
func (w *watch) trustDir() error {
	dir := w.path
	if w.single {
		dir = filepath.Dir(w.path)
	}
	info, err := os.Stat(dir)
	if err != nil || w.single && info.Mode()&fs.ModeSticky != 0 {
		return nil // who reads it says so; in a directory such as /tmp nobody replaces another's file
	}
	return w.trust(dir, info)
}

// expose notes who may change what is at a path; nobody if that is empty.
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

// unexpose forgets what isn't there any more.
func (s *Source) unexpose(path string) { s.expose(path, false, "") }

// Exposures says for each manifest, or for their directory as a whole, who beside root decides what runs.
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
