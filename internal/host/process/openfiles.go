package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// nrOpenFile has the highest limit of open files that the kernel allows for a process.
const nrOpenFile = "/proc/sys/fs/nr_open"

// RaiseOpenFiles raises this process's soft limit of open files to n, and returns the resulting limit. It never lowers
// a limit. If n can't be reached, the soft limit becomes the highest possible one, and the error explains why; log it
// as a warning.
//
// When a program starts, Go itself raises the soft limit to one less than the hard limit. Child processes still get the
// original soft limit, because old programs can't handle more (select(2), or closing every possible descriptor). But
// once the program itself changes the limit, they don't get the original limit any more. So RaiseOpenFiles changes
// nothing if Go's own change suffices: then a containerd that the agent starts, and the pods in it, have the limits
// that the service manager gave to the agent (1024 soft, by systemd's default). If RaiseOpenFiles has to change the
// limit, child processes also get n as their soft and hard limit. To avoid that for pods, the unit file should have
// LimitNOFILE=1024:1048576, or any hard limit above n.
func RaiseOpenFiles(n uint64) (got uint64, err error) {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	if n <= now.Max {
		return raise(now, unix.Rlimit{Cur: n, Max: now.Max})
	}
	most, err := nrOpen()
	if err != nil {
		return now.Cur, err
	}
	// The change is tried without checking the permission first, because security modules may also forbid it.
	if got, err = raise(now, unix.Rlimit{Cur: min(n, most), Max: max(now.Max, min(n, most))}); err == nil && got == n {
		return got, nil
	}
	why := fmt.Sprintf("the kernel allows that to no process (sysctl fs.nr_open is %d)", most)
	if err != nil {
		why = fmt.Sprintf("its hard limit is %d, and raising that (%v) takes the capability CAP_SYS_RESOURCE: set "+
			"LimitNOFILE=1024:%d in the unit file", now.Max, errors.Unwrap(err), n+1)
		if got, err = raise(now, unix.Rlimit{Cur: now.Max, Max: now.Max}); err != nil {
			return now.Cur, err
		}
	}
	return got, fmt.Errorf("the agent can have %d files open at once, not %d: %s, or lower maxOpenFiles", got, n, why)
}

// raise sets the limits of this process to wanted, and returns the resulting soft limit. It changes nothing if the soft
// limit isn't lower than wanted.Cur, or is lower by only one: Go sets such a limit, and child processes shouldn't get
// other limits because of a single file.
func raise(now, wanted unix.Rlimit) (uint64, error) {
	if now.Cur >= wanted.Cur || now.Cur == wanted.Cur-1 {
		return now.Cur, nil
	}
	// syscall.Setrlimit isn't used: after it Go no longer gives child processes the original limit, even if the
	// call failed.
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &wanted, nil); err != nil {
		return now.Cur, fmt.Errorf("raise the limit of open files from %d to %d: %w", now.Cur, wanted.Cur, err)
	}
	return wanted.Cur, nil
}

func nrOpen() (uint64, error) {
	text, err := os.ReadFile(nrOpenFile)
	if err != nil {
		return 0, fmt.Errorf("read how many files a process can be allowed to open: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read how many files a process can be allowed to open: %s: %w", nrOpenFile, err)
	}
	return n, nil
}
