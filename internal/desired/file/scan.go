package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ignored reports whether the directory's file with this name isn't a manifest: hidden files, temporary and backup
// files of editors, and archives such as images are ignored.
func ignored(name string) bool {
	return name == "" || name[0] == '.' ||
		archive.MatchString(name) ||
		strings.HasSuffix(name, "~") ||
		strings.HasSuffix(name, ".swp") ||
		name[0] == '#' && name[len(name)-1] == '#' ||
		name == "4913" // vim creates this file to test whether the directory is writable
}

// archive matches names of tar files, with any compression.
var archive = regexp.MustCompile(`(?i)\.(tar|tgz|txz|tzst|tar\.[a-z0-9]{1,4})$`)

// scan checks all files, and makes sure that they are watched.
func (w *watch) scan(now time.Time) {
	w.armed = w.watcher.Arm() == nil
	found, err := w.list()
	if errors.Is(err, fs.ErrNotExist) {
		w.absentPath(now)
		return
	}
	w.pathMissing = time.Time{}
	if err != nil {
		w.unreachable(err.Error(), now)
		return
	}
	elsewhere := w.keeper.Place() != "" && found.place != w.keeper.Place()
	if elsewhere {
		w.setUnreachable()
	}
	there := make(map[string]struct{}, len(found.origins))
	for _, origin := range found.origins {
		there[origin] = struct{}{}
		w.check(origin, now)
	}
	if elsewhere && len(w.keeper.Names()) > 0 && !slices.ContainsFunc(found.origins, w.isGood) {
		w.unreachable(w.elsewhere(), now)
		return
	}
	w.reached = true
	w.keeper.SetPlace(found.place)
	w.note(notePath, "", now)
	for _, origin := range w.keeper.Names() {
		if _, ok := there[origin]; !ok {
			w.absent(origin, w.file(origin), now)
		}
	}
}

// elsewhere describes the file, or the other directory, that has replaced the directory of the manifests.
func (w *watch) elsewhere() string {
	switch {
	case w.single && !w.ownFile():
		return "a file without a usable manifest is in place of the directory of manifests"
	case w.single:
		return "its directory is another one than before, without a usable manifest (was a disk unmounted?)"
	}
	return "the directory of manifests is another one than before, without a usable manifest (was a disk unmounted?)"
}

// ownFile reports whether all manifests were read from the path itself, which is a file.
func (w *watch) ownFile() bool {
	return !slices.ContainsFunc(w.keeper.Names(), func(origin string) bool { return origin != w.path })
}

// isGood reports whether an origin was read since the manifests became unreachable, and its text is valid. A good
// origin shows that a user has put manifests in the directory: an empty mount point contains none.
func (w *watch) isGood(origin string) bool {
	f := w.files[origin]
	return f != nil && f.read && f.failure == "" && w.keeper.Good(origin)
}

// unreachable keeps the pods and marks them as stale, with the reason why. A missing manifest counts as deleted only in
// the directory from which it was read.
func (w *watch) unreachable(why string, now time.Time) {
	w.setUnreachable()
	for _, origin := range w.keeper.Names() {
		if w.keeper.Unreadable(origin, why) {
			w.changed = true
		}
	}
	if len(w.keeper.Names()) > 0 {
		why += "; its pods run on as they are until it is back, or until `deckhand down` stops them"
	}
	w.note(notePath, why, now)
	w.rescan(now.Add(min(w.every, reachEvery)))
}

// setUnreachable drops the state of all files. So each file is read again, even if it comes back unchanged, and its
// pods become up to date again.
func (w *watch) setUnreachable() {
	if w.reached {
		w.reached = false
		clear(w.files)
	}
}

// listing holds the manifests at the path, sorted, and the identity of their directory.
type listing struct {
	origins []string
	place   string
}

