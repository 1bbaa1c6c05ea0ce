package volumes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/deckhand-node/deckhand/bench/report"
)

// What deckhand has set out to reach.
const (
	goalIdle = 0.5         // mcores that volumes may cost while nothing happens: what can't be distinguished from noise
	goalEdit = time.Second // until the last of all pods has an edit
)

func (m *measured) tables(o Options) []report.Table {
	return []report.Table{m.singleTable(o), m.csiTable(), m.restTable(o), m.editTable(o), m.leftTable(o)}
}

// singleTable compares a volume with the bare system calls for it.
func (m *measured) singleTable(o Options) report.Table {
	t := report.Table{
		Title:   fmt.Sprintf("One volume with %d files (medians of %d rounds with %d each), and its share in the start of %d pods with %d each", len(files), o.Rounds, o.Single, o.Pods, PerPod),
		Columns: []string{"", "floor", "deckhand", "ratio", "floor's CPU", "deckhand's CPU", "ratio"},
	}
	row := func(name string, floor, took cost) {
		t.Add(name, micro(floor.time), micro(took.time), report.Ratio(took.time, floor.time), micro(floor.cpu), micro(took.cpu), report.Ratio(took.cpu, floor.cpu))
	}
	for _, name := range slices.Sorted(maps.Keys(m.singles)) {
		row(name, medians(m.singles[name].floor), medians(m.singles[name].deckhand))
	}
	share := func(what func(life) time.Duration) time.Duration {
		return max(0, m.of(configMaps, what)-m.of(without, what)) / time.Duration(PerPod*o.Pods)
	}
	if p := m.singles[configMapKind+made]; p != nil {
		row(configMapKind+made+" by an agent", medians(p.floor), cost{share(func(l life) time.Duration { return l.running }), share(func(l life) time.Duration { return l.cpu })})
	}
	return t
}

// micro writes microseconds.
func micro(d time.Duration) string {
	return fmt.Sprintf("%.0f µs", float64(d)/float64(time.Microsecond))
}

// restTable compares an agent with volumes at rest with one without.
func (m *measured) restTable(o Options) report.Table {
	t := report.Table{
		Title:   fmt.Sprintf("%d pods at rest for %s (medians)", o.Pods, o.Idle),
		Columns: []string{"volumes", "mounts", "idle CPU", "RSS", "PSS", "goal", ""},
	}
	idle := func(name string) float64 {
		return float64(m.of(name, func(l life) time.Duration { return time.Duration(1e6 * float64(l.rest.CPU) / float64(l.rest.While)) })) / 1e3
	}
	for _, name := range []string{without, mixed} {
		lives := m.lives[name]
		if len(lives) == 0 {
			continue
		}
		memory := slices.Clone(lives)
		slices.SortFunc(memory, func(a, b life) int { return cmp.Compare(a.rest.Memory.RSS, b.rest.Memory.RSS) })
		of := memory[len(memory)/2]
		volumes, result, goal := 0, "", ""
		if name == mixed {
			volumes = PerPod * o.Pods
			result, goal = report.Result(idle(mixed)-idle(without) <= goalIdle), fmt.Sprintf("≤ %.1f mcores more", goalIdle)
		}
		t.Add(strconv.Itoa(volumes), strconv.Itoa(of.mounts), fmt.Sprintf("%.2f mcores", idle(name)), report.MiB(of.rest.Memory.RSS), report.MiB(of.rest.Memory.PSS), goal, result)
	}
	return t
}

// editTable reports how long edits took.
func (m *measured) editTable(o Options) report.Table {
	t := report.Table{
		Title:   fmt.Sprintf("An edit of the ConfigMap that %d pods mount: from its manifest until it is in their volumes (%d edits)", o.Pods, o.Rounds*o.Edits),
		Columns: []string{"pods with", "median", "slowest", "goal", ""},
	}
	for _, load := range loads {
		var all []time.Duration
		for _, l := range m.lives[load.name] {
			all = append(all, l.edits...)
		}
		if len(all) == 0 {
			continue
		}
		slowest, goal, result := slices.Max(all), "", ""
		if load.name == mixed {
			goal, result = "< "+report.Duration(goalEdit), report.Result(slowest < goalEdit)
		}
		t.Add(load.what, report.Duration(report.Median(all)), report.Duration(slowest), goal, result)
	}
	return t
}

// leftTable reports what pods left, the most of all rounds.
func (m *measured) leftTable(o Options) report.Table {
	t := report.Table{
		Title:   fmt.Sprintf("Left when %d pods are gone (the most of %d rounds)", o.Pods, o.Rounds),
		Columns: []string{"pods with", "mounts", "directories", "goal", ""},
	}
	for _, load := range loads {
		mounts, directories := 0, 0
		for _, l := range m.lives[load.name] {
			mounts, directories = max(mounts, l.leftMounts), max(directories, l.leftDirs)
		}
		t.Add(load.what, strconv.Itoa(mounts), strconv.Itoa(directories), "0", report.Result(mounts == 0 && directories == 0))
	}
	return t
}
