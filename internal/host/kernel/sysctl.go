// Package kernel checks and sets the sysctls that a node needs for pods
// (KubeletConfiguration.protectKernelDefaults), reports whether AppArmor is enabled and which of its profiles are
// loaded, reads the processes that the OOM killer killed from the kernel's log, and lists the host's listening
// sockets.
package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Flag is a sysctl and its required value.
type Flag struct{ Name, Want string }

// Wanted returns the sysctls that the kubelet requires, as in hardening guides (CIS Kubernetes Benchmark 4.2.6):
// memory is overcommitted, the OOM killer is used instead of a panic, the kernel reboots 10 s after a panic, and
// containers may have enough keys.
func Wanted() []Flag {
	return []Flag{
		{"vm.overcommit_memory", "1"},
		{"vm.panic_on_oom", "0"},
		{"kernel.panic", "10"},
		{"kernel.panic_on_oops", "1"},
		{"kernel.keys.root_maxkeys", "1000000"},
		{"kernel.keys.root_maxbytes", "25000000"},
	}
}

// Sysctls is the directory of the sysctls: "/proc/sys".
type Sysctls string

// Differences returns a message for each sysctl whose value differs from the required one. The message contains both
// values.
func (h Sysctls) Differences() []string {
	var differ []string
	for _, f := range Wanted() {
		switch is, err := h.read(f.Name); {
		case err != nil:
			differ = append(differ, fmt.Sprintf("%s can't be read (%v), should be %s", f.Name, err, f.Want))
		case is != f.Want:
			differ = append(differ, fmt.Sprintf("%s is %s, should be %s", f.Name, is, f.Want))
		}
	}
	return differ
}

// Set sets every sysctl to its required value. It returns the names of the sysctls that it changed, and an error for
// the sysctls that it can't set.
func (h Sysctls) Set() (changed []string, err error) {
	var errs []error
	for _, f := range Wanted() {
		if is, err := h.read(f.Name); err == nil && is == f.Want {
			continue
		}
		if err := os.WriteFile(h.path(f.Name), []byte(f.Want), 0); err != nil {
			errs = append(errs, fmt.Errorf("%s can't be set to %s: %w", f.Name, f.Want, err))
			continue
		}
		changed = append(changed, f.Name)
	}
	return changed, errors.Join(errs...)
}

func (h Sysctls) read(name string) (string, error) {
	text, err := os.ReadFile(h.path(name))
	return strings.TrimSpace(string(text)), err
}

func (h Sysctls) path(name string) string {
	return filepath.Join(string(h), strings.ReplaceAll(name, ".", "/"))
}
