package filewatch

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// state has the stamps of the names at a spot that can't be watched; the spot itself has the name "".
type state map[string]stamp

// stamp changes when a file does.
type stamp struct {
	device, inode uint64
	mode          fs.FileMode
	// size, modified and changed are zero for a directory, because changes inside a directory don't count as changes of
	// the directory.
	size              int64
	modified, changed int64
}

// state reads the files that are watched at a spot, without missing ones. A file that changed within the granularity
// may change again without a change of its times. Its stamp gets a time that the file will never have, so that the next
// state differs.
func (s *spot) state(granularity time.Duration) state {
	found := state{}
	add := func(name string) {
		info, err := os.Lstat(filepath.Join(s.path, name))
		if err != nil {
			return
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return
		}
		now := stamp{device: stat.Dev, inode: stat.Ino, mode: info.Mode()}
		if !info.IsDir() {
			now.size, now.modified, now.changed = info.Size(), info.ModTime().UnixNano(), stat.Ctim.Nano()
			if time.Since(time.Unix(0, now.changed)).Abs() < granularity {
				now.changed = time.Now().UnixNano()
			}
		}
		found[name] = now
	}
	add("")
	for name := range s.names {
		add(name)
	}
	for name := range s.files {
		add(name)
	}
	if s.counts == nil {
		return found
	}
	entries, err := os.ReadDir(s.path)
	if err != nil {
		return found // the users of the directory can't read it, either
	}
	for _, e := range entries {
		if s.counts(e.Name()) || s.deep && e.IsDir() {
			add(e.Name())
		}
	}
	return found
}

// difference returns a name that differs between two states.
func (s state) difference(other state) (name string, differs bool) {
	for name, now := range s {
		if before, ok := other[name]; !ok || before != now {
			return name, true
		}
	}
	for name := range other {
		if _, ok := s[name]; !ok {
			return name, true
		}
	}
	return "", false
}
