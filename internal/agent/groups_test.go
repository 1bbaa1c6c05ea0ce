package agent_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestGroupsBeforePods: the control groups that all pods have in common are there before the first pod.
func TestGroupsBeforePods(t *testing.T) {
	r := newRig(t)
	r.up()
	tops := []string{"/sys/fs/cgroup/memory/", "/sys/fs/cgroup/cpu/"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		tops = []string{"/sys/fs/cgroup/"}
	}
	for _, top := range tops {
		for _, group := range []string{"kubepods", "kubepods/burstable", "kubepods/besteffort"} {
			dir := filepath.Join(top, filepath.Base(r.dir), group)
			r.await("control group "+dir, func() string {
				if _, err := os.Stat(dir); err != nil {
					return err.Error()
				}
				return ""
			})
		}
	}
}
