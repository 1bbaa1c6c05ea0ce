package cgroup

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

const mi = 1 << 20

func (m *Manager) mustEnsure(t *testing.T, p *v1.Pod, l allocated.Limits) {
	t.Helper()
	if err := m.Ensure(t.Context(), p, l); err != nil {
		t.Fatal(err)
	}
}

func TestResizeSetsAndLiftsLimits(t *testing.T) {
	m := onHost(t)
	p := makePod("a", loose)
	for i, lim := range []allocated.Limits{
		{CPUMilli: 100, CPULimitMilli: 1000, MemoryLimit: 64 * mi},
		{CPUMilli: 3000, CPULimitMilli: 4000, MemoryLimit: 128 * mi},
		{CPUMilli: 50, CPULimitMilli: 60, MemoryLimit: 32 * mi},
		{CPUMilli: 50},
		{CPUMilli: 50, MemoryLimit: 16 * mi},
		{CPUMilli: 50, CPULimitMilli: 1},
	} {
		set := m.Resize
		if i == 0 || i == 3 { // Ensure lifts limits, too: a restart may find another spec
			set = m.Ensure
		}
		if err := set(t.Context(), p, lim); err != nil {
			t.Fatal(err)
		}
		m.reads(t, m.Group(p), m.podSettings(p, lim))
		m.burstableWeighs(t, max(lim.CPUMilli*1024/1000, 2))
	}
}

