package show

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// quiet reports whether all signals can be read and no threshold is met.
func quiet(e *local.Evictions) bool {
	return e.Unread == "" && !slices.ContainsFunc(e.Thresholds, func(t local.EvictionThreshold) bool {
		return !t.MetSince.IsZero()
	})
}

// nearest describes a node without a shortage by its nearest threshold. That is the one with the smallest distance
// between the available amount and the threshold, as a share of the capacity.
func nearest(e *local.Evictions) string {
	if e.Observed.IsZero() {
		return "not measured yet"
	}
	if len(e.Thresholds) == 0 {
		return "no thresholds for evictions are set"
	}
	measured := slices.DeleteFunc(slices.Clone(e.Thresholds), func(t local.EvictionThreshold) bool {
		return t.Available == nil || t.Capacity == 0
	})
	if len(measured) == 0 {
		return "no shortage"
	}
	above := func(t local.EvictionThreshold) int64 { return *t.Available - t.Least }
	share := func(t local.EvictionThreshold) float64 { return float64(above(t)) / float64(t.Capacity) }
	t := slices.MinFunc(measured, func(a, b local.EvictionThreshold) int { return cmp.Compare(share(a), share(b)) })
	return fmt.Sprintf("no shortage (nearest: %s %s above its threshold)", t.Signal, Quantity(t.Resource, above(t)))
}

func evictionRows(e *local.Evictions, now time.Time) [][]string {
	rows := [][]string{{"EVICTION SIGNAL", "AVAILABLE", "OF", "THRESHOLD", "GRACE", "STATE"}}
	if e == nil {
		return rows
	}
	for i := range e.Thresholds {
		t := &e.Thresholds[i]
		available, capacity, threshold, grace := "unknown", "", t.Threshold, "hard"
		if t.Available != nil {
			available, capacity = Quantity(t.Resource, *t.Available), Quantity(t.Resource, t.Capacity)
			threshold = Quantity(t.Resource, t.Least)
			if t.Threshold[len(t.Threshold)-1] == '%' {
				threshold += " (" + t.Threshold + ")"
			}
		}
		if t.Grace.Duration > 0 {
			grace = "soft, " + duration.HumanDuration(t.Grace.Duration)
		}
		rows = append(rows, []string{t.Signal, available, capacity, threshold, grace, thresholdState(t, now)})
	}
	if e.Unread != "" {
		rows = append(rows, []string{"Can't be read: " + e.Unread})
	}
	if e.Alarm != "" {
		rows = append(rows, []string{fmt.Sprintf("The kernel's last alarm, %s ago: %s",
			duration.HumanDuration(max(now.Sub(e.AlarmAt), 0)), e.Alarm)})
	}
	return rows
}

func thresholdState(t *local.EvictionThreshold, now time.Time) string {
	switch {
	case t.Available == nil:
		return "not measured"
	case t.MetSince.IsZero():
		return "no shortage"
	}
	text := "short for " + duration.HumanDuration(max(now.Sub(t.MetSince), 0))
	if left := t.EvictsFrom.Sub(now); left > 0 {
		return text + ", pods are evicted in " + duration.HumanDuration(left)
	}
	return text + ", pods are evicted"
}

// Quantity formats an amount of a resource: bytes in binary units, others as they are.
func Quantity(resource v1.ResourceName, n int64) string {
	if resource != v1.ResourceMemory && resource != v1.ResourceEphemeralStorage {
		return strconv.FormatInt(n, 10)
	}
	return room.Bytes(uint64(max(n, 0)))
}
