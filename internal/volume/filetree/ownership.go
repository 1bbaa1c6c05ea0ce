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

// Options is what a volume's files are to be.
type Options struct {
	// GID is the group that they are to belong to (API: PodSecurityContext.fsGroup).
	GID int
	// Policy says whether to look at every file, or at none if the volume's top directory is as it is to
	// be (API: PodSecurityContext.fsGroupChangePolicy). Empty is Always.
	Policy v1.PodFSGroupChangePolicy
	// ReadOnly says that the group may not write: the pod gets the volume read-only.
	ReadOnly bool
	// Progress, unless it is nil, is called with how many files were looked at so far: each 1,000 files, and
	// each second in which there were fewer.
	Progress func(done int)
}

const (
	permBits = 0o7777
	// progressFiles and progressTime are when Progress is called next.
	progressFiles = 1000
	progressTime  = time.Second
	// tries is how often a tree is gone through whose directories are moved meanwhile.
	tries = 3
)

// Apply makes the files of the volume at dir, and the top directory itself, belong to the group, and lets
// that read them and, unless they are read-only, write them, and search directories. In directories new files
// are to get the group too: they get the set-group-ID bit. Files that are so already aren't touched. The
// top directory comes last, and fits no other group meanwhile, so that a change that was cut short is done again
// whatever the policy, for whatever group.
//
// dir is trusted and followed if it is a link; what is in it isn't: it may hold anything, and others may use and
// change it meanwhile. No link is followed (its own group is changed), nothing that is mounted in the volume
// is touched, and of devices nothing is changed: who may open them isn't the volume's matter.
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
			return errors.New("its directories are moved while it is looked through: try again when whoever does " +
				"that has stopped")
		default:
			return nil
		}
	}
}

// change is an Apply under way.
type change struct {
	Options
	done       int
	reportedAt time.Time
	// reportedDone is what was reported last.
	reportedDone int
}

// tree goes through the whole tree once. It reports whether some of it was missed.
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
		// It may fit another group. That one isn't to find it so when this ends half-way.
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
	// It may be another file by now.
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st); err != nil {
		return &os.PathError{Op: "stat", Path: e.Name, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFBLK, unix.S_IFCHR, unix.S_IFDIR: // a directory that took the name just now isn't gone through
		return nil
	}
	return c.pinned(fd, e.Name, &st)
}

// fits reports whether a file is as it is to be.
func (c *change) fits(st *unix.Statx_t) bool {
	return c.grouped(st) && (st.Mode&unix.S_IFMT == unix.S_IFLNK || uint32(st.Mode)&permBits == c.mode(st))
}

func (c *change) grouped(st *unix.Statx_t) bool { return int64(st.Gid) == int64(c.GID) }

// mode is what a file's permissions are to be.
func (c *change) mode(st *unix.Statx_t) uint32 {
	mode := uint32(st.Mode) & permBits
	directory := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if !directory && !c.grouped(st) {
		// That bit was about the group that the file had.
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

// pinned changes a file, or a link, that is open with O_PATH.
func (c *change) pinned(fd int, name string, st *unix.Statx_t) error {
	mode := c.mode(st)
	regrouped := false
	if !c.grouped(st) {
		if err := unix.Fchownat(fd, "", -1, c.GID, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return explain("change the group of", name, err)
		}
		// The kernel takes the set-user-ID bit off with the group.
		regrouped = mode&(unix.S_ISUID|unix.S_ISGID) != 0
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK || !regrouped && uint32(st.Mode)&permBits == mode {
		return nil
	}
	err := unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		// Linux before 6.6. What the descriptor stands for is no link, so none is followed.
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

// report calls Progress when it is time.
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
