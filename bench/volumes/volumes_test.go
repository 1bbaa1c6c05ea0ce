package volumes

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/bench/report"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

// A volume that a failure left is taken away with the directory.
func TestSweep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volumes")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := bare(filepath.Join(dir, "a"), true); err != nil {
		t.Fatal(err)
	}
	if err := sweep(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("the directory is left")
	}
}

func leftBehind(t *testing.T) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "deckhand-volumes-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// Floor and plugins both make their volumes and take them away again.
func TestSingles(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	singles := map[string]*pair{}
	o := Options{Single: 3, Out: io.Discard}
	for range 2 {
		if err := o.singles(t.Context(), singles); err != nil {
			t.Fatal(err)
		}
	}
	leftBehind(t)
	if len(singles) != 4 {
		t.Errorf("measured %v", singles)
	}
	for name, p := range singles {
		if len(p.floor) != 2 || len(p.deckhand) != 2 || medians(p.floor).time <= 0 || medians(p.deckhand).time <= 0 {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// Volumes of a CSI driver are published and unpublished, by bare calls and by the plugin.
func TestCSI(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	m, o := measured{}, Options{Single: 3, Out: io.Discard}
	for range 2 {
		if err := o.csi(t.Context(), &m.csi); err != nil {
			t.Fatal(err)
		}
	}
	leftBehind(t)
	for _, list := range [][]time.Duration{m.csi.write, m.csi.published, m.csi.publish, m.csi.unpublished, m.csi.release} {
		if len(list) != 6 || slices.Min(list) <= 0 {
			t.Errorf("measured %v", list)
		}
	}
	table := m.csiTable()
	if _, err := table.WriteTo(t.Output()); err != nil || len(table.Rows) != 2 {
		t.Errorf("rows %q, %v", table.Rows, err)
	}
}

// The floor makes the layout that the plugins make.
func TestFloor(t *testing.T) {
	dir := t.TempDir()
	if err := fill(dir); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != text {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if to, err := os.Readlink(filepath.Join(dir, name)); err != nil || to != "..data/"+name {
			t.Errorf("%s leads to %q, %v", name, to, err)
		}
	}
}

// An agent that can't be started is reported, and leaves nothing.
func TestMissingAgent(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	o := Options{BinDir: t.TempDir(), Pods: 1, Single: 1, Edits: 1, Rounds: 1, Out: io.Discard}
	if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "start agent") {
		t.Errorf("error is %v, want that the agent can't be started", err)
	}
	leftBehind(t)
}

func TestManifests(t *testing.T) {
	for _, l := range loads {
		var p v1.Pod
		r := rig{load: l}
		if err := yaml.UnmarshalStrict(r.pod("a"), &p); err != nil {
			t.Fatalf("%s: %v", l.name, err)
		}
		if n := len(p.Spec.Volumes); n != len(l.volumes) || n != 0 && n != PerPod || len(p.Spec.Containers[0].VolumeMounts) != n {
			t.Errorf("%s: %d volumes, %d mounts", l.name, n, len(p.Spec.Containers[0].VolumeMounts))
		}
	}
}

// An edit is visible when every volume has it, each in its own time.
func TestVisible(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	write := func(dir, version string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "new"), []byte(version), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "version")); err != nil {
			t.Fatal(err)
		}
	}
	write(one, "1")
	write(two, "0")
	start := time.Now() // before the timer's own
	time.AfterFunc(20*time.Millisecond, func() { write(two, "1") })
	took, err := visible(t.Context(), []string{one, two}, "1", start)
	if err != nil || len(took) != 2 || took[1] <= took[0] || took[1] < 20*time.Millisecond {
		t.Errorf("took %v, %v", took, err)
	}
	if _, err := visible(t.Context(), []string{t.TempDir()}, "1", time.Now()); err == nil {
		t.Error("a volume without the file is taken for one that waits")
	}
}

func TestTables(t *testing.T) {
	rest := func(cpu time.Duration) report.Rest {
		return report.Rest{CPU: cpu, While: 20 * time.Second, Memory: report.Memory{RSS: 50 << 20, PSS: 40 << 20}}
	}
	m := measured{singles: map[string]*pair{"ConfigMap, made": {
		floor: []cost{{100 * time.Microsecond, 90 * time.Microsecond}}, deckhand: []cost{{150 * time.Microsecond, 180 * time.Microsecond}},
	}}}
	m.csi = csiTimes{publish: []time.Duration{2 * time.Millisecond}, published: []time.Duration{time.Millisecond},
		release: []time.Duration{9 * time.Millisecond}, unpublished: []time.Duration{time.Millisecond}}
	m.add(without, life{running: time.Second, cpu: time.Second, rest: rest(20 * time.Millisecond)})
	m.add(configMaps, life{running: 1120 * time.Millisecond, cpu: 1240 * time.Millisecond, edits: []time.Duration{10 * time.Millisecond, 1200 * time.Millisecond}, mounts: 0})
	m.add(mixed, life{rest: rest(30 * time.Millisecond), edits: []time.Duration{10 * time.Millisecond, 1200 * time.Millisecond}, mounts: 300, leftMounts: 1})
	var got []string
	for _, table := range m.tables(Options{Pods: 100, Rounds: 1, Edits: 1, Single: 10}) {
		for _, row := range table.Rows {
			got = append(got, strings.Join(row, "|"))
		}
	}
	want := []string{
		"ConfigMap, made|100 µs|150 µs|1.50x|90 µs|180 µs|2.00x", "ConfigMap, made by an agent|100 µs|200 µs|2.00x|90 µs|400 µs|4.44x",
		"published|1000 µs|2000 µs|2.00x|1000 µs|≤ 3 ms|ok", "unpublished|1000 µs|9000 µs|9.00x|8000 µs|≤ 3 ms|MISSED",
		"0|0|1.00 mcores|50.0 MiB|40.0 MiB||", "600|300|1.50 mcores|50.0 MiB|40.0 MiB|≤ 0.5 mcores more|ok",
		"6 ConfigMap volumes each|605 ms|1.20 s||", "6 volumes of 6 kinds each|605 ms|1.20 s|< 1.00 s|MISSED",
		"no volumes|0|0|0|ok", "6 ConfigMap volumes each|0|0|0|ok", "6 volumes of 6 kinds each|1|0|0|MISSED",
	}
	if len(got) != len(want) {
		t.Fatalf("rows: %q", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("row %d is %q, want %q", i, got[i], want[i])
		}
	}
}
