package kernel

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// AppArmor is where the kernel lists profiles; the zero value is this host's /sys.
type AppArmor struct {
	// Sys is where sysfs is mounted; empty counts as /sys.
	Sys string
}

func (h AppArmor) sys(path string) string {
	if h.Sys == "" {
		return filepath.Join("/sys", path)
	}
	return filepath.Join(h.Sys, path)
}

// Enabled reports whether the kernel enforces AppArmor profiles
// (https://kubernetes.io/docs/tutorials/security/apparmor/#before-you-begin).
// A kernel that doesn't say so doesn't.
func (h AppArmor) Enabled() bool {
	text, err := os.ReadFile(h.sys("module/apparmor/parameters/enabled"))
	return err == nil && strings.HasPrefix(string(text), "Y")
}

// Loaded reports whether a profile of this name is loaded, in any mode.
func (h AppArmor) Loaded(profile string) (bool, error) {
	f, err := os.Open(h.sys("kernel/security/apparmor/profiles"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf(
			"the host doesn't list which AppArmor profiles are loaded: %w: mount securityfs on /sys/kernel/security",
			err)
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// A name may have blanks and brackets in it; the mode has none: "NAME (enforce)".
		line := lines.Text()
		if i := strings.LastIndex(line, " ("); i >= 0 && line[:i] == profile {
			return true, nil
		}
	}
	return false, lines.Err()
}
