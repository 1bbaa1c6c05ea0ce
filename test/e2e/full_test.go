package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// TestFullDisk: on a root directory without a free byte, or inode, the commands say so, and those that end or remove something
// work: with an agent and without one, with a reserve and without one.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for name, inodes := range map[string]bool{"bytes": false, "inodes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := small(t, "size=600m,nr_inodes=20000")
			n := node.New(t, binary, node.Options{Dir: disk})
			n.Start()
			n.Write("a.yaml", pod("a"))
			n.Write("b.yaml", pod("b"))
			n.Await("two pods run", node.Ready("a", "b"))
			before := n.RunningIDs()
			waiting := filepath.Join(n.Base, "c.yaml")
			if err := os.WriteFile(waiting, []byte(pod("c")), 0o600); err != nil {
				t.Fatal(err)
			}
			if !inodes {
				shrink(t, disk)
			}
			take := func() (release func()) {
				if !inodes {
					return fillBytes(t, disk)
				}
				dir := fill(t, disk)
				return func() {
					if err := os.RemoveAll(dir); err != nil {
						t.Fatal(err)
					}
				}
			}
			says := func(code int, words string, args ...string) {
				t.Helper()
				n.Eventually(strings.Join(args, " "), func() error {
					if out, got := n.Deckhand(args...); got != code || !strings.Contains(out, words) || !strings.Contains(out, "you can: free space or inodes there: `deckhand images prune`") {
						return fmt.Errorf("it ended with %d, want %d and %q, and said:\n%s", got, code, words, out)
					}
					return nil
				})
			}
			release := take()
			if err := os.Rename(waiting, filepath.Join(n.Manifests, "c.yaml")); err != nil {
				t.Fatal(err)
			}
			says(1, "disk "+disk+": it is full: ", "why")
			says(0, "  disk "+disk+":\n    it is full: ", "node")
			says(1, "  because: the disk "+disk+" is full: ", "why", "c")
			says(1, "error: import "+tools+": image archive: the disk is full: "+disk+" has ", "images", "import", tools)
			succeeds(t, n, "default/a-"+node.Name+": stopped", "stop", "a")
			release()

			// Without an agent, and without the reserve, as on a disk that was full before there was one.
			n.Kill()
			if err := errors.Join(os.RemoveAll(filepath.Join(n.RootDir, room.Dir)), os.Symlink(tools, filepath.Join(n.RootDir, "images", "tools.tar"))); err != nil {
				t.Fatal(err)
			}
			release = take()
			n.Start()
			n.Await("an agent comes up, and says why an archive can't be imported", agentIs(n), node.Ready("b"), heldStopped("a"), node.Problem("tools.tar", "the disk is full: "+disk))
			if after := n.RunningIDs(); after["b/web"] != before["b/web"] {
				t.Errorf("b ran as %s, and runs as %s", before["b/web"], after["b/web"])
			}
			release()
			attached := n.Attached()
			n.Kill()
			take()
			if !inodes { // else reset stops them
				succeeds(t, n, "All pods are stopped", "down")
				if pid := n.Containerd(); pid != 0 {
					t.Errorf("containerd still runs as %d", pid)
				}
				take()
			}
			succeeds(t, n, "is gone", "reset", "--yes")
			n.NothingLeft(attached)
		})
	}
}

// heldStopped is the condition that a person has stopped the pod.
func heldStopped(name string) node.Condition {
	return node.Each([]string{name}, func(v local.PodView) error {
		if !v.Stopped {
			return errors.New("isn't stopped")
		}
		return nil
	})
}

// succeeds runs a command that has to succeed, and to say these words.
func succeeds(t *testing.T, n *node.Node, words string, args ...string) {
	t.Helper()
	if out, code := n.Deckhand(args...); code != 0 || !strings.Contains(out, words) {
		t.Errorf("%v ended with %d, want %q, and said:\n%s", args, code, words, out)
	}
}

// shrink leaves 24 MiB free on a tmpfs: more than what counts as full.
func shrink(t *testing.T, disk string) {
	t.Helper()
	f, err := room.Measure(disk)
	if err == nil {
		err = unix.Mount("deckhand-test", disk, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d", f.Size-f.Free+24<<20))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// fillBytes takes all bytes of a file system, until they are released.
func fillBytes(t *testing.T, disk string) (release func()) {
	t.Helper()
	f, err := os.CreateTemp(disk, "fill")
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4<<10))
	}
	var st unix.Statfs_t
	if err := errors.Join(f.Close(), unix.Statfs(disk, &st)); err != nil || st.Bfree != 0 {
		t.Fatalf("%d blocks are free, %v", st.Bfree, err)
	}
	return func() {
		if err := os.Remove(f.Name()); err != nil {
			t.Fatal(err)
		}
	}
}
