package preflight

import (
	"fmt"
	"slices"
	"strings"
)

// neededControllers are what runc and the agent set limits and start containers with.
var neededControllers = []string{"cpu", "memory", "pids"}

// unified is where cgroup v2 has to be mounted to count as what the host uses: a
// cgroup2 elsewhere (/sys/fs/cgroup/unified) is beside v1, without controllers.
const unified = "/sys/fs/cgroup"

// checkCgroups wants cgroup v2, or every needed controller of cgroup v1 where that is
// allowed.
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

// usesCgroupV1 reports whether there is cgroup v1 and no v2 in its place.
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
