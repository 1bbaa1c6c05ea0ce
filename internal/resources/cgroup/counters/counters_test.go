package counters

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// A kernel with PSI has it in each group of cgroup v2, also beside cgroup v1's controllers.
func TestPressure(t *testing.T) {
	p := ParsePressure("some avg10=1.50 avg60=2.25 avg300=3.00 total=400\nfull avg10=0.50 avg60=0.25 avg300=0.12 " +
		"total=7\n")
	if want := (&Pressure{Some: Stalls{1.5, 2.25, 3, 400}, Full: Stalls{0.5, 0.25, 0.12, 7}}); !cmp.Equal(want, p) {
		t.Errorf("got %+v", p)
	}
	if p := ParsePressure(""); p != nil {
		t.Errorf("of nothing: %+v", p)
	}
	r := New(true, map[string]string{"cpu": "/sys/fs/cgroup", "memory": "/sys/fs/cgroup"})
	if want := unix.Access("/proc/pressure/cpu", unix.R_OK) == nil; r.pressure != want {
		t.Errorf("the kernel has pressure: %v, want %v", r.pressure, want)
	}
	if r.pressure {
		if p := r.stalls("/", "cpu"); p == nil || p.Some.Total == 0 {
			t.Errorf("the machine's is %+v", p)
		}
	}
	if r := New(false, map[string]string{}); r.pressure {
		t.Error("cgroup v1 has it, too")
	}
}

// What cgroup v2 has in its files, of a group that is limited, as a kernel with pressure writes them.
func TestFiguresOnV2(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"cpu.stat": "usage_usec 3000\nuser_usec 2000\nsystem_usec 1000\nnr_periods 10\nnr_throttled " +
			"4\nthrottled_usec 70\n",
		"cpu.weight":     "100\n",
		"cpu.max":        "50000 100000\n",
		"memory.current": "9000\n",
		"memory.stat": "anon 4096\nfile 3000\nkernel 500\nfile_mapped 200\ninactive_file 1000\nactive_file " +
			"2000\npgfault 30\npgmajfault 3\n",
		"memory.max":          "20000\n",
		"memory.swap.current": "512\n",
		"memory.swap.max":     "max\n",
		"memory.peak":         "15000\n",
		"memory.min":          "300\n",
		"memory.events":       "low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\n",
		"pids.current":        "5\n",
		"pids.max":            "max\n",
		"io.stat":             "999999:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n",
		"cpu.pressure": "some avg10=1.00 avg60=2.00 avg300=3.00 total=4\nfull avg10=0.00 avg60=0.00 " +
			"avg300=0.00 total=0\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mounts := map[string]string{}
	for _, c := range []string{"cpu", "memory", "pids", "io"} {
		mounts[c] = filepath.Dir(dir)
	}
	r := New(true, mounts)
	r.pressure = true
	f, err := r.Read("/"+filepath.Base(dir), Throttling)
	if err != nil {
		t.Fatal(err)
	}
	want := Figures{At: f.At,
		CPU: &CPU{Usage: 3_000_000, User: 2_000_000, System: 1_000_000, Periods: 10, ThrottledPeriods: 4,
			Throttled: 70_000, Shares: 2597, Quota: 50000, Period: 100000},
		Memory: &Memory{Usage: 9000, WorkingSet: 8000, RSS: 4096, Cache: 3000, Mapped: 200, ActiveFile: 2000,
			InactiveFile: 1000, PageFaults: 30, MajorPageFaults: 3,
			OwnPageFaults: 30, OwnMajorPageFaults: 3,
			Limit: 20000, Swap: 512, SwapLimit: Unlimited, Max: 15000, Failures: 7, Kernel: 500, OOMKills: 2,
			Reservation: 300},
		PIDs: &PIDs{Current: 5, Limit: Unlimited},
		IO: []DeviceIO{
			{Device: "999999:0", Number: "999999:0", Reads: 1, ReadBytes: 10, Writes: 2, WrittenBytes: 20}},
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
	r := New(false, map[string]string{"memory": filepath.Dir(dir)})
	var m Memory
	if err := r.memory("/"+filepath.Base(dir), JustCPU, &m); err != nil {
		t.Fatal(err)
	}
	want := Memory{Usage: 9000, WorkingSet: 9000, PageFaults: 30, MajorPageFaults: 3, OwnPageFaults: 5,
		OwnMajorPageFaults: 1}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRootOnV2: in a container, the root is the container's group. On the host it has no counters but the machine's.
func TestRootOnV2(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := New(true, map[string]string{"memory": dir})
	write("memory.stat", "inactive_file 1000\n")
	m, err := r.MemoryAndLimit("/")
	if err != nil || m.Usage < 1<<20 || m.WorkingSet != m.Usage-1000 || m.Limit != Unlimited {
		t.Errorf("on the host: %+v, %v", m, err)
	}
	write("memory.current", "9000\n")
	write("memory.max", "20000\n")
	want := Memory{Usage: 9000, WorkingSet: 8000, InactiveFile: 1000, Limit: 20000, SwapLimit: Unlimited}
	if m, err := r.MemoryAndLimit("/"); err != nil || m != want {
		t.Errorf("in a container: %+v, %v, want %+v", m, err, want)
	}
	write("memory.max", "max\n")
	want.Limit = Unlimited
	if m, err := r.MemoryAndLimit("/"); err != nil || m != want {
		t.Errorf("without a limit: %+v, %v, want %+v", m, err, want)
	}
}
