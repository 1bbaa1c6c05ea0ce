package safeopen

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxLinks is how many links the kernel follows in one path (path_resolution(7)).
	maxLinks = 40
	// maxDepth is the largest number of directories that a walk keeps open, so that links that lead deeper and deeper
	// don't use up the process's descriptors.
	maxDepth = 512
	// maxClimb is how many parent directories verify visits at most.
	maxClimb = 1 << 20
)

// walker walks a path through the directories below root. It keeps all of these directories open: ".." leads back to
// the directory before, even if a directory was moved meanwhile.
type walker struct {
	root    int
	rules   rules
	mount   uint64 // root's mount ID, if other mounts aren't entered
	passed  []int  // the directories below root, the current one last
	pending []string
	links   int
}

// walk finds path below root as openat2 does.
func walk(root int, path string, r rules) (fd int, err error) {
	if path == "" {
		return -1, unix.ENOENT
	}
	if path[0] == '/' {
		return -1, unix.EXDEV
	}
	w := &walker{root: root, rules: r, pending: strings.Split(path, "/")}
	defer w.close()
	if !r.mounts {
		if w.mount, err = mountID(root); err != nil {
			return -1, err
		}
	}
	fd = -1
	for fd < 0 && err == nil {
		fd, err = w.step()
	}
	if err == nil {
		// Another process may have moved a directory out of root after the walk had passed it.
		err = w.verify()
	}
	if err != nil && fd >= 0 {
		_ = unix.Close(fd) // nothing was written
		fd = -1
	}
	return fd, err
}

// step walks one element of the path. At the path's end it returns the descriptor of the file there.
func (w *walker) step() (fd int, err error) {
	for len(w.pending) > 0 && (w.pending[0] == "" || w.pending[0] == ".") {
		w.pending = w.pending[1:]
	}
	if len(w.pending) == 0 {
		return w.open(w.here(), ".", unix.O_DIRECTORY)
	}
	name := w.pending[0]
	w.pending = w.pending[1:]
	if name == ".." {
		return -1, w.up()
	}
	fd, err = w.open(w.here(), name, 0)
	if err != nil {
		return -1, err
	}
	id, err := identify(fd)
	if err != nil {
		_ = unix.Close(fd) // nothing was written
		return -1, err
	}
	last := len(w.pending) == 0
	switch kind := id.kind; {
	case kind == unix.S_IFLNK && !(last && w.rules.nofollow):
		defer unix.Close(fd)
		return -1, w.follow(fd)
	case kind == unix.S_IFDIR && !last:
		return -1, w.enter(fd, id)
	case kind != unix.S_IFDIR && (!last || w.rules.directory):
		_ = unix.Close(fd) // nothing was written
		return -1, unix.ENOTDIR
	}
	return fd, w.sameMount(id)
}

// here is the directory that the walk has reached.
func (w *walker) here() int {
	if len(w.passed) > 0 {
		return w.passed[len(w.passed)-1]
	}
	return w.root
}

func (w *walker) open(dir int, name string, flags int) (fd int, err error) {
	return retry(func() (int, error) {
		return unix.Openat(dir, name, flags|unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
}

// enter makes a directory the current one. The walker closes the directory at the end of the walk.
func (w *walker) enter(fd int, id identity) error {
	w.passed = append(w.passed, fd)
	if len(w.passed) > maxDepth {
		return unix.ENAMETOOLONG
	}
	return w.sameMount(id)
}

func (w *walker) up() error {
	if len(w.passed) == 0 {
		return unix.EXDEV
	}
	_ = unix.Close(w.here()) // nothing was written
	w.passed = w.passed[:len(w.passed)-1]
	return nil
}

// follow puts the link's target in front of the rest of the path.
func (w *walker) follow(link int) error {
	if w.links++; !w.rules.links || w.links > maxLinks {
		return unix.ELOOP
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(link, &fs); err != nil {
		return err
	}
	// A link in /proc isn't followed: if it leads to a file that a process has open, its text isn't a path.
	if fs.Type == unix.PROC_SUPER_MAGIC {
		return unix.ELOOP
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(link, "", buf)
	if err != nil {
		return err
	}
	target := string(buf[:n])
	switch {
	case n == 0 || n == len(buf):
		return unix.ENAMETOOLONG
	case target[0] == '/':
		return unix.EXDEV
	}
	w.pending = append(strings.Split(target, "/"), w.pending...)
	return nil
}

func (w *walker) sameMount(id identity) error {
	if !w.rules.mounts && id.mount != w.mount {
		return unix.EXDEV
	}
	return nil
}

// verify climbs from the last directory of the walk back to root.
func (w *walker) verify() error {
	root, err := identify(w.root)
	if err != nil {
		return err
	}
	at := w.here()
	before := identity{}
	for range maxClimb {
		id, err := identify(at)
		if err == nil && id != root && id == before {
			err = unix.EXDEV // the topmost directory is its own parent
		}
		if err != nil || id == root {
			w.release(at)
			return err
		}
		before = id
		next, err := w.open(at, "..", unix.O_DIRECTORY)
		w.release(at)
		if err != nil {
			return err
		}
		at = next
	}
	w.release(at)
	return unix.EXDEV
}

// release closes a directory, unless it is the walk's current one.
func (w *walker) release(fd int) {
	if fd != w.here() {
		_ = unix.Close(fd) // nothing was written
	}
}

func (w *walker) close() {
	for _, fd := range w.passed {
		_ = unix.Close(fd) // nothing was written
	}
}

// identity identifies a file in a mount. If a file is visible in two mounts, it has two identities.
type identity struct {
	major, minor uint32
	inode, mount uint64
	kind         uint32 // unix.S_IFMT
}

// identify returns the identity of an open file. It doesn't block on a file system that hangs: it accepts cached
// attributes, because these attributes never change.
func identify(fd int) (identity, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC,
		unix.STATX_INO|unix.STATX_TYPE|unix.STATX_MNT_ID, &st)
	id := identity{major: st.Dev_major, minor: st.Dev_minor, inode: st.Ino, mount: st.Mnt_id,
		kind: uint32(st.Mode) & unix.S_IFMT}
	if err != nil {
		if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
			return id, err
		}
		var old unix.Stat_t
		if err := unix.Fstat(fd, &old); err != nil {
			return id, err
		}
		id = identity{major: unix.Major(old.Dev), minor: unix.Minor(old.Dev), inode: old.Ino,
			kind: old.Mode & unix.S_IFMT}
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		id.mount, err = mountIDByProc(fd)
		return id, err
	}
	return id, nil
}
