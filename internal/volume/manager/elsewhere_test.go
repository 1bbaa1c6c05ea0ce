package manager_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/volume/manager"
)

// deviceAt mounts a file system of its own there, from what looks like a device.
func deviceAt(t testing.TB, dir string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	must(t, unix.Mount("/dev/deckhand-test", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// onDevice mounts the pod's volume, mounts a device at the place where the volume is staged, and mounts the device
// elsewhere, too.
func (c *cluster) onDevice(m *manager.Manager, p *v1.Pod) (other string) {
	c.t.Helper()
	c.attach("va-1", "one")
	eventually(c.t, "it is mounted", func() bool { return m.Prepare(c.t.Context(), p, c) == nil })
	staged, _ := filepath.Glob(filepath.Join(c.root, "plugins/kubernetes.io/csi/*/*/globalmount"))
	if len(staged) != 1 {
		c.t.Fatalf("staged at %q", staged)
	}
	_ = unix.Unmount(staged[0], 0) // the driver has bound a directory
	deviceAt(c.t, staged[0])
	must(c.t, os.Mkdir(filepath.Join(staged[0], "dir"), 0o700))
	other = c.t.TempDir()
	must(c.t, unix.Mount(filepath.Join(staged[0], "dir"), other, "", unix.MS_BIND, ""))
	c.t.Cleanup(func() { _ = unix.Unmount(other, unix.MNT_DETACH) })
	return other
}

// waitsFor fails unless the volume is in use, and the list of held volumes has the path.
func (c *cluster) waitsFor(m *manager.Manager, path string) {
	c.t.Helper()
	eventually(c.t, "the path is listed", func() bool {
		held, err := m.Held()
		return err == nil && len(held) == 1 && strings.Contains(held[0].Waits, "/dev/deckhand-test) is still mounted at "+path)
	})
	if !c.isInUse() {
		c.t.Error("a mounted device isn't in use")
	}
}

// A staged device that is mounted elsewhere, too, stays in use until it isn't any more, also for the next agent. The
// driver unstages it once, and stages it anew for another pod. Another device that gets the number of the first one
// doesn't count, nor does the ID of its mount.
func TestDeviceIsMountedElsewhere(t *testing.T) {
	c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
	m := c.agent()
	p := c.user(1)
	other := c.onDevice(m, p)
	must(t, m.Clean(t.Context(), p.UID)) // the pod doesn't wait
	c.waitsFor(m, other)
	m = c.agent()
	c.waitsFor(m, other)
	c.wantCalls("Stage one", "Publish one", "Unpublish", "Unstage")
	must(t, m.Prepare(t.Context(), p, c))
	must(t, m.Clean(t.Context(), p.UID))
	c.waitsFor(m, other)
	c.wantCalls("Stage one", "Publish one", "Unpublish", "Unstage")
	c.end()
	var before, after unix.Stat_t
	must(t, unix.Stat(other, &before))
	must(t, unix.Unmount(other, 0))
	stranger := t.TempDir()
	deviceAt(t, stranger)
	if must(t, unix.Stat(stranger, &after)); before.Dev != after.Dev {
		t.Logf("the device has the number %d instead of %d", after.Dev, before.Dev)
	}
	c.agent()
	eventually(t, "it can be detached", func() bool { return !c.isInUse() })
	c.wantCalls()
	c.detach()
	c.finish()
}

// A mount elsewhere doesn't keep a device that no controller detaches, nor a device that is forgotten.
func TestDeviceMountedElsewhereIsLetGo(t *testing.T) {
	for name, do := range map[string]func(c *cluster, m *manager.Manager){
		"another boot": func(c *cluster, _ *manager.Manager) {
			notes, _ := filepath.Glob(filepath.Join(c.root, "plugins/kubernetes.io/csi/*/*/vol_data.json"))
			text, err := os.ReadFile(append(notes, "none")[0])
			earlier := filepath.Join(c.t.TempDir(), "earlier")
			must(c.t, errors.Join(err, os.WriteFile(earlier, []byte(strings.ReplaceAll(string(text), `\"this\"`, `\"earlier\"`)), 0o600)))
			must(c.t, os.Rename(earlier, notes[0]))
		},
		"forgotten": func(c *cluster, m *manager.Manager) {
			must(c.t, m.ForgetDevice(c.t.Context(), attachedDriver+"^"+c.handle))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
			m := c.agent()
			p := c.user(1)
			other := c.onDevice(m, p)
			must(t, m.Clean(t.Context(), p.UID))
			c.waitsFor(m, other)
			do(c, m)
			eventually(t, "it can be detached", func() bool { return !c.isInUse() })
			c.wantCalls("Stage one", "Publish one", "Unpublish", "Unstage")
			c.detach()
			c.finish()
		})
	}
}
