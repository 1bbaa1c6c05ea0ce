package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

// figuresGroup is a pod's group with a process that has used some CPU time and memory.
func figuresGroup(t testing.TB) (*Manager, string) {
	m := onHostWith(t, Config{PIDsLimit: 1000}) // so that processes are counted on cgroup v2, too
	p := makePod("figures", loose)
	if err := m.Ensure(t.Context(), p, allocated.PodLimits(p, nil)); err != nil {
		t.Fatal(err)
	}
	l, _ := m.hierarchies()
	name := m.Group(p)
	// It is another program, with memory of its own, once it is in the group.
	cmd := exec.Command("sh", "-c",
		"read go; exec sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; kill -STOP $$'")
	start, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for _, mount := range l.All {
		dir := filepath.Join(mount, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if l.V2 || l.Mounts["cpuset"] != mount {
			if err := cgroups.WriteCgroupProc(dir, cmd.Process.Pid); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := start.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(cmd.Process.Pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the process isn't stopped: %v %v", status, err)
	}
	return m, name
}

// The figures are those that the OCI runtimes' library reads.
func TestFiguresAreTheLibrarys(t *testing.T) {
	m, name := figuresGroup(t)
	r, err := m.Reader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f, err := r.Read(name, counters.Throttling)
	if err != nil {
		t.Fatal(err)
	}
	l, _ := m.hierarchies()
	theirs, err := library(t, l, name).GetStats()
	if err != nil {
		t.Fatal(err)
	}
	idle := "total_inactive_file"
	if l.V2 {
		idle = "inactive_file"
	}
	memory := &theirs.MemoryStats
	type figures struct{ CPU, User, Memory, WorkingSet, PIDs uint64 }
	want := figures{theirs.CpuStats.CpuUsage.TotalUsage, theirs.CpuStats.CpuUsage.UsageInUsermode, memory.Usage.Usage,
		memory.Usage.Usage - memory.Stats[idle], theirs.PidsStats.Current}
	have := figures{f.CPU.Usage, f.CPU.User, f.Memory.Usage, f.Memory.WorkingSet, f.PIDs.Current}
	if !l.V2 {
		have.User, want.User = 0, 0 // the library scales it to the whole
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("the library's (-) and ours (+):\n%s", diff)
	}
	if f.CPU.Usage == 0 || f.Memory.Usage == 0 {
		t.Errorf("nothing was used: %+v %+v", f.CPU, f.Memory)
	}
	if just, err := r.Read(name, counters.JustCPU); err != nil || just.CPU.Usage != f.CPU.Usage || just.Memory != nil {
		t.Errorf("CPU time alone: %+v, %v", just, err)
	}
	if list, err := r.Processes(name); err != nil || len(list) != 1 {
		t.Errorf("its processes are %v, %v", list, err)
	}
	if (f.CPUPressure != nil) != (l.V2 && unix.Access("/proc/pressure/cpu", unix.R_OK) == nil) {
		t.Errorf("pressure is %+v", f.CPUPressure)
	}
}

// The root's are those of the machine.
func TestFiguresOfTheMachine(t *testing.T) {
	m := onHost(t)
	r, err := m.Reader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f, err := r.Read("/", counters.Throttling)
	if err != nil || f.CPU.Usage == 0 || f.Memory.Usage == 0 || f.Memory.WorkingSet > f.Memory.Usage {
		t.Errorf("%+v %+v %v", f.CPU, f.Memory, err)
	}
}

func library(t testing.TB, l hierarchies, name string) cgroups.Manager {
	t.Helper()
	paths := map[string]string{}
	for _, controller := range []string{"cpu", "cpuacct", "memory", "pids"} {
		paths[controller] = filepath.Join(l.Mounts[controller], name)
	}
	if l.V2 {
		paths = map[string]string{"": filepath.Join("/sys/fs/cgroup", name)}
	}
	lib, err := manager.NewWithPaths(&cgroups.Cgroup{Resources: &cgroups.Resources{}}, paths)
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

// BenchmarkFigures compares what it costs to read one group: as a summary does, and with the library.
func BenchmarkFigures(b *testing.B) {
	m, name := figuresGroup(b)
	r, err := m.Reader(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Read(name, counters.Plain); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		l, _ := m.hierarchies()
		lib := library(b, l, name)
		for b.Loop() {
			if _, err := lib.GetStats(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestReadersLeaveNothingOpen: what is asked of a group once keeps no descriptor of its directory.
func TestReadersLeaveNothingOpen(t *testing.T) {
	l, err := tree.Find()
	if err != nil {
		t.Fatal(err)
	}
	own := func() (n int) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if target, _ := os.Readlink("/proc/self/fd/" + e.Name()); target == l.Mounts["memory"] {
				n++
			}
		}
		return n
	}
	before := own()
	for range 3 {
		if _, err := l.Memory("/"); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Reader().Processes("/"); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Reader().Read("/", counters.Throttling); err != nil {
			t.Fatal(err)
		}
	}
	if after := own(); after != before {
		t.Errorf("%d descriptors are open of the group's directory, %d before", after, before)
	}
}
