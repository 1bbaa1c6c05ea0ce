package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

// frozenPod makes a pod with a group of each container, of which the first has a process. It returns the process and the
// directories with the freezers of the pod and of that container.
func frozenPod(t *testing.T, m *Manager, p *v1.Pod) (cmd *exec.Cmd, pod, container string) {
	t.Helper()
	if err := m.Ensure(t.Context(), p, allocated.PodLimits(p, nil)); err != nil {
		t.Fatal(err)
	}
	l, _ := m.hierarchies()
	if !l.V2 && l.Mounts["freezer"] == "" {
		t.Skip("this kernel has no freezer")
	}
	for _, mount := range l.All {
		for _, name := range []string{"web", "cri-containerd-side.scope"} {
			if err := os.MkdirAll(filepath.Join(mount, m.Group(p), name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	mount := l.Mounts["freezer"]
	if l.V2 {
		mount = tree.MountPoint
	}
	pod = filepath.Join(mount, m.Group(p))
	container = filepath.Join(pod, "web")
	cmd = exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = thaw(pod) // it may be gone
		_ = thaw(container)
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // "signal: killed"
	})
	if err := os.WriteFile(filepath.Join(container, "cgroup.procs"), strconv.AppendInt(nil, int64(cmd.Process.Pid), 10), 0); err != nil {
		t.Fatal(err)
	}
	return cmd, pod, container
}

func freeze(t *testing.T, dir string) {
	t.Helper()
	if os.WriteFile(filepath.Join(dir, tree.FreezerState), []byte("FROZEN"), 0) == nil {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, tree.FreezeFile), []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
}

func TestFrozenContainersAreSeenAndThawed(t *testing.T) {
	m := onHost(t)
	p := makePod("f", nothing)
	_, pod, container := frozenPod(t, m, p)
	side := filepath.Join(pod, "cri-containerd-side.scope")
	is := func(when string, web, other bool) {
		t.Helper()
		if got := m.Frozen(t.Context(), p.UID, "web"); got != web {
			t.Errorf("%s: web is frozen: %v", when, got)
		}
		if got := m.Frozen(t.Context(), p.UID, "side"); got != other {
			t.Errorf("%s: the other one is frozen: %v", when, got)
		}
	}
	thawed := func(id string) {
		t.Helper()
		if err := m.Thaw(t.Context(), p.UID, id); err != nil {
			t.Error(err)
		}
	}
	is("at first", false, false)
	thawed("web")
	freeze(t, container)
	is("one was frozen", true, false)
	thawed("side")
	is("the other was thawed", true, false)
	thawed("web")
	is("it was thawed", false, false)
	freeze(t, pod)
	is("the pod was frozen", true, true)
	thawed("web")
	is("it was thawed with the pod", false, false)
	freeze(t, container)
	freeze(t, side)
	freeze(t, pod)
	thawed("web")
	is("it was thawed, and the pod", false, true)
	thawed("")
	is("all were thawed", false, false)

	for _, uid := range []string{"nobody", "..", ""} {
		if m.Frozen(t.Context(), makePod(uid).UID, "web") {
			t.Errorf("%q is frozen", uid)
		}
	}
	thawedNobody := m.Thaw(t.Context(), "nobody", "")
	if thawedNobody != nil {
		t.Error(thawedNobody)
	}
}

// On cgroup v1 a frozen process doesn't die of SIGKILL either.
func TestWhatIsLeftFrozenIsRemoved(t *testing.T) {
	m := onHost(t)
	p := makePod("f", nothing)
	cmd, pod, container := frozenPod(t, m, p)
	freeze(t, container)
	freeze(t, pod)
	if err := m.Remove(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // "signal: killed"
	if state, ok := cmd.ProcessState.Sys().(interface{ Signal() unix.Signal }); !ok || state.Signal() != unix.SIGKILL {
		t.Errorf("it ended so: %s", cmd.ProcessState)
	}
}
