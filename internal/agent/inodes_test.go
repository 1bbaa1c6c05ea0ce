package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// An agent that comes back to a disk without a free inode manages what runs, says what fails, and goes on as soon as it can.
func TestNoFreeInode(t *testing.T) {
	r := newRig(t)
	root := r.path("root")
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
	first := r.newest("a/main").Id
	r.stop()
	fill(t, root)
	r.up()
	c := r.client()
	if err := r.Exit(first, 1, ""); err != nil {
		t.Fatal(err)
	}
	r.await("why it isn't restarted is reported", func() string {
		s, err := c.Snapshot(t.Context())
		if err != nil {
			return err.Error()
		}
		if told := fmt.Sprint(s.Pods); !strings.Contains(told, "no space left on device") {
			return told
		}
		return ""
	})
	for n := range 100 {
		if err := os.Remove(filepath.Join(root, strconv.Itoa(n))); err != nil {
			t.Fatal(err)
		}
	}
	r.await("the container that ended runs again", func() string {
		if problem := r.running("a/main")(); problem != "" {
			return problem
		}
		if r.newest("a/main").Id == first {
			return "it is the first one"
		}
		return ""
	})
}

// fill takes all inodes of a file system.
func fill(t *testing.T, dir string) {
	t.Helper()
	for n := 0; ; n++ {
		f, err := os.Create(filepath.Join(dir, strconv.Itoa(n)))
		if err != nil {
			break
		}
		f.Close()
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Ffree != 0 {
		t.Fatalf("%d inodes are free, %v", st.Ffree, err)
	}
}
