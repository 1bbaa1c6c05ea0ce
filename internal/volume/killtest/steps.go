package killtest

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// call is a system call that may change state outside of the process.
type call struct {
	name string
	// changes reports whether a call with these arguments does change such state; nil means that every call does.
	changes func(tid int, args [6]uint64) bool
}

// steps are the system calls that may be steps, by number. Other calls are never steps: they read, wait or sync
// (written data stays if only the process is killed, even without a sync).
var steps = join(legacyCalls, map[uint64]call{
	unix.SYS_PRCTL: {"prctl", never}, // tells the end, see mark

	unix.SYS_MOUNT:         {"mount", nil},
	unix.SYS_UMOUNT2:       {"umount2", nil},
	unix.SYS_MOVE_MOUNT:    {"move_mount", nil},
	unix.SYS_OPEN_TREE:     {"open_tree", flag32(2, unix.OPEN_TREE_CLONE)},
	unix.SYS_FSCONFIG:      {"fsconfig", nil},
	unix.SYS_FSMOUNT:       {"fsmount", nil},
	unix.SYS_MOUNT_SETATTR: {"mount_setattr", nil},

	unix.SYS_MKDIRAT:   {"mkdirat", nil},
	unix.SYS_MKNODAT:   {"mknodat", nil},
	unix.SYS_RENAMEAT2: {"renameat2", nil},
	unix.SYS_UNLINKAT:  {"unlinkat", nil},
	unix.SYS_SYMLINKAT: {"symlinkat", nil},
	unix.SYS_LINKAT:    {"linkat", nil},

	unix.SYS_OPENAT:  {"openat", flag32(2, unix.O_CREAT|unix.O_TRUNC)},
	unix.SYS_OPENAT2: {"openat2", openHow},

	unix.SYS_FCHMOD:      {"fchmod", nil},
	unix.SYS_FCHMODAT:    {"fchmodat", nil},
	unix.SYS_FCHMODAT2:   {"fchmodat2", nil},
	unix.SYS_FCHOWN:      {"fchown", nil},
	unix.SYS_FCHOWNAT:    {"fchownat", nil},
	unix.SYS_UTIMENSAT:   {"utimensat", nil},
	unix.SYS_SETXATTR:    {"setxattr", nil},
	unix.SYS_LSETXATTR:   {"lsetxattr", nil},
	unix.SYS_FSETXATTR:   {"fsetxattr", nil},
	unix.SYS_QUOTACTL:    {"quotactl", nil},
	unix.SYS_QUOTACTL_FD: {"quotactl_fd", nil},
	unix.SYS_IOCTL:       {"ioctl", fileFlags},

	unix.SYS_WRITE:           {"write", something},
	unix.SYS_WRITEV:          {"writev", regular(0)},
	unix.SYS_PWRITE64:        {"pwrite64", something},
	unix.SYS_PWRITEV:         {"pwritev", regular(0)},
	unix.SYS_COPY_FILE_RANGE: {"copy_file_range", regular(2)},
	unix.SYS_SENDFILE:        {"sendfile", regular(0)},
	unix.SYS_SPLICE:          {"splice", regular(2)},
	unix.SYS_FTRUNCATE:       {"ftruncate", nil},
	unix.SYS_TRUNCATE:        {"truncate", nil},
	unix.SYS_FALLOCATE:       {"fallocate", nil},
})

// ofFiles are the system calls that read or change files.
var ofFiles = join(legacyFiles,
	all(unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_CLOSE, unix.SYS_READ, unix.SYS_PREAD64, unix.SYS_WRITE,
		unix.SYS_PWRITE64, unix.SYS_WRITEV,
		unix.SYS_FCNTL, unix.SYS_LSEEK, unix.SYS_IOCTL, unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_STATFS,
		unix.SYS_FSTATFS, unix.SYS_GETDENTS64, unix.SYS_READLINKAT,
		unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT,
		unix.SYS_RENAMEAT2, unix.SYS_PRCTL))

func all(numbers ...uint64) map[uint64]call {
	calls := map[uint64]call{}
	for _, nr := range numbers {
		calls[nr] = call{}
	}
	return calls
}

func join(a, b map[uint64]call) map[uint64]call {
	for nr, c := range a {
		b[nr] = c
	}
	return b
}

func never(int, [6]uint64) bool { return false }

// flag32 returns a filter for calls that have at least one of these bits set in an argument.
func flag32(arg int, bits uint64) func(int, [6]uint64) bool {
	return func(_ int, args [6]uint64) bool { return args[arg]&bits != 0 }
}

// fileFlags reports whether an ioctl sets a file's flags or its project.
func fileFlags(_ int, args [6]uint64) bool {
	const fsSetXattr = 0x401c5820 // FS_IOC_FSSETXATTR
	request := args[1] & 0xffffffff
	return request == unix.FS_IOC_SETFLAGS || request == fsSetXattr
}

// openHow reports whether an openat2 makes or truncates a file.
func openHow(tid int, args [6]uint64) bool {
	how := make([]byte, 8) // struct open_how begins with the flags
	local := []unix.Iovec{{Base: &how[0], Len: 8}}
	remote := []unix.RemoteIovec{{Base: uintptr(args[2]), Len: 8}}
	if n, err := unix.ProcessVMReadv(tid, local, remote, 0); err != nil || n != 8 {
		return true // rather one point too many
	}
	return binary.NativeEndian.Uint64(how)&(unix.O_CREAT|unix.O_TRUNC) != 0
}

// regular returns a filter for calls that write to a regular file, given by the descriptor in this argument. The
// child's own stdout and stderr don't count.
func regular(arg int) func(int, [6]uint64) bool {
	return func(tid int, args [6]uint64) bool {
		fd := int32(args[arg])
		if fd == 1 || fd == 2 {
			return false
		}
		var st unix.Stat_t
		err := unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", tid, fd), &st)
		return err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
	}
}

// something reports whether a call writes at least one byte to a regular file.
func something(tid int, args [6]uint64) bool { return args[2] > 0 && regular(0)(tid, args) }
