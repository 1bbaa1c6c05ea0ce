package safeopen

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// MountID is the ID of the mount that an open file is in, as in the mount table (proc_pid_mountinfo(5)). A bind mount
// has an ID of its own. The kernel reuses the IDs of removed mounts. MountID sends no request to the file system, so
// it doesn't block if that hangs.
func MountID(f *os.File) (uint64, error) { return mountID(int(f.Fd())) }

func mountID(fd int) (uint64, error) {
	id, err := identify(fd)
	return id.mount, err
}

// mountIDByProc is MountID for Linux before 5.8, and for seccomp filters that refuse statx.
func mountIDByProc(fd int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return 0, fmt.Errorf("find the mount of an open file: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "mnt_id:"); ok {
			return strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, errors.New("find the mount of an open file: the kernel doesn't report its number")
}
