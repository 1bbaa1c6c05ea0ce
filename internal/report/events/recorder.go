package events

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Recorder keeps the entries that occurred most recently. Its methods may be called concurrently. Recording takes
// constant time; there is no goroutine.
type Recorder struct {
	mu       sync.Mutex
	seed     maphash.Seed
	seq      uint64
	entries  *lru[held]
	similar  *lru[similar]
	budgets  *lru[budget]
	stats    Stats
	watchers wake.Group
}

// held is an entry in the recorder. touched is the recorder's newest Seq at the time of the last occurrence of the
// entry's event, even if readers don't see that occurrence because of the rate limit.
type held struct {
	Entry
	touched uint64
}

// Stats counts events since the recorder was made. Taken is always the sum of the entries' counts, Forgotten and
// Dropped.
type Stats struct {
	// Taken is the number of events.
	Taken uint64
	// Repeated is the number of events that were counted in an entry with the same message, Combined the number of
	// events that were counted in an entry that combines several messages.
	Repeated, Combined uint64
	// Withheld is the number of events that were counted in an entry, but not reported to readers because of the rate
	// limit.
	Withheld uint64
	// Dropped is the number of events that the rate limit discarded.
	Dropped uint64
	// Forgotten is the number of events in entries that newer entries have evicted.
	Forgotten uint64
}

// New makes a recorder of at most size entries (size > 0).
func New(size int) *Recorder {
	return &Recorder{
		seed:    maphash.MakeSeed(),
		entries: newLRU[held](size),
		similar: newLRU[similar](maxRemembered),
		budgets: newLRU[budget](maxRemembered),
	}
}

// Event records an event about a pod, with the current time.
func (r *Recorder) Event(p *v1.Pod, e pod.Event) { r.Add(aboutPod(p, e)) }

// Add records an event with the current time.
func (r *Recorder) Add(e Entry) {
	if e.Component == "" {
		e.Component = Component
	}
	alike, content := r.alikeKey(e), r.contentKey(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.stats.Taken++
	combined := r.tooManyAlike(alike, content, now)
	if combined {
		e.Message, e.Annotations = combinedPrefix+e.Message, nil
	}
	recorded := r.spend(r.sourceKey(e), now)
	if !r.count(r.entryKey(alike, content, combined), e, now, recorded, combined) {
		r.stats.Dropped++
		return
	}
	if combined {
		r.stats.Combined++
	}
	if !recorded {
		r.stats.Withheld++
		return
	}
	r.watchers.Wake()
}

// count adds the event to its entry, which it creates if necessary. It reports false if there is no entry and the
// rate limit doesn't allow a new one.
func (r *Recorder) count(key uint64, e Entry, now time.Time, recorded, combined bool) bool {
	h := r.entries.get(key)
	if h == nil {
		if !recorded {
			return false
		}
		var forgotten *held
		h, forgotten = r.entries.add(key, held{Entry: e})
		if forgotten != nil {
			r.stats.Forgotten += uint64(forgotten.Count)
		}
		h.ID, h.First, h.Message = r.seq+1, now, shorten(e.Message, maxMessage)
		h.Annotations = shortenValues(e.Annotations, maxMessage)
	} else if combined {
		h.Message = shorten(e.Message, maxMessage)
	} else {
		r.stats.Repeated++
	}
	if recorded {
		r.seq++
		h.Seq = r.seq
	}
	h.touched, h.Last = r.seq, now
	h.Count++
	return true
}

// List returns the entries, those that occurred most recently last.
func (r *Recorder) List() []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Entry, 0, r.entries.len())
	for h := range r.entries.newestFirst() {
		list = append(list, h.Entry)
	}
	slices.Reverse(list)
	return list
}

// Since returns the entries that were recorded after the one with this Seq, in that order; 0 returns all entries. To
// continue reading, pass the Seq of the last entry. An entry that was recorded several times in between is returned
// once, in its newest state.
func (r *Recorder) Since(seq uint64) []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Entry
	for h := range r.entries.newestFirst() {
		if h.touched <= seq {
			break // as are all older entries
		}
		if h.Seq > seq {
			list = append(list, h.Entry)
		}
	}
	slices.SortFunc(list, func(a, b Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	return list
}

// Watch returns a channel that receives when Since has more to return. cancel ends the watch.
func (r *Recorder) Watch() (changed <-chan struct{}, cancel func()) {
	return r.watchers.Subscribe()
}

// Stats returns the counters.
func (r *Recorder) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}
