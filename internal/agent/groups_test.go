package agent_test

import (
	"path/filepath"
	"testing"
)

// TestGroupsBeforePods: the control groups that all pods have in common are there before the first pod.
func TestGroupsBeforePods(t *testing.T) {
	r := newRig(t)
	r.up()
	for _, group := range []string{"kubepods", "kubepods/burstable", "kubepods/besteffort"} {
		r.await("control group "+group, func() string {
			for _, top := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/memory/"} {
				if found, err := filepath.Glob(top + filepath.Base(r.dir) + "/" + group); err == nil && len(found) > 0 {
					return ""
				}
			}
			return "it isn't there"
		})
	}
}
