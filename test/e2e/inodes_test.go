package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// An agent that comes back to a disk without a free inode starts, manages what runs, and says what is missing.
func TestNoFreeInode(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := unix.Mount("deckhand-test", disk, "tmpfs", 0, "mode=755,nr_inodes=20000"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after all that is on it
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	n := node.New(t, binary, node.Options{Dir: disk})
	n.Start()
	n.Write("a.yaml", pod("a"))
	n.Write("b.yaml", pod("b"))
	n.Await("two pods run", node.Ready("a", "b"))
	before, containerd := n.RunningIDs(), n.Containerd()
	for _, way := range []struct {
		name string
		end  func()
	}{
		{"it was killed", n.Kill},
		{"an orderly stop", n.Stop},
	} {
		way.end()
		empty := fill(t, disk)
		n.Start()
		n.Await("both pods are adopted after "+way.name, agentIs(n), node.Ready("a", "b"), noRestarts)
		unchanged(t, before, n.RunningIDs())
		if got := n.Containerd(); got != containerd {
			t.Errorf("containerd was %d and is %d after %s", containerd, got, way.name)
		}
		if out, code := n.Deckhand("pods"); code != 0 {
			t.Errorf("pods ended with %d after %s: %s", code, way.name, out)
		}
		if err := os.RemoveAll(empty); err != nil {
			t.Fatal(err)
		}
	}
	if got := n.Logged(); strings.Count(got, "has no inode free") != 2 {
		t.Error("the log doesn't say at each start that no inode is free")
	}
	empty := fill(t, disk)
	n.Remove("a.yaml")
	n.Await("a pod can go without a free inode", node.Only("b"), node.Ready("b"))
	if err := os.RemoveAll(empty); err != nil {
		t.Fatal(err)
	}
	n.Write("a.yaml", pod("a"))
	n.Await("with free inodes new pods come up", node.Ready("a", "b"))
}

// fill takes all inodes of a file system, with files in a directory that it returns.
func fill(t *testing.T, disk string) string {
	t.Helper()
	dir, err := os.MkdirTemp(disk, "fill")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			break
		}
		f.Close()
	}
	var st unix.Statfs_t
	if err := unix.Statfs(disk, &st); err != nil || st.Ffree != 0 {
		t.Fatalf("%d inodes are free, %v", st.Ffree, err)
	}
	return dir
}
