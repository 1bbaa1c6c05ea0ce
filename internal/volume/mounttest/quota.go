package mounttest

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// LimitProject gives a directory a project ID, which its new files inherit, and limits what this project may use of the
// file system, which has to be mounted with project quotas; 0 is no limit. It returns the error with which the kernel
// refuses more.
func LimitProject(t *testing.T, dir string, project uint32, bytes, inodes uint64) unix.Errno {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const (
		setAttributes = 0x401c5820 // FS_IOC_FSSETXATTR of linux/fs.h
		inherit       = 0x200
		setQuota      = 0x800008<<8 | 2 // QCMD(Q_SETQUOTA, PRJQUOTA) of linux/quota.h
		limits        = 1 | 4           // QIF_BLIMITS and QIF_ILIMITS
		block         = 1 << 10         // QIF_DQBLKSIZE
	)
	attributes := struct { // fsxattr
		flags, extentSize, extents, project, cowExtentSize uint32
		_                                                  [8]byte
	}{flags: inherit, project: project}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), setAttributes, uintptr(unsafe.Pointer(&attributes))); errno != 0 {
		t.Fatalf("set the project of %s: %v", dir, errno)
	}
	quota := struct { // if_dqblk
		hardBlocks, softBlocks, space, hardInodes, softInodes, inodes, spaceTime, inodeTime uint64
		valid, _                                                                            uint32
	}{hardBlocks: bytes / block, hardInodes: inodes, valid: limits}
	if _, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), setQuota, uintptr(project), uintptr(unsafe.Pointer(&quota)),
		0, 0); errno != 0 {
		t.Fatalf("limit project %d of %s: %v", project, dir, errno)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	if st.Type == unix.EXT4_SUPER_MAGIC {
		return unix.EDQUOT
	}
	return unix.ENOSPC
}
