package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// open creates the directories and lists their files. The last agent's files become those of the previous agent.
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
	if err := s.turnOver(); err != nil {
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
	return s.trim(0, file{})
}

// turnOver moves the last agent's files to the previous agent's directory, and removes files that weren't written
// completely.
func (s *store) turnOver() error {
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

// takeStock adds an existing file to the index. It removes a file that wasn't written completely instead.
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
		s.note(file{p, types.UID(uid)}, entry{size: info.Size(), written: info.ModTime()})
	}
	return nil
}

// mark creates the marker file of a running agent, and reports whether it existed before.
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
