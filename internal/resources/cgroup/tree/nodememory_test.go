package tree

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

const (
	mi       = 1 << 20
	halfAGig = 512 * mi
)

// makeGroup makes a group below the root, which counts memory, also of each of its children.
func makeGroup(t *testing.T, l Layout, name string) {
	t.Helper()
	dir := filepath.Join(l.Mounts["memory"], name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	for _, above := range []string{filepath.Dir(dir), dir} {
		if !l.V2 {
			break
		}
		if err := os.WriteFile(filepath.Join(above, "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// limitMemory sets a group's limit.
func limitMemory(t *testing.T, l Layout, name string, limit int) {
	t.Helper()
	file := "memory.limit_in_bytes"
	if l.V2 {
		file = "memory.max"
	}
	if err := os.WriteFile(filepath.Join(l.Mounts["memory"], name, file), []byte(strconv.Itoa(limit)), 0); err != nil {
		t.Fatal(err)
	}
}

// nodeMemory reads it, and checks that nothing is odd.
func nodeMemory(t *testing.T, tree *Tree, r *counters.Reader) NodeMemory {
	t.Helper()
	n, err := tree.NodeMemory(r)
	if err != nil {
		t.Fatal(err)
	}
	if n.Usage == 0 || n.WorkingSet > n.Usage || n.Limit > uint64(tree.memory) || n.Available() > n.Limit-n.WorkingSet {
		t.Errorf("%s: %+v", n.Group, n.Memory)
	}
	return n
}

// use has a process in a group write a file in memory, which stays until the test ends.
func use(t *testing.T, l Layout, name string, size int) {
	t.Helper()
	dir := filepath.Join(l.Mounts["memory"], name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("/dev/shm", path.Base(name))
	t.Cleanup(func() {
		if err := errors.Join(os.Remove(file), os.Remove(dir)); err != nil {
			t.Error(err)
		}
	})
	cmd := exec.Command("sh", "-c", fmt.Sprintf("echo $$ > %s/cgroup.procs && head -c %d /dev/zero > %s", dir, size, file))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestNodeMemory: memory is the machine's, or that of a group that contains the pods and has a limit.
func TestNodeMemory(t *testing.T) {
	machine, err := capacity.ReadMeminfo("/")
	if err != nil {
		t.Fatal(err)
	}
	root := fmt.Sprintf("/deckhand-tree-test-%d", os.Getpid())
	tree := New(DriverCgroupfs, root, machine.Memory)
	r, err := tree.Reader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := nodeMemory(t, tree, r); n.Group != "/" || n.Limit != uint64(machine.Memory) {
		t.Errorf("before the first pod: %+v", n)
	}
	l, err := tree.Layout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	makeGroup(t, l, root)
	if n := nodeMemory(t, tree, r); n.Group != "/" {
		t.Errorf("without a limit: %+v", n)
	}
	limitMemory(t, l, root, halfAGig)
	use(t, l, root+"/before", mi)
	before := nodeMemory(t, tree, r)
	if before.Group != root || before.Limit != halfAGig {
		t.Errorf("with a limit: %+v", before)
	}
	const more = 64 * mi
	use(t, l, root+"/after", more)
	after := nodeMemory(t, tree, r)
	if took := before.Available() - after.Available(); took < more-8*mi || took > more+8*mi {
		t.Errorf("%d bytes took %d of %d", more, took, before.Available())
	}
}

func openTasks(t *testing.T, group string) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(group, "tasks"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestNodeMemoryInAContainer: a control group namespace and mounts of its own, as in a container.
func TestNodeMemoryInAContainer(t *testing.T) {
	host, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	if host.V2 {
		t.Skip("a thread can't be in another group on cgroup v2")
	}
	group := filepath.Join(host.Mounts["memory"], fmt.Sprintf("deckhand-resources-test-%d-container", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	}()
	limitMemory(t, host, filepath.Base(group), halfAGig)
	// Through open files, the thread can leave its group again from inside the namespaces.
	in, out := openTasks(t, group), openTasks(t, host.Mounts["memory"])
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread and its namespaces end with this goroutine
		done <- func() (err error) {
			thread := fmt.Append(nil, unix.Gettid())
			if _, err := in.Write(thread); err != nil {
				return err
			}
			defer func() {
				_, failed := out.Write(thread)
				err = errors.Join(err, failed)
			}()
			if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			if err := unix.Unmount(host.Mounts["memory"], 0); err != nil {
				return err
			}
			if err := unix.Mount("none", host.Mounts["memory"], "cgroup", 0, "memory"); err != nil {
				return err
			}
			tree := New(DriverCgroupfs, "/pods", 1<<40)
			r, err := tree.Reader(t.Context())
			if err != nil {
				return err
			}
			// A process of its own, in the thread's group: threads use their process's memory.
			file := filepath.Join("/dev/shm", filepath.Base(group))
			defer os.Remove(file)
			if err := exec.Command("sh", "-c", fmt.Sprintf("head -c %d /dev/zero > %s", 16*mi, file)).Run(); err != nil {
				return err
			}
			n := nodeMemory(t, tree, r)
			if n.Group != "/" || n.Limit != halfAGig || n.WorkingSet < 15*mi || n.WorkingSet > 32*mi {
				t.Errorf("in a container: %+v", n)
			}
			return nil
		}()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestMemoryFiles(t *testing.T) {
	tree := New(DriverCgroupfs, "/", 0)
	l, err := tree.Layout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(l.Mounts["memory"], "kubepods")
	want := MemoryFiles{Thresholds: dir}
	if l.V2 {
		want = MemoryFiles{Events: filepath.Join(dir, "memory.events")}
	}
	if l.Unified != "" {
		want.Pressure = filepath.Join(l.Unified, "kubepods", "memory.pressure")
	}
	if f, err := tree.MemoryFiles(t.Context(), "/kubepods"); err != nil || f != want {
		t.Errorf("got %+v, %v, want %+v", f, err, want)
	}
	f, err := tree.MemoryFiles(t.Context(), "/")
	if err != nil || f.Events != "" || f.Pressure == "" || !l.V2 && f.Thresholds != l.Mounts["memory"] {
		t.Errorf("of the machine: %+v, %v", f, err)
	}
	exists := func(file string) bool { return unix.Access(file, unix.F_OK) == nil }
	if psi := exists("/proc/pressure/memory"); exists(f.Pressure) != psi {
		t.Errorf("%s exists: %v, and the kernel has PSI: %v", f.Pressure, !psi, psi)
	}
}

func BenchmarkNodeMemory(b *testing.B) {
	tree := New(DriverCgroupfs, "/", 1<<40)
	r, err := tree.Reader(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := tree.NodeMemory(r); err != nil {
			b.Fatal(err)
		}
	}
}
