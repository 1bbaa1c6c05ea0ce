package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// nrOpenFile has how many files any process can be allowed to open.
const nrOpenFile = "/proc/sys/fs/nr_open"

// RaiseOpenFiles lets this process have n files open at once, and returns how many
// it may have open now. It never lowers a limit. Where the hard limit doesn't suffice
// and can't be raised, the process gets as much as there is, and an error that says
// so: it is worth a warning.
//
// Go itself raises the soft limit to one less than the hard one when a program starts,
// and gives children the soft limit that it found then, as old programs can't deal
// with more (select(2), or closing every possible file). Go stops doing so once
// a program changes the limit. So RaiseOpenFiles changes nothing where Go's own doing
// suffices, and a containerd started as a child, and the pods in it, go on with the
// limits that the service manager gave to the agent (1024 soft, by systemd's default).
// Where it has to change the limit, children get the same: n, soft and hard. To keep
// pods from that, the unit file should have LimitNOFILE=1024:1048576, or any hard limit
// above n.
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
	// Tried rather than asked for: security modules have a say as well.
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

// raise sets the limits of this process to wanted, unless its soft limit is as good, and returns the soft limit. One
// file less is as good: Go leaves it so, and children shouldn't get other limits for a single file.
func raise(now, wanted unix.Rlimit) (uint64, error) {
	if now.Cur >= wanted.Cur || now.Cur == wanted.Cur-1 {
		return now.Cur, nil
	}
	// Not Setrlimit: Go stops giving children the old limit also when that has failed.
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
