package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
	"github.com/deckhand-node/deckhand/internal/volume/killtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onHost makes a manager with a cgroup root of its own on the real host, and
// checks at the end that nothing of it is left.
func onHost(t testing.TB) *Manager { return onHostWith(t, Config{}) }

// driver is what DECKHAND_TEST_CGROUP_DRIVER says: what is promised holds for each. The
// test in test/systemd runs this one with systemd's, where that is the first process.
func driver() tree.Driver { return tree.Driver(os.Getenv("DECKHAND_TEST_CGROUP_DRIVER")) }

// newManager makes a manager that is closed when the test ends.
func newManager(t testing.TB, c Config) *Manager {
	m := New(c, logr.Discard())
	t.Cleanup(m.Close)
	return m
}

// onHostWith takes all but the driver and the cgroup root from c.
func onHostWith(t testing.TB, c Config) *Manager {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes real cgroups: run it as root")
	}
	c.Driver = driver()
	c.CgroupRoot = fmt.Sprintf("/deckhand-resources-test-%d/%s", killtest.PID(), strings.ToLower(t.Name()))
	m := newManager(t, c)
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		left, err := m.Orphans()
		if err != nil {
			t.Error(err)
		}
		for _, uid := range left {
			if err := m.Remove(ctx, uid); err != nil {
				t.Error(err)
			}
		}
		if err := m.RemoveQoSCgroups(ctx); err != nil {
			t.Error(err)
		}
		l, _ := m.hierarchies()
		for _, mount := range l.All {
			if dir := filepath.Join(mount, path.Dir(m.PodsGroup())); exists(dir) {
				t.Errorf("%s is left", dir)
			}
		}
	})
	return m
}

// podSettings are the values of the pod's group.
func (m *Manager) podSettings(p *v1.Pod, lim allocated.Limits) []setting {
	l, _ := m.hierarchies()
	return m.rules(l).Pod(spec.QOSClass(p), lim, hugePages(p))
}

// burstableWeighs checks the tier's weight.
func (m *Manager) burstableWeighs(t *testing.T, shares int64) {
	t.Helper()
	l, _ := m.hierarchies()
	m.reads(t, m.QoSCgroup(v1.PodQOSBurstable), []setting{m.rules(l).Shares(shares)})
}

// reads checks values of the group against what its settings say.
func (m *Manager) reads(t *testing.T, name string, want []setting) {
	t.Helper()
	l, err := m.hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range want {
		got, err := os.ReadFile(filepath.Join(l.Mounts[s.Controller], name, s.File))
		if s.Optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		is := strings.TrimSpace(string(got))
		if n, _ := strconv.ParseInt(is, 10, 64); n > counters.LeastUnlimited && s.Value == "-1" {
			continue // as cgroup v1 shows it: the greatest number of whole pages
		}
		if err != nil || is != s.Value {
			t.Errorf("%s of %s is %q (%v), want %s", s.File, name, got, err, s.Value)
		}
	}
}

