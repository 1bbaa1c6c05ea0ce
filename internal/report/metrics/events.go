package metrics

// EventStats counts events since the agent was started. The fields are those of
// events.Stats, so that one can be converted to the other.
type EventStats struct {
	// Taken is the number of events.
	Taken uint64
	// Repeated is the number of events that were counted in an entry with the same message, Combined the number of
	// events that were counted in an entry that combines several messages.
	Repeated, Combined uint64
	// Withheld is the number of events that were counted in an entry, but not reported because of the rate limit;
	// Dropped is the number of events that the rate limit discarded.
	Withheld, Dropped uint64
	// Forgotten is the number of events in entries that newer entries have evicted.
	Forgotten uint64
}

// CollectJournal registers the number of decisions that are missing in the journal on disk, which count returns at each
// scrape. It may be called once; count must not block.
func (m *Metrics) CollectJournal(count func() int) {
	collect(m.factory, count, gauge("deckhand_journal_unwritten_decisions",
		"Number of decisions that are in the journal's memory alone, because the disk can't be written.",
		func(n int) int { return n }))
}

// CollectEvents registers the counters of events, which stats returns at each scrape. It may be called once; stats
// must not block.
func (m *Metrics) CollectEvents(stats func() EventStats) {
	collect(m.factory, stats,
		counter("deckhand_events_total", "Number of events about pods and the node.",
			func(s EventStats) uint64 { return s.Taken }),
		counter("deckhand_events_repeated_total",
			"Number of events that were counted up in an entry with the same message.",
			func(s EventStats) uint64 { return s.Repeated }),
		counter("deckhand_events_combined_total",
			"Number of events that were counted up in an entry that stands for several messages.",
			func(s EventStats) uint64 { return s.Combined }),
		counter("deckhand_events_withheld_total",
			"Number of events that were counted in an entry, but that the rate limit kept from being reported.",
			func(s EventStats) uint64 { return s.Withheld }),
		counter("deckhand_events_dropped_total", "Number of events that were left out by the rate limit.",
			func(s EventStats) uint64 { return s.Dropped }),
		counter("deckhand_events_forgotten_total", "Number of events in entries that made room for newer ones.",
			func(s EventStats) uint64 { return s.Forgotten }),
	)
}
