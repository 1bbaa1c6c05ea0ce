package beneathtest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// without is set in the environment of a process that is to have no openat2, to the error
// number it gets instead.
const without = "DECKHAND_TEST_WITHOUT_OPENAT2"

// Main runs a package's tests (run) and returns the code to exit with. It is for TestMain of packages
// that use Again.
func Main(run func() int) int {
	if text := os.Getenv(without); text != "" {
		errno, err := strconv.Atoi(text)
		if err == nil {
			err = forbid(unix.SYS_OPENAT2, unix.Errno(errno))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "forbid openat2:", err)
			return 1
		}
	}
	return run()
}

// Walks reports whether this process is one that has no openat2.
func Walks() bool { return os.Getenv(without) != "" }

// Again runs the tests that match run, but not skip, once more, in a process whose openat2 fails with
// errno as it does on old kernels (ENOSYS) and under old seccomp filters (EPERM).
func Again(t *testing.T, errno unix.Errno, run, skip string) {
	t.Helper()
	if Walks() {
		return // this is it
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.v", "-test.count=1", "-test.run="+run, "-test.skip="+skip, "-test.timeout="+(*duration*10+10*time.Minute).String(), "-attack.duration="+duration.String())
	cmd.Env = append(os.Environ(), without+"="+strconv.Itoa(int(errno)))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // what the child dies with is the thread that started it
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS")) || bytes.Contains(out, []byte("no tests to run")) {
		t.Fatalf("without openat2: %v\n%s", err, out)
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if line := lines.Text(); strings.Contains(line, " tries: ") {
			t.Log("without openat2: " + strings.TrimSpace(line))
		}
	}
}

// forbid has a system call fail with errno, in all threads of this process and in
// whatever they start.
func forbid(number uint32, errno unix.Errno) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: number, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if failed != 0 {
		return failed
	}
	return nil
}