func TestEnsureAndRemoveOnTheHost(t *testing.T) {
	m := onHost(t)
	l, _ := m.hierarchies()
	pods := []*v1.Pod{makePod("g", exact), makePod("b", loose), makePod("e", nothing)}
	for range 2 { // again changes nothing
		for _, p := range pods {
			if err := m.Ensure(t.Context(), p, allocated.PodLimits(p, nil)); err != nil {
				t.Fatal(err)
			}
			m.reads(t, m.Group(p), m.podSettings(p, allocated.PodLimits(p, nil)))
		}
	}
	m.reads(t, m.QoSCgroup(v1.PodQOSBestEffort), []setting{m.rules(l).Shares(2)})
	m.burstableWeighs(t, 102)
	if got, err := m.Orphans(); err != nil || !slices.Equal(got, []types.UID{"b", "e", "g"}) {
		t.Errorf("Orphans: %v, %v", got, err)
	}
	// What the runtime makes in other hierarchies goes with the pod.
	for _, mount := range l.All {
		if err := os.MkdirAll(filepath.Join(mount, m.Group(pods[0]), "container", "nested"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range pods {
		for range 2 {
			if err := m.Remove(t.Context(), p.UID); err != nil {
				t.Error(err)
			}
		}
		for _, mount := range l.All {
			if dir := filepath.Join(mount, m.Group(p)); exists(dir) {
				t.Errorf("%s is left", dir)
			}
		}
	}
	if got, err := m.Orphans(); err != nil || len(got) != 0 {
		t.Errorf("Orphans after removal: %v, %v", got, err)
	}
}

func TestBurstableCgroupHasTheWeightThatItsPodsAskFor(t *testing.T) {
	m := onHost(t)
	weighs := func(shares int64) {
		t.Helper()
		m.burstableWeighs(t, shares)
	}
	half := need{"500m", "", "", ""}
	for _, p := range []*v1.Pod{makePod("running", half), makePod("guaranteed", exact), makePod("best", nothing)} {
		if err := m.Ensure(t.Context(), p, allocated.PodLimits(p, nil)); err != nil {
			t.Fatal(err)
		}
	}
	weighs(512)
	for _, uid := range []string{"a", "b", "b"} {
		if err := m.Ensure(t.Context(), makePod(uid, half), allocated.PodLimits(makePod(uid, half), nil)); err != nil {
			t.Fatal(err)
		}
	}
	weighs(1536)
	for _, uid := range []types.UID{"a", "running", "unknown"} {
		if err := m.Remove(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
	}
	weighs(512)
}

func TestQoSCgroupsRemovedByOthersAreMadeAgain(t *testing.T) {
	m := onHost(t)
	p := makePod("a", loose)
	if err := m.Ensure(t.Context(), p, allocated.PodLimits(p, nil)); err != nil {
		t.Fatal(err)
	}
	if err := newManager(t, m.conf).Remove(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	if err := newManager(t, m.conf).RemoveQoSCgroups(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Ensure(t.Context(), p, allocated.PodLimits(p, nil)); err != nil {
		t.Fatal(err)
	}
	m.burstableWeighs(t, 102)
}

// start runs a process in the pod's nested group, in one hierarchy.
func start(t *testing.T, m *Manager, p *v1.Pod) *exec.Cmd {
	t.Helper()
	if err := m.Ensure(t.Context(), p, allocated.PodLimits(p, nil)); err != nil {
		t.Fatal(err)
	}
	l, _ := m.hierarchies()
	dir := filepath.Join(l.Mounts["cpu"], m.Group(p), "container")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestRemoveKillsWhatIsLeftInThePodOnly(t *testing.T) {
	m := onHost(t)
	left, other := start(t, m, makePod("left", nothing)), start(t, m, makePod("other", nothing))
	if err := m.Remove(t.Context(), "left"); err != nil {
		t.Fatal(err)
	}
	err := left.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(interface{ Signal() unix.Signal }).Signal() != unix.SIGKILL {
		t.Errorf("the process left over ended with %v, want SIGKILL", err)
	}
	if err := other.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("another pod's process: %v", err)
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait() // "signal: killed"
}

func TestRemoveGivesUpOnWhatItMustNotKill(t *testing.T) {
	m := onHost(t)
	p := makePod("own", nothing)
	if err := m.Ensure(t.Context(), p, allocated.PodLimits(p, nil)); err != nil {
		t.Fatal(err)
	}
	l, _ := m.hierarchies()
	group := filepath.Join(l.Mounts["cpu"], m.Group(p))
	join := func(dir string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
	}
	join(group)
	defer func() {
		join(l.Mounts["cpu"])
		if err := m.Remove(context.Background(), p.UID); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Remove(ctx, p.UID); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if err := m.Remove(t.Context(), p.UID); !errors.Is(err, unix.EBUSY) {
		t.Errorf("got %v, want EBUSY for the group this test is in", err)
	}
}

// BenchmarkEnsureAndRemove makes a pod's group and removes it: 2 ms are allowed for making it.
func BenchmarkEnsureAndRemove(b *testing.B) {
	m := onHost(b)
	p := makePod("bench", loose)
	for b.Loop() {
		if err := m.Ensure(b.Context(), p, allocated.PodLimits(p, nil)); err != nil {
			b.Fatal(err)
		}
		if err := m.Remove(b.Context(), p.UID); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEnsure(b *testing.B) {
	m := onHost(b)
	p := makePod("bench", loose)
	for b.Loop() {
		if err := m.Ensure(b.Context(), p, allocated.PodLimits(p, nil)); err != nil {
			b.Fatal(err)
		}
	}
}
