package preflight

import (
	"fmt"
	"slices"
	"strings"
)

// neededControllers are the controllers that runc and the agent need to set limits and start containers.
var neededControllers = []string{"cpu", "memory", "pids"}

// unified is the only mount point at which cgroup v2 counts as the host's hierarchy: a cgroup2 elsewhere
// (/sys/fs/cgroup/unified) exists beside v1 and has no controllers.
const unified = "/sys/fs/cgroup"

// checkCgroups requires cgroup v2, or cgroup v1 with every needed controller where v1 is allowed.
func checkCgroups(v1 Attitude, read reader) []Problem {
	text, err := read("/proc/mounts")
	if err != nil {
		return fatal(fmt.Errorf("cgroups: %w", err))
	}
	mounts := string(text)
	problems := fatal(checkControllers(mounts, read))
	if usesCgroupV1(mounts) {
		problems = append(problems,
			v1.about("this host uses cgroup v1, which Kubernetes is phasing out (no memory QoS, no swap for pods): "+
				"boot it with cgroup v2 "+
				"(kernel parameter systemd.unified_cgroup_hierarchy=1)",
				"failCgroupV1: false (--fail-cgroupv1=false)")...)
	}
	return problems
}

// usesCgroupV1 reports whether cgroup v1 is mounted and cgroup v2 isn't mounted at unified.
func usesCgroupV1(mounts string) (v1 bool) {
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		if f[2] == "cgroup2" && f[1] == unified {
			return false
		}
		v1 = v1 || f[2] == "cgroup"
	}
	return v1
}

func checkControllers(mounts string, read reader) error {
	var available []string
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		switch {
		case len(f) < 4:
		case f[2] == "cgroup":
			available = append(available, strings.Split(f[3], ",")...)
		case f[2] == "cgroup2":
			if list, err := read(f[1] + "/cgroup.controllers"); err == nil {
				available = append(available, strings.Fields(string(list))...)
			}
		}
	}
	var missing []string
	for _, c := range neededControllers {
		if !slices.Contains(available, c) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("cgroups: no controller %s: mount cgroup2 on %s, or boot with the controllers enabled",
			strings.Join(missing, ", "), unified)
	}
	return nil
}
