// Package atomicwriter keeps the files of ConfigMaps, Secrets and the like in a volume's directory, so
// that readers see all of an update or nothing of it
// (https://kubernetes.io/docs/concepts/configuration/configmap/#mounted-configmaps-are-updated-automatically),
// and makes the files that containers get beside their volumes: /etc/hosts and the termination
// message file.
//
// The layout is the kubelet's, which programs know that watch such directories:
//
//	app.conf -> ..data/app.conf                          what users of the volume open
//	tls      -> ..data/tls
//	..data   -> ..2026_01_02_15_04_05.1234567890         replaced by one rename
//	..2026_01_02_15_04_05.1234567890/app.conf            a generation: all files, complete
//	..2026_01_02_15_04_05.1234567890/tls/key.pem
//	cache                                                where a container mounts something else
package atomicwriter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/volume/teardown"
)

// File is one file of a volume.
type File struct {
	Data []byte
	// Mode is its permission bits.
	Mode uint32
	// UID is who owns it; nil for this process's user.
	UID *int64
}

// Options is what the files of a volume have in common.
type Options struct {
	// Group is the pod's fsGroup: all files and directories belong to it, and it may read them (API:
	// PodSecurityContext.fsGroup; nobody writes to such a volume). nil for this process's group.
	Group *int
	// MountPoints are where containers mount something else in the volume. There are directories, which updates
	// leave alone, since nobody who has the volume read-only could make them.
	MountPoints []string
	// Held reports whether a file or directory has to stay when its generation goes, since a container is to mount it;
	// nil for none.
	Held func(device, inode uint64) bool
}

// Names that no path begins with.
const (
	dataLink = "..data"
	tempLink = "..data_tmp"
	reserved = ".."
)

// Grace is for readers that were on their way through ..data when it was turned, since the kernel doesn't report
// when they are through: whoever has called Write, and it changed something, calls it again so much later, to have the
// old generation removed. The next update removes it, too.
const Grace = 10 * time.Second

// shortGrace is what the old generation has in any case, however fast updates follow each other.
const shortGrace = 10 * time.Millisecond

// Write makes the directory dir, which is there, hold these files and no others, by their paths,
// and reports whether that changed what readers see. What is on disk is compared first: bytes,
// modes and owners. If all of it is as it should be, nothing is written.
//
// A generation is never changed once ..data leads to it. An update makes the next one, takes away
// links of names that are going, turns ..data, and adds links of names that are new. The old
// generation stays for a while, see Grace, and what is held of it as long as that is. So at no time a link leads
// nowhere, and a name that is in both generations is always there. Killed at any moment, the next Write goes on from
// what is there.
//
// With an error, readers see either what was there before or, when the error is about what
// had to be cleaned up, what should be there. One Write at a time works on a directory. dir isn't followed
// if it is a link.
func Write(ctx context.Context, dir string, files map[string]File, o Options) (changed bool, err error) {
	f, err := os.OpenFile(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	return WriteTo(ctx, f, files, o)
}

// WriteTo is Write to a directory that is open for reading.
func WriteTo(ctx context.Context, dir *os.File, files map[string]File, o Options) (changed bool, err error) {
	want, err := treeOf(files)
	if err != nil {
		return false, err
	}
	w := &writer{dir: dir, options: o}
	if err := w.checkMountPoints(want); err != nil {
		return false, err
	}
	current := w.current()
	if current != "" && w.holds(current, want) {
		changed, err := w.relink(ctx, current, want.names())
		return changed, errors.Join(err, w.makeMountPoints())
	}
	// What is left of earlier updates takes no space from this one, and no time between its
	// steps. What can't be removed is reported in the end. What readers see stays, even if it couldn't be opened.
	seen, _ := readLink(w.dir, dataLink)
	w.pause(ctx)
	_ = w.tidy(ctx, seen)
	next, err := w.generation(ctx, want)
	if err != nil {
		return false, err
	}
	if err := w.unlinkOthers(want.names()); err != nil {
		return false, err
	}
	if _, err := w.point(ctx, dataLink, next); err != nil {
		return false, err
	}
	_, err = w.link(ctx, want.names())
	return true, errors.Join(err, w.makeMountPoints(), w.tidyAlways(ctx, next, seen))
}

// Recover brings to its end what a Write began that was killed, as far as that can be done
// without knowing the files, and reports whether dir holds a complete set of them: those of
// the last Write that came as far as showing them.
func Recover(ctx context.Context, dir *os.File, o Options) (whole bool, err error) {
	w := &writer{dir: dir, options: o}
	current := w.current()
	if current == "" {
		return false, nil
	}
	f, err := openDir(dir, current)
	if err != nil {
		return false, err
	}
	names, err := f.Readdirnames(-1)
	_ = f.Close() // it was only read
	if err != nil {
		return false, err
	}
	_, err = w.relink(ctx, current, names)
	return err == nil, err
}

// pause waits until the generation that readers see has been seen for the short grace period: who was on the way to
// the one before is through then. It waits less if ctx ends.
func (w *writer) pause(ctx context.Context) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(w.dir.Fd()), dataLink, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return
	}
	age := time.Since(time.Unix(st.Mtim.Unix()))
	if age < 0 || age >= shortGrace {
		return
	}
	timer := time.NewTimer(shortGrace - age)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// writer works on one directory.
