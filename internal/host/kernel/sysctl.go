// Package kernel knows the kernel settings that a node has to have under pods
// (KubeletConfiguration.protectKernelDefaults), sets them, asks whether AppArmor is
// enforced and which of its profiles are loaded, and reads in the kernel's log what was killed for want of memory.
package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Flag is a kernel setting and its required value.
type Flag struct{ Name, Want string }

// Wanted are the kubelet's kernel settings, as hardening guides list them (CIS Kubernetes Benchmark 4.2.6, the
// kubelet's own sysctl.d files): memory is overcommitted, the OOM killer is used, a broken kernel reboots after 10 s,
// and containers have enough keys.
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

// Sysctls is where settings are: "/proc/sys".
type Sysctls string

// Differences says of each flag that isn't as wanted what it is and should be.
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

// Set makes every flag as wanted. It returns the names of those it changed, and an
// error for those that it can't.
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