func TestResizeWantsAGroup(t *testing.T) {
	m := onHost(t)
	if err := m.Resize(t.Context(), makePod("a", exact), allocated.Limits{CPUMilli: 1}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// container makes a group in the pod's, as the runtime does.
func (m *Manager) container(t *testing.T, p *v1.Pod, name string) string {
	t.Helper()
	l, _ := m.hierarchies()
	group := path.Join(m.Group(p), name)
	if slice, ok := strings.CutSuffix(path.Base(m.Group(p)), ".slice"); ok {
		group = path.Join(m.Group(p), slice+"-"+name+".slice")
	}
	if l.V2 && m.Driver == tree.DriverCgroupfs {
		if err := l.enableControllers(filepath.Join(tree.MountPoint, m.Group(p))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.maker.pod(t.Context(), l, group, m.rules(l).Pod(spec.QOSClass(p), allocated.Limits{}, nil)); err != nil {
		t.Fatal(err)
	}
	return group
}

// TestLimitsNeverCross resizes pods at random in the order of the core: the pod to
// what allows both, its containers, and then the pod to the new limits.
func TestLimitsNeverCross(t *testing.T) {
	m := onHost(t)
	l, _ := m.hierarchies()
	p := makePod("a", exact, exact)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	draw := func() (pod allocated.Limits, containers [2]allocated.Limits) {
		some := func(n int64) int64 { return n * rnd.Int64N(5) } // 0: no limit
		for i := range containers {
			containers[i] = allocated.Limits{CPUMilli: 100 + some(250), CPULimitMilli: some(400), MemoryLimit: some(8 * mi)}
			pod.CPUMilli += containers[i].CPUMilli
			pod.CPULimitMilli += containers[i].CPULimitMilli
			pod.MemoryLimit += containers[i].MemoryLimit
		}
		if containers[0].CPULimitMilli == 0 || containers[1].CPULimitMilli == 0 {
			pod.CPULimitMilli = 0
		}
		if containers[0].MemoryLimit == 0 || containers[1].MemoryLimit == 0 {
			pod.MemoryLimit = 0
		}
		return pod, containers
	}
	old := allocated.Limits{}
	m.mustEnsure(t, p, old)
	groups := [2]string{m.container(t, p, "c0"), m.container(t, p, "c1")}
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	for range rounds {
		next, containers := draw()
		if err := m.Resize(t.Context(), p, both(old, next)); err != nil {
			t.Fatalf("raise for %+v to %+v: %v", old, next, err)
		}
		for _, i := range rnd.Perm(2) {
			if err := m.maker.set(t.Context(), l, groups[i], m.podSettings(p, containers[i])); err != nil {
				t.Fatalf("container from %+v to %+v: %v", old, containers[i], err)
			}
		}
		if err := m.Resize(t.Context(), p, next); err != nil {
			t.Fatalf("lower from %+v to %+v: %v", old, next, err)
		}
		old = next
	}
}

func TestLoweringThePodFirstIsReportedClearly(t *testing.T) {
	m := onHost(t)
	l, _ := m.hierarchies()
	if l.V2 {
		return // allowed there
	}
	p := makePod("a", exact)
	m.mustEnsure(t, p, allocated.Limits{CPULimitMilli: 2000})
	c := m.container(t, p, "c")
	if err := m.maker.set(t.Context(), l, c, m.podSettings(p, allocated.Limits{CPULimitMilli: 2000})); err != nil {
		t.Fatal(err)
	}
	err := m.Resize(t.Context(), p, allocated.Limits{CPULimitMilli: 1000})
	if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "a cgroup in it has a higher CPU limit") || !strings.Contains(err.Error(), "default/web") {
		t.Errorf("got %v", err)
	}
}

// TestPeriodsMayChange: the period is a setting, and pods may run on under another one.
func TestPeriodsMayChange(t *testing.T) {
	m := onHost(t)
	l, _ := m.hierarchies()
	p := makePod("a", exact)
	lim := allocated.Limits{CPUMilli: 500, CPULimitMilli: 500}
	m.mustEnsure(t, p, lim)
	c := m.container(t, p, "c")
	if err := m.maker.set(t.Context(), l, c, m.podSettings(p, lim)); err != nil {
		t.Fatal(err)
	}
	for _, period := range []time.Duration{10 * time.Millisecond, time.Second, 100 * time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond} {
		later := newManager(t, m.conf)
		later.conf.CPUPeriod = period
		later.mustEnsure(t, p, lim)
		later.reads(t, later.Group(p), later.podSettings(p, lim))
	}
}

// TestHog isn't a test of its own: it is the process that uses memory in a pod.
func TestHog(t *testing.T) {
	group := os.Getenv("RESOURCES_TEST_HOG_IN")
	if group == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	memory, err := unix.Mmap(-1, 0, 48*mi, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	memory[0] = 1
	os.Stdout.WriteString("ready\n")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the other end is closed
}

// hog has a process in the group's directory use 48 MiB, which can't be reclaimed, until end is called.
func hog(t *testing.T, dir string) (end func()) {
	t.Helper()
	for file, value := range map[string]string{"memory.swappiness": "0", "memory.swap.max": "0"} { // whichever there is
		if err := cgroups.WriteFile(dir, file, value); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestHog$")
	cmd.Env = append(os.Environ(), "RESOURCES_TEST_HOG_IN="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	t.Cleanup(end)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return end
}

func TestMemoryInUseIsNotTaken(t *testing.T) {
	m := onHost(t)
	l, _ := m.hierarchies()
	p := makePod("a", exact)
	m.mustEnsure(t, p, allocated.Limits{CPUMilli: 500, MemoryLimit: 256 * mi})
	defer func() {
		if err := m.Remove(context.Background(), p.UID); err != nil {
			t.Error(err)
		}
	}()
	defer hog(t, filepath.Join(l.Mounts["memory"], m.container(t, p, "c")))()
	if used, err := l.Memory(m.Group(p)); err != nil || used.WorkingSet < 48*mi || used.WorkingSet > 128*mi {
		t.Errorf("%d bytes are used (%v), want a bit more than %d", used.WorkingSet, err, 48*mi)
	}
	err := m.Resize(t.Context(), p, allocated.Limits{CPUMilli: 500, MemoryLimit: 16 * mi})
	if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "attempting to set pod memory limit (16777216) below current usage (") {
		t.Errorf("got %v", err)
	}
	for _, lim := range []allocated.Limits{{CPUMilli: 500, MemoryLimit: 128 * mi}, {CPUMilli: 500, MemoryLimit: 512 * mi}, {CPUMilli: 500}} {
		m.mustEnsure(t, p, lim)
		m.reads(t, m.Group(p), m.podSettings(p, lim))
	}
}

// TestSpareOnV2 plays cgroup v2's files.
func TestSpareOnV2(t *testing.T) {
	cgroups.TestMode = true
	defer func() { cgroups.TestMode = false }()
	dir := t.TempDir()
	l := hierarchies{Layout: tree.Layout{V2: true, Mounts: map[string]string{"memory": dir}}}
	for file, text := range map[string]string{"memory.current": "1000\n", "memory.stat": "anon 300\nfile 700\ninactive_file 400\nactive_file 300\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for limit, fits := range map[int64]bool{0: true, 1: false, 599: false, 600: true, 1000: true, 5000: true} {
		if err := l.refuseBelowUsage(".", limit); (err == nil) != fits || err != nil && !errors.Is(err, unix.EBUSY) {
			t.Errorf("limit %d: %v, want it to fit: %v", limit, err, fits)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.current"), []byte("much\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.refuseBelowUsage(".", 1); err == nil || errors.Is(err, unix.EBUSY) {
		t.Errorf("what can't be read: %v", err)
	}
}

// both allows what a and b allow; 0 is no limit.
func both(a, b allocated.Limits) allocated.Limits {
	looser := func(a, b int64) int64 {
		if a == 0 || b == 0 {
			return 0
		}
		return max(a, b)
	}
	return allocated.Limits{CPUMilli: max(a.CPUMilli, b.CPUMilli), CPULimitMilli: looser(a.CPULimitMilli, b.CPULimitMilli), MemoryLimit: looser(a.MemoryLimit, b.MemoryLimit)}
}
