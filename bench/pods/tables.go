package pods

import (
	"fmt"
	"strconv"
	"time"

	"github.com/deckhand-node/deckhand/bench/report"
)

// What deckhand has set out to reach.
const (
	goalStart   = 1.15                   // of the floor
	goalRemove  = 1.2                    // of the floor
	goalReady   = 50 * time.Millisecond  // after the container's start
	goalRestart = 100 * time.Millisecond // over the floor's create and start
	// With 20 pods:
	goalIdlePods       = 20
	goalIdleMillicores = 3
	goalIdleRSS        = 45 << 20
)

func (s *session) print(t report.Table) error {
	_, err := t.WriteTo(s.Out)
	return err
}

func startTable(groups []*group, floorOnly bool) report.Table {
	t := report.Table{
		Title:   "Many pods: from the first call or manifest until all containers run; from removal until nothing is left (medians)",
		Columns: []string{"pods", "floor start", "deckhand", "ratio", "goal", "", "all ready", "floor remove", "deckhand", "ratio", "goal", ""},
	}
	for _, g := range groups {
		floorStart := median(g.floor, func(r floorResult[time.Duration]) time.Duration { return r.start })
		floorRemove := median(g.floor, func(r floorResult[time.Duration]) time.Duration { return r.remove })
		startCell := fmt.Sprintf("%s (%d at a time)", report.Duration(floorStart), g.concurrency.start)
		removeCell := fmt.Sprintf("%s (%d)", report.Duration(floorRemove), g.concurrency.remove)
		if floorOnly {
			t.Add(strconv.Itoa(g.n), startCell, "", "", "", "", "", removeCell)
			continue
		}
		started := median(g.deckhand, func(r agentResult) time.Duration { return r.started })
		ready := median(g.deckhand, func(r agentResult) time.Duration { return r.ready })
		removed := median(g.deckhand, func(r agentResult) time.Duration { return r.removed })
		t.Add(strconv.Itoa(g.n),
			startCell, report.Duration(started), report.Ratio(started, floorStart),
			fmt.Sprintf("≤ %.2fx", goalStart), report.Result(within(started, floorStart, goalStart)), report.Duration(ready),
			removeCell, report.Duration(removed), report.Ratio(removed, floorRemove),
			fmt.Sprintf("≤ %.2fx", goalRemove), report.Result(within(removed, floorRemove, goalRemove)))
	}
	return t
}

func onePodTable(one *single, floorOnly bool) report.Table {
	t := report.Table{Title: "One pod (medians)", Columns: []string{"", "floor", "deckhand", "goal", ""}}
	floorStart, floorRestart := report.Median(one.floorStart), report.Median(one.floorRestart)
	if floorOnly {
		t.Add("pod to started container", report.Duration(floorStart))
		t.Add("container created and started again", report.Duration(floorRestart))
		return t
	}
	start, ready, restart := report.Median(one.start), report.Median(one.ready), report.Median(one.restart)
	t.Add("manifest to started container", report.Duration(floorStart), report.Duration(start))
	t.Add("started container to reported ready", "", report.Duration(ready), "≤ "+report.Duration(goalReady), report.Result(ready <= goalReady))
	t.Add("crash to running again (floor: create and start)", report.Duration(floorRestart), report.Duration(restart),
		"≤ "+report.Duration(floorRestart+goalRestart), report.Result(restart <= floorRestart+goalRestart))
	return t
}

func idleTable(all []rest) report.Table {
	t := report.Table{Title: "The agent at rest", Columns: []string{"pods", "CPU", "RSS", "PSS", "goal", ""}}
	for _, r := range all {
		row := []string{strconv.Itoa(r.n), report.Millicores(r.CPU, r.While), report.MiB(r.Memory.RSS), report.MiB(r.Memory.PSS)}
		if r.n == goalIdlePods {
			met := r.CPU*1000 <= r.While*goalIdleMillicores && r.Memory.RSS <= goalIdleRSS
			row = append(row, fmt.Sprintf("≤ %d mcores, %s", goalIdleMillicores, report.MiB(goalIdleRSS)), report.Result(met))
		}
		t.Add(row...)
	}
	return t
}

func within(a, b time.Duration, ratio float64) bool { return float64(a) <= ratio*float64(b) }

func median[T any](results []T, of func(T) time.Duration) time.Duration {
	values := make([]time.Duration, len(results))
	for i, r := range results {
		values[i] = of(r)
	}
	return report.Median(values)
}
