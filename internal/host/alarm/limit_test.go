//go:build cgroupv2

package alarm_test

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/deckhand-node/deckhand/internal/host/alarm"
)

// TestMemoryEvents: a group that reaches its limit is reported on cgroup v2. test/cgroupv2 runs it, on a machine that has it.
func TestMemoryEvents(t *testing.T) {
	const root = "/sys/fs/cgroup"
	dir := makeGroup(t, filepath.Join(root, name(t)))
	write(t, filepath.Join(root, "cgroup.subtree_control"), "+memory")
	write(t, filepath.Join(dir, "memory.max"), strconv.Itoa(16*mi))
	a := run(t)
	set(t, a, alarm.Trigger{Name: "limit", Kind: alarm.Changes, Path: filepath.Join(dir, "memory.events")})
	c := start(t, dir)
	done := make(chan error, 1)
	go func() { done <- c.do("use %d", 40*mi) }()
	await(t, a, "limit")
	if err := <-done; err == nil {
		t.Error("the child has used more than its group's limit")
	}
}
