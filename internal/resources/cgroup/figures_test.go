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
)

// figuresGroup is a pod's group with a process that has used some CPU time and memory.
func figuresGroup(t testing.TB) (*Manager, string) {
	m := onHostWith(t, Config{PIDsLimit: 1000}) // so that processes are counted on cgroup v2, too
	p := makePod("figures", loose)
	if err := m.Ensure(t.Context(), p, allocated.PodLimits(p, nil)); err != nil {
		t.Fatal(err)
	}
	l, _ := m.layout()
	name := m.group(p)
	// It is another program, with memory of its own, once it is in the group.
	cmd := exec.Command("sh", "-c", "read go; exec sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; kill -STOP $$'")
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
	for _, mount := range l.all {
		dir := filepath.Join(mount, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if l.v2 || l.mounts["cpuset"] != mount {
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
	f, err := r.Read(name, Throttling)
	if err != nil {
		t.Fatal(err)
	}
	l, _ := m.layout()
	theirs, err := library(t, l, name).GetStats()
	if err != nil {
		t.Fatal(err)
	}
	idle := "total_inactive_file"
	if l.v2 {
		idle = "inactive_file"
	}
	memory := &theirs.MemoryStats
	type figures struct{ CPU, User, Memory, WorkingSet, PIDs uint64 }
	want := figures{theirs.CpuStats.CpuUsage.TotalUsage, theirs.CpuStats.CpuUsage.UsageInUsermode, memory.Usage.Usage, memory.Usage.Usage - memory.Stats[idle], theirs.PidsStats.Current}
	have := figures{f.CPU.Usage, f.CPU.User, f.Memory.Usage, f.Memory.WorkingSet, f.PIDs.Current}
	if !l.v2 {
		have.User, want.User = 0, 0 // the library scales it to the whole
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("the library's (-) and ours (+):\n%s", diff)
	}
	if f.CPU.Usage == 0 || f.Memory.Usage == 0 {
		t.Errorf("nothing was used: %+v %+v", f.CPU, f.Memory)
	}
	if just, err := r.Read(name, JustCPU); err != nil || just.CPU.Usage != f.CPU.Usage || just.Memory != nil {
		t.Errorf("CPU time alone: %+v, %v", just, err)
	}
	if _, err := r.Processes(name); err != nil || r.isOpen {
		t.Errorf("a reader keeps a directory open: %v, %v", r.isOpen, err)
	}
	if (f.CPUPressure != nil) != (l.v2 && unix.Access("/proc/pressure/cpu", unix.R_OK) == nil) {
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
	f, err := r.Read("/", Throttling)
	if err != nil || f.CPU.Usage == 0 || f.Memory.Usage == 0 || f.Memory.WorkingSet > f.Memory.Usage {
		t.Errorf("%+v %+v %v", f.CPU, f.Memory, err)
	}
}

// A kernel with PSI has it in each group of cgroup v2, also beside cgroup v1's controllers.
func TestPressure(t *testing.T) {
	p := parsePressure("some avg10=1.50 avg60=2.25 avg300=3.00 total=400\nfull avg10=0.50 avg60=0.25 avg300=0.12 total=7\n")
	if want := (&Pressure{Some: Stalls{1.5, 2.25, 3, 400}, Full: Stalls{0.5, 0.25, 0.12, 7}}); !cmp.Equal(want, p) {
		t.Errorf("got %+v", p)
	}
	if p := parsePressure(""); p != nil {
		t.Errorf("of nothing: %+v", p)
	}
	r := newReader(layout{v2: true, mounts: map[string]string{"cpu": "/sys/fs/cgroup", "memory": "/sys/fs/cgroup"}})
	if want := unix.Access("/proc/pressure/cpu", unix.R_OK) == nil; r.pressure != want {
		t.Errorf("the kernel has pressure: %v, want %v", r.pressure, want)
	}
	if r.pressure {
		if p := r.stalls("/", "cpu"); p == nil || p.Some.Total == 0 {
			t.Errorf("the machine's is %+v", p)
		}
	}
	if r := newReader(layout{mounts: map[string]string{}}); r.pressure {
		t.Error("cgroup v1 has it, too")
	}
}

func library(t testing.TB, l layout, name string) cgroups.Manager {
	t.Helper()
	paths := map[string]string{}
	for _, controller := range []string{"cpu", "cpuacct", "memory", "pids"} {
		paths[controller] = filepath.Join(l.mounts[controller], name)
	}
	if l.v2 {
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
			if _, err := r.Read(name, Plain); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		l, _ := m.layout()
		lib := library(b, l, name)
		for b.Loop() {
			if _, err := lib.GetStats(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// What cgroup v2 has in its files, of a group that is limited, as a kernel with pressure writes them.
func TestFiguresOnV2(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"cpu.stat":            "usage_usec 3000\nuser_usec 2000\nsystem_usec 1000\nnr_periods 10\nnr_throttled 4\nthrottled_usec 70\n",
		"cpu.weight":          "100\n",
		"cpu.max":             "50000 100000\n",
		"memory.current":      "9000\n",
		"memory.stat":         "anon 4096\nfile 3000\nkernel 500\nfile_mapped 200\ninactive_file 1000\nactive_file 2000\npgfault 30\npgmajfault 3\n",
		"memory.max":          "20000\n",
		"memory.swap.current": "512\n",
		"memory.swap.max":     "max\n",
		"memory.peak":         "15000\n",
		"memory.min":          "300\n",
		"memory.events":       "low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\n",
		"pids.current":        "5\n",
		"pids.max":            "max\n",
		"io.stat":             "999999:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n",
		"cpu.pressure":        "some avg10=1.00 avg60=2.00 avg300=3.00 total=4\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := layout{v2: true, mounts: map[string]string{}}
	for _, c := range []string{"cpu", "memory", "pids", "io"} {
		l.mounts[c] = filepath.Dir(dir)
	}
	r := newReader(l)
	r.pressure = true
	f, err := r.Read("/"+filepath.Base(dir), Throttling)
	if err != nil {
		t.Fatal(err)
	}
	want := Figures{At: f.At,
		CPU: &CPU{Usage: 3_000_000, User: 2_000_000, System: 1_000_000, Periods: 10, ThrottledPeriods: 4, Throttled: 70_000, Shares: 2597, Quota: 50000, Period: 100000},
		Memory: &Memory{Usage: 9000, WorkingSet: 8000, RSS: 4096, Cache: 3000, Mapped: 200, ActiveFile: 2000, InactiveFile: 1000, PageFaults: 30, MajorPageFaults: 3,
			OwnPageFaults: 30, OwnMajorPageFaults: 3,
			Limit: 20000, Swap: 512, SwapLimit: Unlimited, Max: 15000, Failures: 7, Kernel: 500, OOMKills: 2, Reservation: 300},
		PIDs:        &PIDs{Current: 5, Limit: Unlimited},
		IO:          []DeviceIO{{Device: "999999:0", Number: "999999:0", Reads: 1, ReadBytes: 10, Writes: 2, WrittenBytes: 20}},
		CPUPressure: &Pressure{Some: Stalls{1, 2, 3, 4}},
	}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.current"), []byte("much\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := r.Read("/"+filepath.Base(dir), Plain); err == nil || f.Memory != nil || f.CPU == nil {
		t.Errorf("with a broken memory.current: %+v, %v", f, err)
	}
}

// TestPageFaultsOnV1: those of a group's own processes are told apart from those in groups below it.
func TestPageFaultsOnV1(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"memory.usage_in_bytes": "9000\n",
		"memory.stat":           "pgfault 5\npgmajfault 1\ntotal_pgfault 30\ntotal_pgmajfault 3\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := newReader(layout{mounts: map[string]string{"memory": filepath.Dir(dir)}})
	var m Memory
	if err := r.memory("/"+filepath.Base(dir), JustCPU, &m); err != nil {
		t.Fatal(err)
	}
	want := Memory{Usage: 9000, WorkingSet: 9000, PageFaults: 30, MajorPageFaults: 3, OwnPageFaults: 5, OwnMajorPageFaults: 1}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestReadersLeaveNothingOpen: what is asked of a group once keeps no descriptor of its directory.
func TestReadersLeaveNothingOpen(t *testing.T) {
	l, err := findLayout()
	if err != nil {
		t.Fatal(err)
	}
	own := func() (n int) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if target, _ := os.Readlink("/proc/self/fd/" + e.Name()); target == l.mounts["memory"] {
				n++
			}
		}
		return n
	}
	before := own()
	for range 3 {
		if _, err := l.memory("/"); err != nil {
			t.Fatal(err)
		}
	}
	if after := own(); after != before {
		t.Errorf("%d descriptors are open of the group's directory, %d before", after, before)
	}
}
