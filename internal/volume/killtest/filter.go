package killtest

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mark is a prctl option that the kernel doesn't have. The child calls prctl with it to report to the tracer that its
// work is done; the argument is 0 for success and 1 for an error.
const mark = 0x6465636b

// child does the work in the traced process. It doesn't return: the tracer kills it.
func child(c Case, dir string, calls map[uint64]call) {
	if err := install(calls); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	failed := 0
	if err := c.Child(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		failed = 1
	}
	// The tracer reads the arguments of this call. The kernel itself would refuse the unknown option.
	_ = unix.Prctl(mark, uintptr(failed), 0, 0, 0)
	select {}
}

// install makes the kernel stop a thread of this process, for the tracer, each time the thread is about to make one of
// the calls.
func install(calls map[uint64]call) error {
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // the call's number
	for nr := range calls {
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(nr), Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_TRACE})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("install the filter that finds the steps: %w", errno)
	}
	return nil
}
