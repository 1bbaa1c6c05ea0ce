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

// MountID is the number of the mount that an open file is in, as the mount table has it
// (proc_pid_mountinfo(5)). Two files in one mount have the same; a bind mount has a number of
// its own. Numbers of mounts that are gone come again. It asks no file system, so it doesn't
// wait for one that hangs.
func MountID(f *os.File) (uint64, error) { return mountID(int(f.Fd())) }

func mountID(fd int) (uint64, error) {
	id, err := identify(fd)
	return id.mount, err
}

// mountIDByProc is for Linux before 5.8, and for filters that don't know statx.
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
