package usage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// firstProject is the first project ID that Kubernetes uses
	// (https://kubernetes.io/docs/concepts/storage/ephemeral-storage/, "Filesystem project quota").
	firstProject = 1 << 20
	// projects is how many project IDs there are from the first on.
	projects = 1 << 20
	// probes is how many of them are tried for one directory.
	probes = 1 << 16
)

// ErrNotEmpty says that a directory can't be given a project any more, because of what is in it
// already.
var ErrNotEmpty = errors.New("it isn't empty")

// Assign has the file system keep account of what is in the directory dir, from now on and for as long as the
// directory is there: by a project ID of its own that whatever is made in it inherits. From then on Measure asks the
// file system. It reports whether that is so; it isn't where the file system has no project quotas or the kernel is
// older than Linux 5.14, and with an error, of which ErrNotEmpty is one.
//
// It is for new directories, before anybody writes to them, and, after a restart of the agent, for those that have got
// their project before: the directory itself says which, and as long as one file has a project, that isn't given to
// another directory. Nothing has to be undone when the directory goes.
//
// Only directories of pods with user namespaces of their own (hostUsers: false) may be assigned: there the
// kernel lets nobody change project IDs. Other pods could count their files as somebody else's.
func (m *Meter) Assign(dir string) (bool, error) {
	top, err := openDir(dir)
	if err != nil {
		return false, fmt.Errorf("assign a quota project to %s: %w", dir, err)
	}
	defer top.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	id, err := m.assign(int(top.Fd()), top)
	if err != nil {
		return false, fmt.Errorf("assign a quota project to %s: %w", dir, err)
	}
	if id == 0 {
		return false, nil
	}
	m.projects[dir] = id
	return true, nil
}

// assign returns the directory's project; 0 if there can't be one.
func (m *Meter) assign(fd int, top *os.File) (uint32, error) {
	if _, err := quotaOf(fd, 0); err != nil {
		return 0, nil // no project quotas here: as good as every file system
	}
	attr, err := attributesOf(fd)
	if err != nil {
		return 0, nil // it has no projects
	}
	if ours(attr) {
		return attr.project, nil
	}
	if attr.project != 0 {
		return 0, nil // somebody else accounts for it
	}
	id, err := m.free(fd)
	if err != nil {
		return 0, err
	}
	given := attr
	given.project, given.flags = id, attr.flags|flagProjectInherit
	if err := setAttributes(fd, given); err != nil {
		return 0, err
	}
	// Looked at after that, so that nobody can have made a file in between.
	if _, err := top.Readdirnames(1); !errors.Is(err, io.EOF) {
		if err == nil {
			err = ErrNotEmpty
		}
		return 0, errors.Join(err, setAttributes(fd, attr))
	}
	return id, nil
}

func ours(a attributes) bool {
	return a.project >= firstProject && a.project < firstProject+projects && a.flags&flagProjectInherit != 0
}

// free finds a project that no file of the file system has and that isn't listed in /etc.
func (m *Meter) free(fd int) (uint32, error) {
	taken, err := usedProjects(m.etc)
	if err != nil {
		return 0, err
	}
	for range probes {
		id := m.next
		m.next++
		if m.next == firstProject+projects {
			m.next = firstProject
		}
		if taken[id] {
			continue
		}
		u, err := quotaOf(fd, id)
		if err != nil {
			return 0, err
		}
		// A directory counts among its own project's inodes: one that has none has no directory.
		if u == (Usage{}) {
			return id, nil
		}
	}
	return 0, fmt.Errorf("the next %d project IDs are all in use", probes)
}

// byQuota asks the file system; ok is false if it doesn't know.
func (m *Meter) byQuota(dir string, top *os.File) (_ Usage, ok bool) {
	m.mu.Lock()
	id, ok := m.projects[dir]
	m.mu.Unlock()
	if !ok {
		return Usage{}, false
	}
	fd := int(top.Fd())
	// The directory may have been made again.
	attr, err := attributesOf(fd)
	if err != nil || attr.project != id || !ours(attr) {
		m.Forget(dir)
		return Usage{}, false
	}
	u, err := quotaOf(fd, id)
	return u, err == nil
}

// attributes is struct fsxattr of linux/fs.h.
type attributes struct {
	flags, extentSize, extents, project, cowExtentSize uint32
	_                                                  [8]byte
}

// Of linux/fs.h, for the architectures whose ioctls are as in asm-generic: _IOR('X', 31, struct
// fsxattr) and _IOW('X', 32, struct fsxattr).
const (
	ioctlGetAttributes = 0x801c581f
	ioctlSetAttributes = 0x401c5820
	flagProjectInherit = 0x200
)

func attributesOf(fd int) (attributes, error) {
	var a attributes
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlGetAttributes, uintptr(unsafe.Pointer(&a)))
	if errno != 0 {
		return a, fmt.Errorf("ask for its project: %w", errno)
	}
	return a, nil
}

func setAttributes(fd int, a attributes) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlSetAttributes, uintptr(unsafe.Pointer(&a)))
	if errno != 0 {
		return fmt.Errorf("set its project: %w", errno)
	}
	return nil
}

// quota is struct if_dqblk of linux/quota.h; space is in bytes.
type quota struct {
	hardSpace, softSpace, space    uint64
	hardInodes, softInodes, inodes uint64
	spaceTime, inodeTime           uint64
	valid                          uint32
	_                              uint32
}

// getProjectQuota is QCMD(Q_GETQUOTA, PRJQUOTA) of linux/quota.h; ext4 and XFS both know it.
const getProjectQuota = 0x800007<<8 | 2

// quotaOf returns what the files of a project take on the file system of an open file. It fails where
// that has no project quotas.
func quotaOf(fd int, project uint32) (Usage, error) {
	var q quota
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), getProjectQuota, uintptr(project),
		uintptr(unsafe.Pointer(&q)), 0, 0)
	if errno == unix.ENOENT {
		return Usage{}, nil // XFS: no file ever had it
	}
	if errno != 0 {
		return Usage{}, fmt.Errorf("ask for the quota of project %d: %w", project, errno)
	}
	return Usage{Bytes: int64(q.space), Inodes: int64(q.inodes)}, nil
}
