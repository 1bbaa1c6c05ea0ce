package images

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/deckhand-node/deckhand/bench/report"
)

// What deckhand has set out to reach.
const (
	goalPull  = 1.1 // of the floor
	goalPulls = 1   // of an image, however many pods want it
	// goalStart is how long a start with a pull may take, of a start and a pull one after
	// the other.
	goalStart = 1.15
)

func pullTable(o Options, p pulls) report.Table {
	t := report.Table{
		Title:   fmt.Sprintf("One image with %d layers of %s, from a registry on loopback (medians)", o.Layers, report.MiB(o.LayerSize)),
		Columns: []string{"", "floor", "deckhand", "ratio", "goal", ""},
	}
	floor := report.Median(p.floor)
	if o.FloorOnly {
		t.Add("pull", report.Duration(floor))
		return t
	}
	took := report.Median(p.deckhand)
	t.Add("pull", report.Duration(floor), report.Duration(took), report.Ratio(took, floor), fmt.Sprintf("≤ %.2fx", goalPull), report.Result(within(took, floor, goalPull)))
	return t
}

// startTable compares with what a start and a pull take by themselves.
func startTable(o Options, starts []start, pull time.Duration) report.Table {
	t := report.Table{
		Title:   "Pods of one image that isn't on the node: from the first manifest until all containers run (medians)",
		Columns: []string{"pods", "image here", "and a pull", "to pull", "ratio", "goal", "", "pulls", "goal", ""},
	}
	of := func(what func(start) time.Duration) time.Duration {
		var list []time.Duration
		for _, s := range starts {
			list = append(list, what(s))
		}
		return report.Median(list)
	}
	most := slices.MaxFunc(starts, func(a, b start) int { return a.pulls - b.pulls }).pulls
	here, pulled := of(func(s start) time.Duration { return s.here }), of(func(s start) time.Duration { return s.pulled })
	t.Add(strconv.Itoa(o.Pods), report.Duration(here), report.Duration(here+pull), report.Duration(pulled), report.Ratio(pulled, here+pull),
		fmt.Sprintf("≤ %.2fx", goalStart), report.Result(within(pulled, here+pull, goalStart)),
		strconv.Itoa(most), strconv.Itoa(goalPulls), report.Result(most == goalPulls))
	return t
}

func within(a, b time.Duration, ratio float64) bool { return float64(a) <= ratio*float64(b) }
