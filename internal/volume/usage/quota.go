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
	// projects is the number of project IDs that may be assigned, from firstProject on.
	projects = 1 << 20
	// probes is how many project IDs are tried at most to find a free one for a directory.
	probes = 1 << 16
)

// ErrNotEmpty is the error of Assign for a directory that already contains files.
var ErrNotEmpty = errors.New("it isn't empty")

// Assign enables usage accounting by the file system for the directory dir: it gives the directory a project ID of
// its own, which new files in it inherit. Measure then reads the project's quota. It reports whether the directory
// has a project. It has none if the file system has no project quotas, if the kernel is older than Linux 5.14, or
// after an error such as ErrNotEmpty.
//
// Call it for a new directory before anybody writes to it. Call it again after a restart of the agent: the directory
// has stored its project ID. An ID isn't assigned to another directory as long as any file has it. Nothing has to be
// undone when the directory is removed.
//
// Assign only directories of pods with their own user namespaces (hostUsers: false): in these, the kernel forbids
// processes to change project IDs. Processes of other pods could move their files to another project.
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

// assign returns the directory's project ID, or 0 if it can't have one.
func (m *Meter) assign(fd int, top *os.File) (uint32, error) {
	if _, err := quotaOf(fd, 0); err != nil {
		return 0, nil // no project quotas, like most file systems
	}
	attr, err := attributesOf(fd)
	if err != nil {
		return 0, nil // the file system has no project IDs
	}
	if ours(attr) {
		return attr.project, nil
	}
	if attr.project != 0 {
		return 0, nil // another program does the accounting
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
	// The check for files comes after the project was set: a file that is created later inherits the project.
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

// free returns a project ID that no file of the file system has and that isn't listed in /etc.
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
		// A directory counts as an inode of its project, so a project without usage belongs to no directory.
		if u == (Usage{}) {
			return id, nil
		}
	}
	return 0, fmt.Errorf("the next %d project IDs are all in use", probes)
}

// byQuota reads the usage of the directory's project; ok is false if the directory has no project.
func (m *Meter) byQuota(dir string, top *os.File) (_ Usage, ok bool) {
	m.mu.Lock()
	id, ok := m.projects[dir]
	m.mu.Unlock()
	if !ok {
		return Usage{}, false
	}
	fd := int(top.Fd())
	// The directory may have been recreated since Assign, without the project.
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

// Constants of linux/fs.h, for architectures whose ioctls are as in asm-generic: _IOR('X', 31, struct fsxattr) and
// _IOW('X', 32, struct fsxattr).
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

// quota is struct if_dqblk of linux/quota.h; spaces are in bytes.
type quota struct {
	hardSpace, softSpace, space    uint64
	hardInodes, softInodes, inodes uint64
	spaceTime, inodeTime           uint64
	valid                          uint32
	_                              uint32
}

// getProjectQuota is QCMD(Q_GETQUOTA, PRJQUOTA) of linux/quota.h; both ext4 and XFS support it.
const getProjectQuota = 0x800007<<8 | 2

// quotaOf returns the usage of a project on the file system of an open file. It fails if the file system has no
// project quotas.
func quotaOf(fd int, project uint32) (Usage, error) {
	var q quota
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), getProjectQuota, uintptr(project),
		uintptr(unsafe.Pointer(&q)), 0, 0)
	if errno == unix.ENOENT {
		return Usage{}, nil // XFS: no file has ever had this project
	}
	if errno != 0 {
		return Usage{}, fmt.Errorf("ask for the quota of project %d: %w", project, errno)
	}
	return Usage{Bytes: int64(q.space), Inodes: int64(q.inodes)}, nil
}