// list returns the origins at the path: the files of a directory, or the path itself. The error is fs.ErrNotExist
// only if nothing is at the path.
func (w *watch) list() (listing, error) {
	w.single = true
	info, err := os.Stat(w.path)
	if err != nil {
		// A file that was created after Stat isn't a symbolic link: the event of its creation triggers another
		// listing.
		link, linkErr := os.Lstat(w.path)
		if linkErr == nil && link.Mode()&fs.ModeSymlink != 0 && errors.Is(err, fs.ErrNotExist) {
			return listing{}, fmt.Errorf("%s is a symbolic link to something that doesn't exist", w.path)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return listing{}, fmt.Errorf("manifests can't be read: %w", err)
		}
		return listing{}, err
	}
	if !info.IsDir() {
		return listing{[]string{w.path}, placeOf(filepath.Dir(w.path))}, w.trustDir()
	}
	w.single = false
	if err := w.trustDir(); err != nil {
		return listing{}, err
	}
	entries, place, err := readDir(w.path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return listing{}, err
		}
		return listing{}, fmt.Errorf("the directory of manifests can't be read: %w", err)
	}
	origins := make([]string, 0, len(entries))
	for _, e := range entries {
		if !ignored(e.Name()) {
			origins = append(origins, filepath.Join(w.path, e.Name()))
		}
	}
	return listing{origins, place}, nil
}

// readDir returns the entries of a directory, and the identity of the directory that was read: another directory may be
// mounted at the path at any time.
func readDir(path string) ([]fs.DirEntry, string, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	place, err := identity(int(dir.Fd()), "", unix.AT_EMPTY_PATH)
	return entries, place, err
}

// placeOf is the identity of the directory at path now; empty if it isn't available.
func placeOf(path string) string {
	place, err := identity(unix.AT_FDCWD, path, 0)
	if err != nil {
		return ""
	}
	return place
}

// identity returns a text that distinguishes a directory from any other directory at the same path, such as the mount
// point under a disk that was unmounted. Unlike device numbers, it is the same after a reboot. If the file system has
// birth times, they distinguish directories that got the same inode.
func identity(dirfd int, path string, flags int) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(dirfd, path, flags, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return "", fmt.Errorf("statx: %w", err)
	}
	if st.Mask&unix.STATX_BTIME == 0 {
		return strconv.FormatUint(st.Ino, 10), nil
	}
	return fmt.Sprintf("%d@%d.%09d", st.Ino, st.Btime.Sec, st.Btime.Nsec), nil
}

// inPlace reports whether the directory is the one from which the manifests were read. Only in that directory does a
// missing file mean that it was deleted.
func (w *watch) inPlace() bool {
	dir := w.path
	if w.single {
		dir = filepath.Dir(w.path)
	}
	return w.keeper.Place() == "" || placeOf(dir) == w.keeper.Place()
}

// absentPath handles a missing path. If there are pods, it waits for pathGoneAfter, because the directory may just be
// replaced by another one. If the path was a file, the file then counts as deleted, unless its directory is gone or
// replaced, too.
func (w *watch) absentPath(now time.Time) {
	if w.pathMissing.IsZero() {
		w.pathMissing = now
	}
	known := w.keeper.Names()
	if over := w.pathMissing.Add(pathGoneAfter); len(known) > 0 && now.Before(over) {
		w.rescan(over)
		return
	}
	if len(known) > 0 && w.keeper.Place() != "" && !(w.ownFile() && w.inPlace()) {
		what := "the directory of manifests"
		if w.ownFile() {
			what = "its directory"
		}
		w.unreachable(what+" doesn't exist any more, or is another one (was a disk unmounted?)", now)
		return
	}
	for _, origin := range known {
		w.forget(origin)
	}
	w.note(notePath, "it doesn't exist; pods are read from it as soon as it does", now)
}

// absent handles a missing origin. It counts as deleted only if it is still missing after a short time, because editors
// may move a file away and back.
func (w *watch) absent(origin string, f *seenFile, now time.Time) {
	if !w.keeper.Has(origin) {
		delete(w.files, origin)
		return
	}
	if f.missing.IsZero() {
		f.missing = now
	}
	if over := f.missing.Add(f.goneAfter(origin)); now.Before(over) {
		w.lookAt(origin, over)
		return
	}
	if !w.inPlace() {
		w.rescan(now)
		return
	}
	w.forget(origin)
}

// goneAfter is how long an origin has to be missing to count as deleted. It is longer for the last file of a
// directory, because the directory itself may be in the process of being removed.
func (f *seenFile) goneAfter(origin string) time.Duration {
	if f.deleted {
		if left, err := os.ReadDir(filepath.Dir(origin)); err == nil && len(left) == 0 {
			return pathGoneAfter
		}
	}
	return goneAfter
}

func (w *watch) forget(origin string) {
	w.log.V(2).Info("Manifest removed", "origin", origin)
	w.keeper.Forget(origin)
	w.unexpose(origin)
	delete(w.files, origin)
	delete(w.due, origin)
	w.changed = true
}
