package filewatch

import (
	"maps"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// leadMask, dirMask and fileMask are the inotify events that are watched: those of a directory on the way to the
	// end of a path, of a directory at the end of a path, and of a file.
	leadMask = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE
	dirMask  = leadMask | fileMask
	fileMask = unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB
	// selfMask is a part of all masks that are watched. endMask has the events after which the file or directory
	// isn't there any more.
	selfMask = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	endMask  = selfMask | unix.IN_UNMOUNT | unix.IN_IGNORED
)

// maxLinks is how many links the kernel follows on one path (path_resolution(7)).
const maxLinks = 40

// Trail holds the files and directories, by path, that have to be watched to notice all changes at the ends of some
// paths.
type Trail map[string]*spot

// spot is one directory or file on a trail.
type spot struct {
	path string
	// names are the names in the directory through which a path continues. files are the names at which a path ends
	// and which aren't directories; they need not exist.
	names, files map[string]bool
	// counts decides which names are watched in a directory at the end of a path; nil for a directory that is only on
	// the way. deep says that the directories in this directory are on the trail as well.
	counts func(name string) bool
	deep   bool
	// file says that the spot is a file at the end of a path. If such a file is changed through another path (a hard
	// link, a bind mount), only the file has an event, not its directory.
	file bool
}

// Directory adds a directory, which is watched as long as it exists. It doesn't add the directories and links on its
// path.
func (t Trail) Directory(dir string) { t.at(dir).counts = everyName }

// Path adds the file or directory at an absolute path, with all links and directories that lead to it. In a
// directory, all names are watched.
func (t Trail) Path(path string) {
	if dir := t.follow(path); dir != "" {
		t.Directory(dir)
	}
}

// Tree adds the file or directory at an absolute path, with all links and directories that lead to it. In a
// directory, it adds the content and the directories below, including the targets of links to files. counts decides
// by their names which files are watched.
func (t Trail) Tree(path string, counts func(name string) bool) {
	if dir := t.follow(path); dir != "" {
		t.directory(dir, counts)
	}
}

func everyName(string) bool { return true }

func (t Trail) at(path string) *spot {
	s := t[path]
	if s == nil {
		s = &spot{path: path, names: map[string]bool{}, files: map[string]bool{}}
		t[path] = s
	}
	return s
}

// follow walks a path name by name, through links, as the kernel does, and adds the directories on the way, until the
// path ends or a name doesn't exist. It returns the directory at the end of the path; empty if there is none.
func (t Trail) follow(path string) (directory string) {
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
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		switch {
		case err == nil && info.IsDir():
			t.at(at).names[name] = true
			at = next
		case err == nil && info.Mode()&os.ModeSymlink != 0:
			t.at(at).names[name] = true
			target, err := os.Readlink(next)
			if links++; err != nil || links > maxLinks {
				return ""
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = append(names(target), rest...)
		case len(rest) > 0:
			t.at(at).names[name] = true
			return ""
		default:
			t.at(at).files[name] = true
			if err == nil {
				t.at(next).file = true
			}
			return ""
		}
	}
	return at
}

// names splits a path into names. It doesn't clean the path: after a link, ".." is the parent of the link's target,
// not the directory of the link.
func names(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// directory adds a directory, the files in it that counts selects, and the directories below. It doesn't enter links
// to directories: they may lead anywhere.
func (t Trail) directory(dir string, counts func(name string) bool) {
	s := t.at(dir)
	s.counts, s.deep = counts, true
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // the directory was removed, and the directory above it reports that
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			t.directory(path, counts)
		case counts(e.Name()):
			t.follow(path)
		}
	}
}

func (t Trail) equal(other Trail) bool {
	return maps.EqualFunc(t, other, func(a, b *spot) bool {
		return a.file == b.file && a.deep == b.deep && (a.counts == nil) == (b.counts == nil) &&
			maps.Equal(a.names, b.names) && maps.Equal(a.files, b.files)
	})
}

func (s *spot) mask() uint32 {
	switch {
	case s.file:
		return fileMask | selfMask
	case s.counts != nil || len(s.files) > 0:
		return dirMask | selfMask | unix.IN_ONLYDIR
	}
	return leadMask | selfMask | unix.IN_ONLYDIR
}

// event translates the kernel's event at this spot. It returns false if the event is irrelevant.
func (s *spot) event(mask uint32, name string) (Event, bool) {
	dir, isDir := s.path, mask&unix.IN_ISDIR != 0
	switch {
	case mask&endMask != 0:
		return Event{Dir: dir, Op: Rescan}, true
	case s.file:
		dir, name = filepath.Split(s.path)
	case name == "":
		return Event{}, false // the directory's own attributes
	case s.names[name], s.files[name] && isDir, s.deep && isDir:
		return Event{dir, name, Rescan}, mask&leadMask != 0
	case !s.files[name] && (s.counts == nil || !s.counts(name)):
		return Event{}, false
	}
	switch {
	case mask&(unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO) != 0:
		return Event{dir, name, Done}, true
	case mask&unix.IN_MOVED_FROM != 0:
		return Event{dir, name, MovedAway}, true
	case mask&unix.IN_DELETE != 0:
		return Event{dir, name, Deleted}, true
	case mask&unix.IN_ATTRIB != 0:
		return Event{dir, name, Touched}, true
	default:
		return Event{dir, name, Writing}, true
	}
}
