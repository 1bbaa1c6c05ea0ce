package killtest

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// legacyCalls are system calls that exist only on this architecture: later architectures have only the variants with
// "at".
var legacyCalls = map[uint64]call{
	unix.SYS_MKDIR:     {"mkdir", nil},
	unix.SYS_RMDIR:     {"rmdir", nil},
	unix.SYS_MKNOD:     {"mknod", nil},
	unix.SYS_RENAME:    {"rename", nil},
	unix.SYS_RENAMEAT:  {"renameat", nil},
	unix.SYS_UNLINK:    {"unlink", nil},
	unix.SYS_SYMLINK:   {"symlink", nil},
	unix.SYS_LINK:      {"link", nil},
	unix.SYS_CREAT:     {"creat", nil},
	unix.SYS_OPEN:      {"open", flag32(1, unix.O_CREAT|unix.O_TRUNC)},
	unix.SYS_CHMOD:     {"chmod", nil},
	unix.SYS_CHOWN:     {"chown", nil},
	unix.SYS_LCHOWN:    {"lchown", nil},
	unix.SYS_UTIME:     {"utime", nil},
	unix.SYS_UTIMES:    {"utimes", nil},
	unix.SYS_FUTIMESAT: {"futimesat", nil},
}

var legacyFiles = all(unix.SYS_OPEN, unix.SYS_CREAT, unix.SYS_MKDIR, unix.SYS_RMDIR, unix.SYS_UNLINK, unix.SYS_RENAME,
	unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_NEWFSTATAT,
	unix.SYS_READLINK, unix.SYS_ACCESS)

// callOf reads from a thread's registers which call the thread is about to make. It reads them word by word, because
// User-mode Linux has neither PTRACE_GET_SYSCALL_INFO nor a PTRACE_GETREGS that works.
func callOf(tid int) (nr uint64, args [6]uint64, err error) {
	var r unix.PtraceRegs
	from, to := unsafe.Offsetof(r.R10), unsafe.Offsetof(r.Rip)
	_, err = unix.PtracePeekUser(tid, from, unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r))[from:to])
	return r.Orig_rax, [6]uint64{r.Rdi, r.Rsi, r.Rdx, r.R10, r.R8, r.R9}, err
}
