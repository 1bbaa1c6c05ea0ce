package filewatch

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/loglayout/logfolder"
)

// maxLinks is how many links the kernel follows on one path (path_resolution(7)).
const maxLinks = 40

// trail is what has to be watched: for each folder, which names in it lead to the paths that
// a Watcher has; nil stands for all names. The files at the ends are in it, too, without
// names: what is done to them by another path (a hard link, a bind mount) shows only there.
type trail map[string]map[string]bool

// concerns reports whether an event is about something on the trail.
func (t trail) concerns(e fsnotify.Event) bool {
	if _, on := t[e.Name]; on {
		return true
	}
	names, on := t[filepath.Dir(e.Name)]
	return on && (names == nil || names[filepath.Base(e.Name)])
}

// lead adds all that leads to the file or folder at an absolute path, and the files in
// the folder that count.
func (t trail) lead(path string, counts func(name string) bool) {
	if dir := t.follow(path); dir != "" {
		t.folder(dir, counts)
	}
}

// follow goes a path name by name, and through links, as the kernel does, to where
// it ends or there is nothing (yet). If it ends at a folder, that is returned.
func (t trail) follow(path string) (folder string) {
	at, rest, links := "/", names(path), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		t.add(at, name)
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		switch {
		case err != nil:
			return ""
		case info.IsDir():
			at = next
		case info.Mode()&os.ModeSymlink == 0:
			t.add(next)
			return ""
		default:
			target, err := os.Readlink(next)
			if links++; err != nil || links > maxLinks {
				return ""
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = append(names(target), rest...)
		}
	}
	return at
}

// names are the names in a path. It isn't cleaned: behind a link, ".." isn't the
// folder that the link is in.
func names(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

func (t trail) add(path string, names ...string) {
	known, on := t[path]
	if !on {
		known = map[string]bool{}
		t[path] = known
	}
	for _, name := range names {
		if known != nil {
			known[name] = true
		}
	}
}

// folder adds a folder that was followed, and the files in it that count. Links to other
// folders aren't gone into: they may lead anywhere.
func (t trail) folder(dir string, counts func(name string) bool) {
	t[dir] = nil
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // it was removed, and the folder above tells of that
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			t.folder(path, counts)
		case counts(e.Name()):
			t.follow(path)
		}
	}
}

// unfinished returns a file on the trail that somebody has open for writing; "" if
// there is none.
func (t trail) unfinished() string {
	for path, names := range t {
		if names != nil && len(names) == 0 && isWritten(path) {
			return path
		}
	}
	return ""
}

// isWritten reports whether somebody has the file open for writing, as far as that
// can be told.
func isWritten(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	written, err := logfolder.Writing(f)
	return err == nil && written
}
