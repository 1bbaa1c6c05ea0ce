//go:build quota

package agent_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

// TestQuotaMoments is a part of TestDiskMoments, with root directories that have project quotas. TMPDIR has room
// elsewhere. On ext4, the process must not have CAP_SYS_RESOURCE: it may exceed quotas.
func TestQuotaMoments(t *testing.T) {
	kind := func(name string, project uint32, bytes, inodes uint64) diskKind {
		return diskKind{name: name, limit: func(t *testing.T, root string) unix.Errno {
			return mounttest.LimitProject(t, root, project, bytes, inodes)
		}}
	}
	for i, moment := range []string{"admission", "eviction", "restart"} {
		runDiskMoment(t, kind("bytes", uint32(2000+i), 40<<20, 0), moment)
	}
	runDiskMoment(t, kind("inodes", 2100, 0, 600), "admission")
}
