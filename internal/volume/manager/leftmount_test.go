package manager_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A staged device that is mounted at another place, too, stays in use until it isn't mounted there any more, also for
// the next agent. The driver has unstaged it, and isn't called again, except to stage it anew.
func TestDeviceIsMountedElsewhere(t *testing.T) {
	c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
	m := c.agent()
	p := c.user(1)
	c.attach("va-1", "one")
	eventually(t, "it is mounted", func() bool { return m.Prepare(t.Context(), p, c) == nil })
	staged, _ := filepath.Glob(filepath.Join(c.root, "plugins/kubernetes.io/csi/*/*/globalmount"))
	if len(staged) != 1 {
		t.Fatalf("staged at %q", staged)
	}
	// Each tmpfs is a device.
	_ = unix.Unmount(staged[0], 0) // if the driver has mounted a directory
	must(t, tmpfsAt(staged[0]))
	other := filepath.Join(c.root, "other")
	must(t, os.Mkdir(other, 0o700))
	must(t, unix.Mount(staged[0], other, "", unix.MS_BIND, ""))
	waits := func() {
		t.Helper()
		if !c.isInUse() {
			t.Error("a mounted device isn't reported as in use")
		}
		eventually(t, "the place of the mount is told", func() bool {
			held, err := m.Held()
			return err == nil && len(held) == 1 && strings.Contains(held[0].Waits, "is still mounted at "+other)
		})
	}
	must(t, m.Clean(t.Context(), p.UID)) // the pod doesn't wait for its device
	waits()
	m = c.agent()
	waits()
	c.wantCalls("Stage one", "Publish one", "Unpublish", "Unstage")
	must(t, m.Prepare(t.Context(), p, c))
	must(t, m.Clean(t.Context(), p.UID))
	waits()
	c.wantCalls("Stage one", "Publish one", "Unpublish", "Unstage")
	must(t, unix.Unmount(other, 0))
	eventually(t, "it can be detached", func() bool { return !c.isInUse() })
	c.wantCalls()
	c.detach()
	c.finish()
}
