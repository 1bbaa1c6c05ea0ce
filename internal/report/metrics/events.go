package metrics

import "github.com/prometheus/client_golang/prometheus"

// EventStats counts events since the agent was started. The fields are those of
// events.Stats, so that one can be converted to the other.
type EventStats struct {
	// Taken is the number of events.
	Taken uint64
	// Repeated is the number of events that were counted in an entry with the same message, Combined of those in an
	// entry that combines several messages.
	Repeated, Combined uint64
	// Withheld is the number of events that were counted in an entry, but not reported because of the rate limit;
	// Dropped is the number of events that it discarded.
	Withheld, Dropped uint64
	// Forgotten is the number of events in entries that newer entries have evicted.
	Forgotten uint64
}

// newEvents returns a collector of the recorder's counters.
func newEvents(stats func() EventStats) *snapshot {
	return newSnapshot(prometheus.CounterValue,
		func() []float64 {
			s := stats()
			return []float64{float64(s.Taken), float64(s.Repeated), float64(s.Combined), float64(s.Withheld),
				float64(s.Dropped), float64(s.Forgotten)}
		},
		desc("deckhand_events_total", "Number of events about pods and the node."),
		desc("deckhand_events_repeated_total",
			"Number of events that were counted up in an entry with the same message."),
		desc("deckhand_events_combined_total",
			"Number of events that were counted up in an entry that stands for several messages."),
		desc("deckhand_events_withheld_total",
			"Number of events that were counted in an entry, but that the rate limit kept from being reported."),
		desc("deckhand_events_dropped_total", "Number of events that were left out by the rate limit."),
		desc("deckhand_events_forgotten_total", "Number of events in entries that made room for newer ones."),
	)
}
