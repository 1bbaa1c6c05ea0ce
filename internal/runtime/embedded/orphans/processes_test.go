package orphans_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded/orphans"
)

// start starts a process with an odd name that lives until it is killed, and a
// child of it. Both are gone when the test ends.
func start(t *testing.T) (parent orphans.Process) {
	t.Helper()
	shell := filepath.Join(t.TempDir(), "a) Z 1 (b") // Its name is in /proc/PID/stat.
	if err := os.Symlink("/bin/sh", shell); err != nil {
		t.Fatal(err)
	}
	// The child speaks for itself: until its exec it looks like the shim.
	cmd := exec.Command(shell, "-c", "sh -c 'echo; exec sleep 1000' & wait")
	cmd.Args = append(cmd.Args, "x", "-id", "some", "-address", t.TempDir())
	cmd.Args[0] = "/usr/bin/containerd-shim-runc-v2"
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // It was killed.
	})
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	address := cmd.Args[len(cmd.Args)-1]
	shims, err := orphans.Shims(address)
	if err != nil || len(shims) != 1 || shims[0].ID != "some" || shims[0].PID != cmd.Process.Pid {
		t.Fatalf("the shims are %v, error %v", shims, err)
	}
	if shims, err := orphans.Shims(filepath.Dir(address)); err != nil || len(shims) != 0 {
		t.Fatalf("another containerd's shims are %v, error %v", shims, err)
	}
	return shims[0].Process
}

func TestKill(t *testing.T) {
	parent := start(t)
	children, err := orphans.Descendants(parent)
	if err != nil || len(children) != 1 {
		t.Fatalf("the children are %v, error %v", children, err)
	}
	successor := orphans.Process{PID: parent.PID, Start: parent.Start + 1}
	if successor.Lives() {
		t.Error("a process lives that doesn't exist")
	}
	if err := orphans.Kill([]orphans.Process{successor, {}, {PID: 1, Start: 1}}); err != nil {
		t.Error(err)
	}
	if !parent.Lives() {
		t.Fatal("someone else was killed")
	}
	for range 2 {
		if err := orphans.Kill(append(children, parent)); err != nil {
			t.Error(err)
		}
	}
	for _, p := range append(children, parent) {
		if p.Lives() {
			t.Errorf("process %d still runs", p.PID)
		}
	}
}

func TestReadContainer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	for text, want := range map[string]orphans.Process{
		`{"init_process_pid":5,"init_process_start":7,"cgroup_paths":{"memory":"/sys/fs/cgroup/memory/x"}}`: {PID: 5, Start: 7},
		`{"init_process_pid":5,"cgroup_paths":{"memory":"/sys/fs/cgroup/memory/x"}}`:                        {},
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, ok := orphans.ReadContainer(path)
		if !ok || c.Init != want || !slices.Equal(c.Cgroups, []string{"/sys/fs/cgroup/memory/x"}) {
			t.Errorf("%s is read as %+v, %v", text, c, ok)
		}
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{path, path + "x"} {
		if c, ok := orphans.ReadContainer(bad); ok {
			t.Errorf("%s is read as %+v", bad, c)
		}
	}
}

func TestContainerCgroup(t *testing.T) {
	hierarchies := []string{"/sys/fs/cgroup/memory"}
	for dir, want := range map[string]bool{
		"/sys/fs/cgroup/memory/pod/id":    true,
		"/sys/fs/cgroup/memory/pod/other": false,
		"/sys/fs/cgroup/memory/../cpu/id": false,
		"/sys/fs/cgroup/memoryless/id":    false,
		"/etc/id":                         false,
		"":                                false,
		"/sys/fs/cgroup/memory/":          false,

		"/sys/fs/cgroup/memory/kubepods.slice/cri-containerd-id.scope":    true,
		"/sys/fs/cgroup/memory/kubepods.slice/cri-containerd-other.scope": false,
		"/sys/fs/cgroup/memory/kubepods.slice/cri-containerd-id":          false,
	} {
		if got := orphans.ContainerCgroup(dir, hierarchies, "id"); got != want {
			t.Errorf("%q: %v", dir, got)
		}
	}
}
