package killtest

import "golang.org/x/sys/unix"

// legacyCalls are system calls that have newer replacements.
var legacyCalls = map[uint64]call{unix.SYS_RENAMEAT: {"renameat", nil}}

var legacyFiles = all(unix.SYS_FSTATAT)

// callOf reads from a thread's registers which call the thread is about to make.
func callOf(tid int) (nr uint64, args [6]uint64, err error) {
	var r unix.PtraceRegsArm64
	err = unix.PtraceGetRegSetArm64(tid, unix.NT_PRSTATUS, &r)
	return r.Regs[8], [6]uint64(r.Regs[:6]), err
}
