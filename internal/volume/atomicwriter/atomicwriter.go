// Package atomicwriter writes the files of ConfigMaps, Secrets and the like to a volume's directory, so that
// readers see all of an update or nothing
// (https://kubernetes.io/docs/concepts/configuration/configmap/#mounted-configmaps-are-updated-automatically). It
// also makes the files that containers mount beside their volumes: /etc/hosts and the termination message file.
//
// The layout is the kubelet's, which programs that watch such directories rely on:
//
//	app.conf -> ..data/app.conf                          the path that containers open
//	tls      -> ..data/tls
//	..data   -> ..2026_01_02_15_04_05.1234567890         replaced by one rename
//	..2026_01_02_15_04_05.1234567890/app.conf            a generation: all files, complete
//	..2026_01_02_15_04_05.1234567890/tls/key.pem
//	cache                                                a mount point of another volume
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
	// Mode has the permission bits.
	Mode uint32
	// UID is the file's owner; nil means the user of this process.
	UID *int64
}

// Options apply to all files of a volume.
type Options struct {
	// Group is the pod's fsGroup, the group of all files and directories, which gets read permission (API:
	// PodSecurityContext.fsGroup). It gets no write permission for files, because the volumes are read-only for
	// containers. nil means the group of this process.
	Group *int
	// MountPoints are the paths in the volume at which containers mount other volumes. Write makes directories
	// there, because the runtime can't make them in a read-only volume. Updates leave these directories alone.
	MountPoints []string
	// Held reports whether a file or directory has to outlive its generation because a container mounts it as a
	// subPath. It is nil if no container mounts a subPath.
	Held func(device, inode uint64) bool
}

// Names in the volume's directory. No file's path may begin with the reserved prefix.
const (
	dataLink = "..data"
	tempLink = "..data_tmp"
	reserved = ".."
)

// Grace is how long an old generation is kept after ..data was switched, for readers that have resolved ..data to
// it: the kernel doesn't report when they have opened their files. A caller whose Write changed something has to
// call Write again after Grace, to remove the old generation, unless the next update comes first, which removes it
// as well.
const Grace = 10 * time.Second

// shortGrace is the shortest time that an old generation is kept, even if updates follow each other faster than
// Grace.
const shortGrace = 10 * time.Millisecond

// Write replaces the content of the existing directory dir by these files, which are keyed by path. It reports
// whether that changed the content for readers. It compares bytes, modes and owners with the files on disk first,
// and writes nothing if all are equal.
//
// A generation is never changed once ..data points to it. An update writes the next generation, removes the links to
// names that aren't in it, switches ..data, and adds links to new names. The old generation is kept for Grace, and
// those of its files for which Options.Held is true for longer. So no link ever dangles, and a name that is in both
// generations is always present. If Write is killed, the next one repairs the directory.
//
// After an error, readers see the previous files or, if only the cleanup failed, the new ones. Only one Write at a
// time may work on a directory. dir must not be a symbolic link.
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
	// Leftovers of earlier updates are removed first: they then take up no space next to the new generation, and their
	// removal doesn't delay the steps of the update. If the removal fails, the cleanup at the end tries again and
	// reports the error. The generation that readers see is kept, even if it couldn't be opened.
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

// Recover completes a Write that was killed, as far as that is possible without the files of the Write. It reports
// whether dir has a complete generation, which is the one of the last Write that switched ..data.
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

// pause waits until the current generation has been visible for shortGrace: by then, readers have opened their files
// in the previous generation. It returns early if ctx ends.
func (w *writer) pause(ctx context.Context) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(w.dir.Fd()), dataLink, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return
	}
	age := time.Since(time.Unix(st.Mtim.Unix()))
	if age < 0 || age >= shortGrace {
		return
	}
	select {
	case <-time.After(shortGrace - age):
	case <-ctx.Done():
	}
}

// writer updates one directory.
type writer struct {
	dir     *os.File
	options Options
}

// current returns the name of the generation that readers see, or "" if there is none.
func (w *writer) current() string {
	name, err := readLink(w.dir, dataLink)
	if err != nil || !strings.HasPrefix(name, reserved) || strings.Contains(name, "/") || name == reserved {
		return ""
	}
	f, err := openDir(w.dir, name)
	if err != nil {
		return ""
	}
	_ = f.Close() // it was only opened to check it
	return name
}

// relink makes the links match the names in the current generation, and removes other links, other generations, and
// leftovers of interrupted updates.
func (w *writer) relink(ctx context.Context, current string, names []string) (changed bool, err error) {
	if err := w.unlinkOthers(names); err != nil {
		return false, err
	}
	changed, err = w.link(ctx, names)
	return changed, errors.Join(err, w.tidyAlways(ctx, current))
}

// link makes the links to these names in ..data, which users of the volume open.
func (w *writer) link(ctx context.Context, names []string) (changed bool, err error) {
	var errs []error
	for _, name := range names {
		made, err := w.point(ctx, name, dataLink+"/"+name)
		changed = changed || made
		errs = append(errs, err)
	}
	return changed, errors.Join(errs...)
}

// point atomically makes the symbolic link name with this target, and reports whether the link was missing or
// different before.
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
			// A runtime creates directories in a volume as mount points.
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
			return nil // not ours: a mount point, or a foreign file
		}
		return w.failure("remove", name, unix.Unlinkat(int(w.dir.Fd()), name, 0))
	})
}

// tidy removes leftovers of interrupted updates and all generations but those to keep. Files for which Options.Held
// is true stay.
func (w *writer) tidy(ctx context.Context, keep ...string) error {
	return w.each(func(name string) error {
		if !strings.HasPrefix(name, reserved) || name == dataLink || slices.Contains(keep, name) {
			return nil
		}
		_, err := w.discard(ctx, w.dir, name)
		return w.failure("remove", name, err)
	})
}

// discard removes an entry of dir, except files for which Options.Held is true, and reports whether such files
// remain.
func (w *writer) discard(ctx context.Context, dir *os.File, name string) (remains bool, err error) {
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
		if remains, err = w.discardFrom(ctx, dir, name); remains || err != nil {
			return remains, err
		}
	}
	return false, removeFrom(ctx, dir, name)
}

// discardFrom discards the content of a directory. A mount point isn't entered: files on another mount are never
// held.
func (w *writer) discardFrom(ctx context.Context, dir *os.File, name string) (remains bool, err error) {
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
		remains, err = remains || stays, errors.Join(err, e)
	}
	return remains, err
}

// tidyAlways is tidy at the end of an update: it removes the old files, which may be a Secret's, even if ctx has
// ended.
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

// remove removes the entry with this name, of any type.
func (w *writer) remove(ctx context.Context, name string) error {
	return w.failure("remove", name, removeFrom(ctx, w.dir, name))
}

func removeFrom(ctx context.Context, dir *os.File, name string) error {
	return teardown.Remove(ctx, fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), name)
}

// failure adds the operation (what), the name and the directory to an error.
func (w *writer) failure(what, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %q in %s: %w", what, name, w.dir.Name(), err)
}
