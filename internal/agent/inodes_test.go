package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// An agent that can't even make the local API's socket runs pods, and hears commands as soon as there is an inode. It gives up
// its reserve for that. (With the dead agent's socket in place it needs none: see TestNoFreeInode in test/e2e.)
func TestNoInodeForTheSocket(t *testing.T) {
	r := newRig(t)
	root := r.path("root")
	disk := &smallDisk{dir: root, inodes: true}
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("deckhand-test", root, "tmpfs", 0, "nr_inodes=600,mode=755"); err != nil { // the rig unmounts it
		t.Fatal(err)
	}
	r.want("a", "  containers:\n  - {name: main, image: IMAGE}\n")
	r.up()
	r.await("the pod runs", r.running("a/main"))
	r.client()
	r.stop()
	// Also what another version or configuration writes at its start is missing.
	if err := errors.Join(os.Remove(local.SocketPath(root)), os.Remove(filepath.Join(root, rootdir.Record))); err != nil {
		t.Fatal(err)
	}
	disk.fill(t)
	r.up()
	r.client() // by the reserve
	r.stop()
	if err := errors.Join(os.RemoveAll(filepath.Join(root, room.Dir)), os.Remove(local.SocketPath(root))); err != nil {
		t.Fatal(err)
	}
	disk.fill(t)
	r.up()
	r.unwant("a")
	r.await("the pod is stopped by an agent that nobody can ask", r.nothing("a"))
	disk.free(t)
	r.client() // answers after a while
}
