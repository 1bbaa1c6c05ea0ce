package pressure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/deckhand-node/deckhand/internal/host/alarm"
	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
	"github.com/deckhand-node/deckhand/internal/resources/stats"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// When the alarm comes, the threshold is met, and by less than a step.
func TestAlarmAt(t *testing.T) {
	const least = 100 << 20
	for _, inactive := range []uint64{0, 1, 4096, step - 1, step, 5*step + 7} {
		at := alarmAt(counters.Memory{Limit: 512 << 20, InactiveFile: inactive}, least)
		if left := 512<<20 - (at - inactive); left >= least || left < least-step {
			t.Errorf("with %d bytes of inactive page cache, the alarm comes when %d bytes are left", inactive, left)
		}
		if at%step != 0 {
			t.Errorf("an alarm at %d bytes isn't a multiple of %d", at, step)
		}
	}
}

// disk is a file system with a number of its 100 bytes and of its 10 inodes left.
func disk(device string, free, inodes uint64) stats.FileSystem {
	bytes, files := uint64(100), uint64(10)
	return stats.FileSystem{Device: device, Space: usage.Space{Capacity: &bytes, Available: &free, Inodes: &files, InodesFree: &inodes}}
}

// TestLayoutOf: by the devices, and a device that isn't known counts as the node's.
func TestLayoutOf(t *testing.T) {
	for _, c := range []struct {
		node, images, containers string
		want                     Layout
	}{
		{"8:1", "8:1", "8:1", OneFileSystem},
		{"8:1", "8:2", "8:2", RuntimeApart},
		{"8:1", "8:2", "8:3", RuntimeApart},
		{"8:1", "8:2", "8:1", ImagesApart},
		{"8:1", "8:2", "", ImagesApart},
		{"8:1", "8:1", "8:2", OneFileSystem},
		{"8:1", "", "", OneFileSystem},
		{"", "8:2", "8:2", OneFileSystem},
	} {
		all := stats.FileSystems{Node: disk(c.node, 1, 1), Images: disk(c.images, 1, 1), Containers: disk(c.containers, 1, 1)}
		if got := layoutOf(&all); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestSensors: what can be read is there beside what can't, and what the node doesn't have is no error.
func TestSensors(t *testing.T) {
	files := stats.FileSystems{Node: disk("8:1", 40, 4), Images: disk("8:2", 60, 6), Containers: disk("8:2", 60, 6)}
	machine, err := capacity.ReadMeminfo("/")
	if err != nil {
		t.Fatal(err)
	}
	bell := alarm.New()
	s := NewSensors(SensorsConfig{Groups: tree.New(tree.DriverCgroupfs, "/deckhand-no-such-group", machine.Memory), Alarm: bell,
		FileSystems: func(context.Context) stats.FileSystems { return files },
		Now:         func() time.Duration { return time.Minute }, Log: testr.New(t)})
	defer bell.Set(nil)
	observe := func() (Observation, error) {
		return s.Observe(t.Context(), []Threshold{{Signal: NodeMemory, Least: capacity.Amount{Value: 1 << 20}}})
	}
	o, err := observe()
	if err != nil || o.At != time.Minute || o.Layout != RuntimeApart {
		t.Errorf("%+v, %v", o, err)
	}
	for signal, want := range map[Signal]Reading{NodeBytes: {40, 100}, NodeInodes: {4, 10}, ImageBytes: {60, 100}, ImageInodes: {6, 10}} {
		if got := o.Readings[signal]; got != want {
			t.Errorf("%s: %+v", signal, got)
		}
	}
	for _, signal := range []Signal{NodeMemory, Processes} {
		if r := o.Readings[signal]; r.Available <= 0 || r.Available >= r.Capacity {
			t.Errorf("%s: %+v", signal, r)
		}
	}
	if _, there := o.Readings[PodsMemory]; there || len(o.Absent) > 0 {
		t.Errorf("without a group of all pods: %+v", o)
	}
	files.Images = stats.FileSystem{Err: errors.New("no answer")}
	files.Node.Inodes, files.Node.InodesFree = nil, nil
	o, err = observe()
	if err == nil || err.Error() != "imagefs.available: no answer" || !slices.Equal(o.Absent, []Signal{NodeInodes}) || o.Layout != OneFileSystem {
		t.Errorf("%+v, %v", o, err)
	}
	for signal, want := range map[Signal]bool{NodeMemory: true, NodeBytes: true, NodeInodes: false, ImageBytes: false, ImageInodes: false, Processes: true} {
		if _, there := o.Readings[signal]; there != want {
			t.Errorf("%s is there: %v", signal, there)
		}
	}
	files.Node.Capacity, files.Node.Available = nil, nil
	if o, _ = observe(); o.Readings[NodeBytes] != (Reading{}) {
		t.Errorf("a file system without a size: %+v", o.Readings[NodeBytes])
	}
	files = stats.FileSystems{Node: disk("8:1", 40, 4), Unknown: errors.New("the runtime is away")}
	o, err = observe()
	if _, there := o.Readings[NodeBytes]; there || !errors.Is(err, files.Unknown) || o.Readings[NodeMemory] == (Reading{}) {
		t.Errorf("the runtime hasn't told its file systems: %+v, %v", o, err)
	}
}

// TestTriggers: PSI, the group's own events and thresholds of its usage, as far as the group has the files; a threshold at or
// above the limit, or for another signal, sets no alarm.
func TestTriggers(t *testing.T) {
	at := func(signal Signal, bytes int64) Threshold {
		return Threshold{Signal: signal, Least: capacity.Amount{Value: bytes}}
	}
	thresholds := []Threshold{at(PodsMemory, 100<<20), at(PodsMemory, 200<<20), at(PodsMemory, 1<<30), at(NodeMemory, 300<<20)}
	m := counters.Memory{Limit: 1 << 30, InactiveFile: 5 << 20}
	for name, c := range map[string]struct {
		files tree.MemoryFiles
		want  string
	}{
		"v1":          {tree.MemoryFiles{Thresholds: "/v1/kubepods"}, "usage /v1/kubepods 930 MiB, usage /v1/kubepods 830 MiB"},
		"v1 with PSI": {tree.MemoryFiles{Thresholds: "/v1/kubepods", Pressure: "/u/p"}, "stalls /u/p, usage /v1/kubepods 930 MiB, usage /v1/kubepods 830 MiB"},
		"v2":          {tree.MemoryFiles{Events: "/v2/memory.events", Pressure: "/v2/p"}, "stalls /v2/p, changes /v2/memory.events.local"},
		"none":        {},
	} {
		var got []string
		names := map[string]bool{}
		for _, trigger := range triggersOf(c.files, PodsMemory, "/kubepods", m, thresholds) {
			names[trigger.Name] = true
			switch trigger.Kind {
			case alarm.Stalls:
				got = append(got, "stalls "+trigger.Path)
			case alarm.Changes:
				got = append(got, "changes "+trigger.Path)
			case alarm.Usage:
				got = append(got, "usage "+trigger.Path+" "+fmt.Sprint(trigger.Bytes>>20, " MiB"))
			}
			if !strings.HasPrefix(trigger.Name, "allocatableMemory.available: ") {
				t.Errorf("%s: name %q", name, trigger.Name)
			}
		}
		if text := strings.Join(got, ", "); text != c.want || len(names) != len(got) {
			t.Errorf("%s: %s, want %s; %d names", name, text, c.want, len(names))
		}
	}
}
