package cgroup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

// played plays systemd with the host's control groups, and writes down what it is asked.
type played struct {
	hierarchies func() (hierarchies, error)
	asked       []string
	refuses     error // from now on
}

func (s *played) note(what, group string, settings []setting) error {
	line := what + " " + path.Base(group)
	for _, setting := range settings {
		if strings.HasPrefix(setting.File, "cpu.") {
			line += " " + setting.File + "=" + setting.Value
		}
	}
	s.asked = append(s.asked, line)
	return s.refuses
}

// took is what was asked since the last time.
func (s *played) took() []string {
	asked := s.asked
	s.asked = nil
	return asked
}

func (s *played) Start(_ context.Context, group string, settings []setting) (bool, error) {
	if err := s.note("start", group, settings); err != nil {
		return false, err
	}
	l, err := s.hierarchies()
	if err != nil {
		return false, err
	}
	dir := filepath.Join(l.Mounts["cpu"], group)
	return !exists(dir), os.MkdirAll(dir, 0o755)
}

func (s *played) Set(_ context.Context, group string, settings []setting) error {
	return s.note("set", group, settings)
}

func (s *played) Stop(_ context.Context, group string) error { return s.note("stop", group, nil) }

func (s *played) Close() { s.asked = append(s.asked, "close") }

// onPlayed makes a manager whose systemd is played, with a pod's name that begins with prefix.
func onPlayed(t *testing.T) (m *Manager, s *played, prefix string) {
	t.Helper()
	root := "/deckhand-resources-test/" + strings.ToLower(t.Name())
	m = New(Config{Driver: tree.DriverSystemd, CgroupRoot: root}, logr.Discard())
	s = &played{hierarchies: m.hierarchies}
	m.maker = systemdSlices{systemd: s}
	t.Cleanup(func() {
		s.refuses = nil
		uids, err := m.Orphans()
		if err != nil {
			t.Error(err)
		}
		for _, uid := range uids {
			if err := m.Remove(context.Background(), uid); err != nil {
				t.Error(err)
			}
		}
		if err := m.RemoveQoSCgroups(context.Background()); err != nil {
			t.Error(err)
		}
		l, err := m.hierarchies()
		for _, mount := range l.All {
			if dir := filepath.Join(mount, path.Dir(m.PodsGroup())); err != nil || exists(dir) {
				t.Errorf("%s is left (%v)", dir, err)
			}
		}
	})
	return m, s, strings.TrimSuffix(path.Base(m.PodsGroup()), ".slice")
}

func sameLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("systemd was asked for\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestSystemdIsGivenAllThatItHasToKeep(t *testing.T) {
	m, s, prefix := onPlayed(t)
	l, _ := m.hierarchies()
	rules := m.rules(l)
	cpu := func(settings []setting) string {
		again := &played{}
		_ = again.note("", "", settings)
		return strings.TrimPrefix(again.asked[0], " . ")
	}
	p := makePod("a-b", loose)
	lim := allocated.Limits{CPUMilli: 100, CPULimitMilli: 205}
	pod := prefix + "-burstable-poda_b.slice"
	tiers := []string{
		"start " + prefix + ".slice", "start " + prefix + "-burstable.slice", "start " + prefix + "-besteffort.slice",
		"set " + prefix + "-besteffort.slice " + cpu([]setting{rules.Shares(2)}),
	}
	settings := cpu(m.podSettings(p, lim))
	if !strings.Contains(settings, "21000") {
		t.Fatalf("%s: CPU quotas are whole percents for systemd", settings)
	}
	weight := "set " + prefix + "-burstable.slice " + cpu([]setting{rules.Shares(102)})

	m.mustEnsure(t, p, lim)
	m.reads(t, m.Group(p), m.podSettings(p, lim))
	got := s.took()
	sameLines(t, got[:len(tiers)], tiers...)
	sameLines(t, got[len(got)-2:], "start "+pod+" "+settings, weight) // on cgroup v2 there are memory's before

	lim.CPULimitMilli = 300
	settings = cpu(m.podSettings(p, lim))
	m.mustEnsure(t, p, lim)
	m.reads(t, m.Group(p), m.podSettings(p, lim))
	sameLines(t, s.took(), "start "+pod+" "+settings, "set "+pod+" "+settings)
	if err := m.Resize(t.Context(), p, lim); err != nil {
		t.Error(err)
	}
	sameLines(t, s.took(), "set "+pod+" "+settings)
	if got, err := m.Orphans(); err != nil || !slices.Equal(got, []types.UID{"a-b"}) {
		t.Errorf("found %q again (%v)", got, err)
	}
	if err := m.Remove(t.Context(), p.UID); err != nil {
		t.Error(err)
	}
	sameLines(t, s.took(), "stop "+pod, "set "+prefix+"-burstable.slice "+cpu([]setting{rules.Shares(2)}))
	m.Close()
	sameLines(t, s.took(), "close")
}

func TestSystemdIsNotGivenWhatTheKernelRefused(t *testing.T) {
	m, s, _ := onPlayed(t)
	p := makePod("a", exact)
	m.mustEnsure(t, p, allocated.Limits{})
	s.took()
	l, _ := m.hierarchies()
	bad := []setting{m.rules(l).Shares(2)}
	bad[0].Value = "nonsense"
	if err := m.maker.set(t.Context(), l, m.Group(p), bad); !errors.Is(err, unix.EINVAL) {
		t.Errorf("got %v", err)
	}
	sameLines(t, s.took())
}

// Systemd would make the tier by itself, and pods in it had the weight of a default.
func TestSystemdMakesNoPodInAMissingQoSCgroup(t *testing.T) {
	m, s, prefix := onPlayed(t)
	l, _ := m.hierarchies()
	if _, err := m.maker.pod(t.Context(), l, m.Group(makePod("a", loose)), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	sameLines(t, s.took())

	m.mustEnsure(t, makePod("a", loose), allocated.Limits{CPUMilli: 100})
	if err := m.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	m.made = true
	if err := errors.Join(m.removeIfEmpty(t.Context(), l, m.QoSCgroup(v1.PodQOSBurstable))); err != nil {
		t.Fatal(err)
	}
	s.took()
	m.mustEnsure(t, makePod("a", loose), allocated.Limits{CPUMilli: 100})
	if got := s.took(); !slices.Contains(got, "start "+prefix+"-burstable.slice") {
		t.Errorf("systemd was asked for %q", got)
	}
	m.burstableWeighs(t, 102)
}

// A group whose slice couldn't be stopped is found again.
func TestSystemdFailsToStopASlice(t *testing.T) {
	m, s, _ := onPlayed(t)
	m.mustEnsure(t, makePod("a", exact), allocated.Limits{})
	s.refuses = errors.New("systemd says no")
	if err := m.Remove(t.Context(), "a"); !errors.Is(err, s.refuses) || !strings.Contains(err.Error(), `pod "a"`) {
		t.Errorf("got %v", err)
	}
	if got, err := m.Orphans(); err != nil || !slices.Equal(got, []types.UID{"a"}) {
		t.Errorf("found %q again (%v)", got, err)
	}
}
