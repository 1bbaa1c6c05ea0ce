package kernel

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// AppArmor reads the state of AppArmor from sysfs; the zero value reads this host's /sys.
type AppArmor struct {
	// Sys is the mount point of sysfs; empty means /sys.
	Sys string
}

func (h AppArmor) sys(path string) string {
	return filepath.Join(cmp.Or(h.Sys, "/sys"), path)
}

// Enabled reports whether the kernel enforces AppArmor profiles
// (https://kubernetes.io/docs/tutorials/security/apparmor/#before-you-begin). It is false if the kernel's file
// can't be read.
func (h AppArmor) Enabled() bool {
	text, err := os.ReadFile(h.sys("module/apparmor/parameters/enabled"))
	return err == nil && strings.HasPrefix(string(text), "Y")
}

// Loaded reports whether the kernel has loaded a profile of this name, in any mode (such as enforce or complain).
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
		// A line is "NAME (MODE)". A profile's name may contain blanks and brackets, a mode can't.
		line := lines.Text()
		if i := strings.LastIndex(line, " ("); i >= 0 && line[:i] == profile {
			return true, nil
		}
	}
	return false, lines.Err()
}
