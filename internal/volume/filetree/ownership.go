package filetree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// Options are the wanted ownership and permissions of a volume's files.
type Options struct {
	// GID is the group of the files (API: PodSecurityContext.fsGroup).
	GID int
	// Policy says whether to check every file always, or only if the group or the permissions of the top directory
	// are wrong (API: PodSecurityContext.fsGroupChangePolicy). Empty means Always.
	Policy v1.PodFSGroupChangePolicy
	// ReadOnly leaves out the group's write permission: the pod mounts the volume read-only.
	ReadOnly bool
	// Progress, unless it is nil, is called with the number of files checked so far: after every 1,000 files, or
	// after a second if fewer were checked in it.
	Progress func(done int)
}

const (
	permBits = 0o7777
	// progressFiles and progressTime are the intervals between calls of Progress, whichever ends first.
	progressFiles = 1000
	progressTime  = time.Second
	// tries is how often a tree is walked at most: it is walked again if its directories were moved during the walk.
	tries = 3
)

// Apply changes the group of all files in the volume at dir, including the top directory, and gives the group
// permission to read them, to write them unless ReadOnly is set, and to search directories. Directories get the
// set-group-ID bit, so that new files get the group too. Files that are already right aren't changed. The top
// directory is changed last. Until then, a top directory of another group is without the set-group-ID bit, so it is
// right for neither group: after an interruption, the next Apply checks all files again, whatever its policy and
// group are.
//
// dir is trusted, and followed if it is a symbolic link. Its content isn't trusted: pods may use and change it
// meanwhile. No symbolic link is followed (the link's own group is changed), no mount in the volume is entered, and
// devices aren't changed: access to them isn't controlled by the volume.
func Apply(ctx context.Context, dir string, o Options) error {
	top, err := os.OpenFile(dir, unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("give the volume at %s to group %d: %w", dir, o.GID, err)
	}
	defer top.Close()
	if err := apply(ctx, top, o); err != nil {
		return fmt.Errorf("give the volume at %s to group %d: %w", dir, o.GID, err)
	}
	return nil
}

func apply(ctx context.Context, top *os.File, o Options) error {
	c := &change{Options: o, reportedAt: time.Now()}
	for try := 1; ; try++ {
		again, err := c.tree(ctx, top)
		switch {
		case err != nil:
			return err
		case again && try < tries:
		case again:
			return errors.New("its directories are being moved: try again when the program that moves them has stopped")
		default:
			return nil
		}
	}
}

// change is a running Apply.
type change struct {
	Options
	done       int
	reportedAt time.Time
	// reportedDone is the number of files in the last report.
	reportedDone int
}

// tree walks the whole tree once. It reports whether the walk missed parts of it, so that it has to be walked again.
func (c *change) tree(ctx context.Context, top *os.File) (again bool, err error) {
	w, err := New(top)
	if err != nil {
		return false, err
	}
	defer w.Close()
	root := *w.Top()
	if c.Policy == v1.FSGroupChangeOnRootMismatch && c.fits(&root) {
		return false, nil
	}
	if !c.grouped(&root) && root.Mode&unix.S_ISGID != 0 {
		// The directory may be right for its previous group. Without the set-group-ID bit it isn't: if this Apply is
		// interrupted, an Apply for that group doesn't skip the tree.
		root.Mode &^= unix.S_ISGID
		if err := unix.Fchmod(int(top.Fd()), uint32(root.Mode)&permBits); err != nil {
			return false, explain("change the permissions of", top.Name(), err)
		}
	}
	for {
		if err := ctx.Err(); err != nil {
			return false, context.Cause(ctx)
		}
		e, err := w.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, err
		}
		if err := c.entry(e); err != nil {
			return false, err
		}
		c.report()
	}
	if w.TooDeep() {
		return false, ErrTooDeep
	}
	if w.Lost() {
		return true, nil
	}
	return false, c.directory(int(top.Fd()), top.Name(), &root)
}

// entry changes one file or directory.
func (c *change) entry(e Entry) error {
	kind := e.Stat.Mode & unix.S_IFMT
	if c.fits(e.Stat) || kind == unix.S_IFBLK || kind == unix.S_IFCHR {
		return nil
	}
	if e.Dir >= 0 {
		return c.directory(e.Dir, e.Name, e.Stat)
	}
	fd, err := pin(e.Parent, e.Name)
	if skips(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd) // it was never read
	// The name may refer to another file by now.
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st); err != nil {
		return &os.PathError{Op: "stat", Path: e.Name, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFBLK, unix.S_IFCHR, unix.S_IFDIR: // a directory that has just replaced the entry isn't walked
		return nil
	}
	return c.pinned(fd, e.Name, &st)
}

// fits reports whether a file is already as wanted.
func (c *change) fits(st *unix.Statx_t) bool {
	return c.grouped(st) && (st.Mode&unix.S_IFMT == unix.S_IFLNK || uint32(st.Mode)&permBits == c.mode(st))
}

func (c *change) grouped(st *unix.Statx_t) bool { return int64(st.Gid) == int64(c.GID) }

// mode returns the wanted permissions of a file.
func (c *change) mode(st *unix.Statx_t) uint32 {
	mode := uint32(st.Mode) & permBits
	directory := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if !directory && !c.grouped(st) {
		// The set-group-ID bit applied to the previous group.
		mode &^= unix.S_ISGID
	}
	if c.ReadOnly {
		mode |= 0o440
	} else {
		mode |= 0o660
	}
	if directory {
		mode |= unix.S_ISGID | 0o110
	}
	return mode
}

// directory changes an open directory.
func (c *change) directory(fd int, name string, st *unix.Statx_t) error {
	mode := c.mode(st)
	if !c.grouped(st) {
		if err := unix.Fchown(fd, -1, c.GID); err != nil {
			return explain("change the group of", name, err)
		}
	}
	if uint32(st.Mode)&permBits != mode {
		if err := unix.Fchmod(fd, mode); err != nil {
			return explain("change the permissions of", name, err)
		}
	}
	return nil
}

// pinned changes a file or a symbolic link that is open with O_PATH.
func (c *change) pinned(fd int, name string, st *unix.Statx_t) error {
	mode := c.mode(st)
	regrouped := false
	if !c.grouped(st) {
		if err := unix.Fchownat(fd, "", -1, c.GID, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return explain("change the group of", name, err)
		}
		// The kernel clears the set-user-ID and set-group-ID bits when the group changes.
		regrouped = mode&(unix.S_ISUID|unix.S_ISGID) != 0
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK || !regrouped && uint32(st.Mode)&permBits == mode {
		return nil
	}
	err := unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		// Linux before 6.6. The descriptor isn't a symbolic link, so chmod follows none.
		err = unix.Chmod(descriptorPath(fd), mode)
	}
	if err != nil {
		return explain("change the permissions of", name, err)
	}
	return nil
}

func explain(what, name string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.EPERM):
		hint = " (it may be immutable or append-only, see lsattr, or the file system lets nobody change that)"
	case errors.Is(err, unix.EROFS):
		hint = " (mount the volume writable, or leave out fsGroup)"
	}
	return fmt.Errorf("%s %q: %w%s", what, name, err, hint)
}

// report calls Progress when it is due.
func (c *change) report() {
	c.done++
	if c.Progress == nil {
		return
	}
	now := time.Now()
	if c.done-c.reportedDone >= progressFiles || now.Sub(c.reportedAt) >= progressTime {
		c.reportedAt, c.reportedDone = now, c.done
		c.Progress(c.done)
	}
}