type writer struct {
	dir     *os.File
	options Options
}

// current is the generation that readers see, or "" if there is none.
func (w *writer) current() string {
	name, err := readLink(w.dir, dataLink)
	if err != nil || !strings.HasPrefix(name, reserved) || strings.Contains(name, "/") || name == reserved {
		return ""
	}
	f, err := openDir(w.dir, name)
	if err != nil {
		return ""
	}
	_ = f.Close() // it was only looked for
	return name
}

// relink makes the links fit a generation that is right, and removes everything else.
func (w *writer) relink(ctx context.Context, current string, names []string) (changed bool, err error) {
	if err := w.unlinkOthers(names); err != nil {
		return false, err
	}
	changed, err = w.link(ctx, names)
	return changed, errors.Join(err, w.tidyAlways(ctx, current))
}

// link makes the links that users of the volume follow.
func (w *writer) link(ctx context.Context, names []string) (changed bool, err error) {
	var errs []error
	for _, name := range names {
		made, err := w.point(ctx, name, dataLink+"/"+name)
		changed = changed || made
		errs = append(errs, err)
	}
	return changed, errors.Join(errs...)
}

// point makes name a link to target, in one step, and reports whether it wasn't.
func (w *writer) point(ctx context.Context, name, target string) (changed bool, err error) {
	found, err := readLink(w.dir, name)
	switch {
	case err == nil && found == target:
		return false, nil
	case errors.Is(err, fs.ErrNotExist):
		err = unix.Symlinkat(target, int(w.dir.Fd()), name)
		return err == nil, w.failure("make", name, err)
	}
	if err := w.remove(ctx, tempLink); err != nil {
		return false, err
	}
	fd := int(w.dir.Fd())
	if err := unix.Symlinkat(target, fd, tempLink); err != nil {
		return false, w.failure("make", tempLink, err)
	}
	err = unix.Renameat(fd, tempLink, fd, name)
	if errors.Is(err, unix.EISDIR) {
		if name != dataLink {
			// A runtime makes directories in a volume when something else is to be mounted there.
			return false, fmt.Errorf(
				"%s: a directory called %q is in the place of a file of the volume: if no container has it as a "+
					"mount point, remove it", w.dir.Name(), name)
		}
		if err = w.remove(ctx, name); err == nil {
			err = unix.Renameat(fd, tempLink, fd, name)
		}
	}
	return err == nil, w.failure("replace", name, err)
}

// unlinkOthers removes links into ..data that aren't among names.
func (w *writer) unlinkOthers(names []string) error {
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	return w.each(func(name string) error {
		if wanted[name] || strings.HasPrefix(name, reserved) {
			return nil
		}
		if target, err := readLink(w.dir, name); err != nil || !strings.HasPrefix(target, dataLink+"/") {
			return nil // not ours: a mount point, or somebody's file
		}
		return w.failure("remove", name, unix.Unlinkat(int(w.dir.Fd()), name, 0))
	})
}

// tidy removes other generations, but what is held of them, and what else was left half done.
func (w *writer) tidy(ctx context.Context, keep ...string) error {
	return w.each(func(name string) error {
		if !strings.HasPrefix(name, reserved) || name == dataLink || slices.Contains(keep, name) {
			return nil
		}
		_, err := w.discard(ctx, w.dir, name)
		return w.failure("remove", name, err)
	})
}

// discard removes what is called name in dir, but what is held of it, and reports whether anything is.
func (w *writer) discard(ctx context.Context, dir *os.File, name string) (kept bool, err error) {
	if w.options.Held == nil {
		return false, removeFrom(ctx, dir, name)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil ||
		w.options.Held(st.Dev, st.Ino) {
		if errors.Is(err, unix.ENOENT) {
			err = nil
		}
		return err == nil, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if kept, err = w.discardFrom(ctx, dir, name); kept || err != nil {
			return kept, err
		}
	}
	return false, removeFrom(ctx, dir, name)
}

// discardFrom discards what is in a directory. One that something is mounted on has nothing that is held.
func (w *writer) discardFrom(ctx context.Context, dir *os.File, name string) (kept bool, err error) {
	f, err := safeopen.Enter(dir, name)
	if errors.Is(err, unix.EXDEV) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	for _, child := range names {
		stays, e := w.discard(ctx, f, child)
		kept, err = kept || stays, errors.Join(err, e)
	}
	return kept, err
}

// tidyAlways is tidy for the end: an old Secret goes even if the caller has no more time.
func (w *writer) tidyAlways(ctx context.Context, keep ...string) error {
	return w.tidy(context.WithoutCancel(ctx), keep...)
}

// each calls f with every name in the directory.
func (w *writer) each(f func(name string) error) error {
	if _, err := w.dir.Seek(0, 0); err != nil {
		return err
	}
	names, err := w.dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := f(name); err != nil {
			return err
		}
	}
	return nil
}

// remove removes what is called name, whatever it is.
func (w *writer) remove(ctx context.Context, name string) error {
	return w.failure("remove", name, removeFrom(ctx, w.dir, name))
}

func removeFrom(ctx context.Context, dir *os.File, name string) error {
	return teardown.Remove(ctx, fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), name)
}

// failure says what of the directory an error is about.
func (w *writer) failure(what, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %q in %s: %w", what, name, w.dir.Name(), err)
}
