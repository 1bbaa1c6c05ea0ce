package events

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// historyVersion is the version of the file's format. An agent doesn't read files of a newer version.
const historyVersion = 1

const (
	// maxFile is the largest size of the file in bytes, maxLive the largest total size of its current records.
	maxFile = 1 << 20
	maxLive = maxFile / 2
	// maxRecord is the largest size of one record in bytes. It leaves room for an object whose name is a path.
	maxRecord = 16 << 10
	// maxStored is the largest length of a stored message, and of an annotation's value, in bytes.
	maxStored = 1 << 10
	// lineRoom is the overhead of each line of the file in bytes, recordRoom the overhead of each record.
	lineRoom, recordRoom = 128, 32
	// fairAge is the age above which entries are removed in order of age, regardless of the object that they are about.
	fairAge = 24 * time.Hour
	// saveEvery is the minimum time between two writes, retryEvery the minimum time after a failed write.
	saveEvery  = 10 * time.Second
	retryEvery = time.Minute
)

// History combines the entries of a Recorder with those of earlier agents, which it reads from a file. A burst of
// events costs one write per saveEvery. When the records take too much space, entries older than a day are removed
// first, then entries of the object whose entries take the most space, so that one pod doesn't displace the events of
// others. The file is optional: errors are logged only. History is safe for concurrent use.
type History struct {
	recorder *Recorder
	file     *checkpoint.Log
	log      logr.Logger
	// failed says that the last write failed. Only Run uses it.
	failed bool

	mu sync.Mutex
	// base is added to the recorder's IDs and Seqs, so that they follow those of earlier agents.
	base uint64
	// followed is the recorder's Seq up to which stored is current.
	followed uint64
	// stored maps IDs to entries; size is the total size of their records in bytes.
	stored map[uint64]*storedEntry
	size   int
	// dirty has the IDs of records to write or, if stored doesn't have them, to remove.
	dirty map[uint64]bool
}

// storedEntry is an entry and its record.
type storedEntry struct {
	Entry
	text json.RawMessage
}

// record is an entry on disk, stored under its ID.
type record struct {
	Seq       uint64             `json:"seq"`
	First     time.Time          `json:"first"`
	Last      time.Time          `json:"last"`
	Count     int                `json:"count"`
	Type      string             `json:"type"`
	Reason    pod.Reason         `json:"reason"`
	Message   string             `json:"message"`
	Object    v1.ObjectReference `json:"object"`
	Component string             `json:"component"`
	// Annotations are omitted if there are none.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// NewHistory returns a history of the recorder that is stored in the file at path.
func NewHistory(path string, r *Recorder, log logr.Logger) *History {
	return &History{recorder: r, file: checkpoint.NewLog(path, historyVersion), log: log,
		stored: map[uint64]*storedEntry{},
		dirty:  map[uint64]bool{}}
}

// Restore reads the entries of earlier agents. It has to be called before any other method. The error describes
// records that couldn't be used; the others are restored.
func (h *History) Restore() error {
	records, err := h.file.Load()
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, text := range records {
		var r record
		id, malformed := strconv.ParseUint(name, 10, 63)
		if malformed != nil || json.Unmarshal(text, &r) != nil || r.Seq < id || r.Seq >= 1<<63 {
			continue // an unusable record; it disappears when the file is replaced
		}
		h.put(id, r, text)
		h.base = max(h.base, r.Seq)
	}
	h.trim(time.Now())
	if err != nil { // the file was moved aside or is newer
		h.markAll()
	}
	return err
}

// Run writes changes until ctx ends, and then the remaining ones. The error is nil.
func (h *History) Run(ctx context.Context) error {
	changed, stop := h.recorder.Watch()
	defer stop()
	for {
		pause := saveEvery
		if !h.save() {
			pause = retryEvery
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		if ctx.Err() == nil && !h.failed {
			select {
			case <-ctx.Done():
			case <-changed:
			}
		}
		if ctx.Err() != nil {
			h.save()
			return nil
		}
	}
}

// List returns the entries, those that occurred most recently last.
func (h *History) List() []Entry {
	current := h.recorder.List() // read before stored, which still has the entries that the recorder drops now
	h.mu.Lock()
	defer h.mu.Unlock()
	h.number(current)
	inRecorder := make(map[uint64]bool, len(current))
	for i := range current {
		inRecorder[current[i].ID] = true
	}
	var earlier []Entry
	for id, e := range h.stored {
		if !inRecorder[id] {
			earlier = append(earlier, e.Entry)
		}
	}
	slices.SortFunc(earlier, func(a, b Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	return append(earlier, current...)
}

// Since is Recorder.Since, with this history's Seqs.
func (h *History) Since(seq uint64) []Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.recorder.Since(max(seq, h.base) - h.base)
	h.number(list)
	return list
}

// Watch is Recorder.Watch.
func (h *History) Watch() (changed <-chan struct{}, cancel func()) { return h.recorder.Watch() }

// number converts the recorder's IDs and Seqs to this history's. h.mu is held.
func (h *History) number(list []Entry) {
	for i := range list {
		list[i].ID += h.base
		list[i].Seq += h.base
	}
}

// save writes the dirty records, and reports whether everything is on disk.
func (h *History) save() bool {
	h.mu.Lock()
	h.follow()
	dirty := h.dirty
	h.dirty = map[uint64]bool{}
	changed, size := map[string]json.RawMessage{}, lineRoom
	for id := range dirty {
		text := h.text(id)
		changed[strconv.FormatUint(id, 10)] = text
		size += len(text) + recordRoom
	}
	write := h.file.Append
	if h.file.Outgrown() || h.file.Size()+int64(size) > maxFile {
		write = h.file.Replace
		clear(changed)
		for id := range h.stored {
			changed[strconv.FormatUint(id, 10)] = h.text(id)
		}
	}
	h.mu.Unlock()
	if len(dirty) == 0 {
		return true
	}

	err := write(changed)
	switch {
	case err == nil && h.failed:
		h.log.Info("Storing events again")
	case err != nil && !h.failed:
		h.log.Error(err, "Failed to store events: after a restart of the agent the newest are missing")
	}
	h.failed = err != nil
	if h.failed {
		h.mu.Lock()
		maps.Copy(h.dirty, dirty)
		if len(h.dirty) > 2*len(h.stored) {
			// Most of these records have been removed, and a replacement of the file doesn't write removed records.
			h.file.Outgrow()
			h.markAll()
		}
		h.mu.Unlock()
	}
	return !h.failed
}

// markAll marks all entries as dirty. h.mu is held.
func (h *History) markAll() {
	clear(h.dirty)
	for id := range h.stored {
		h.dirty[id] = true
	}
}

// text returns the record of an entry; nil if the entry was removed.
func (h *History) text(id uint64) json.RawMessage {
	if e := h.stored[id]; e != nil {
		return e.text
	}
	return nil
}

// follow updates stored from the recorder. h.mu is held.
func (h *History) follow() {
	for _, e := range h.recorder.Since(h.followed) {
		h.followed = e.Seq
		r := record{Seq: h.base + e.Seq, First: e.First, Last: e.Last, Count: e.Count, Type: e.Type, Reason: e.Reason,
			Message: shorten(WithoutOutput(e.Reason, e.Message), maxStored), Object: e.Object, Component: e.Component,
			Annotations: shortenValues(e.Annotations, maxStored)}
		text, err := json.Marshal(r)
		if err != nil || len(text) > maxRecord {
			continue
		}
		h.put(h.base+e.ID, r, text)
		h.dirty[h.base+e.ID] = true
	}
	h.trim(time.Now())
}

// put sets the entry with this ID. h.mu is held.
func (h *History) put(id uint64, r record, text json.RawMessage) {
	h.drop(id)
	h.stored[id] = &storedEntry{
		Entry{ID: id, Seq: r.Seq, First: r.First, Last: r.Last, Count: r.Count, Type: r.Type, Reason: r.Reason,
			Message: r.Message, Annotations: r.Annotations, Object: r.Object, Component: r.Component}, text}
	h.size += len(text) + recordRoom
}

// drop removes the entry with this ID, if there is one. h.mu is held.
func (h *History) drop(id uint64) {
	if e := h.stored[id]; e != nil {
		h.size -= len(e.text) + recordRoom
		delete(h.stored, id)
	}
}

// trim removes entries once their records take more than maxLive bytes. It removes entries until their records take
// seven eighths of that, so that not every new entry causes a removal. h.mu is held.
func (h *History) trim(now time.Time) {
	const enough = maxLive - maxLive/8
	if h.size <= maxLive {
		return
	}
	oldest := slices.SortedFunc(maps.Values(h.stored), func(a, b *storedEntry) int { return cmp.Compare(a.Seq, b.Seq) })
	remove := func(e *storedEntry) {
		h.drop(e.ID)
		h.dirty[e.ID] = true
	}
	// object identifies the object of an entry without its UID: all pods of the same name count as one object, so that
	// a pod that is recreated continuously doesn't get more space.
	type object struct{ kind, namespace, name string }
	type share struct {
		entries []*storedEntry
		size    int
	}
	shares := map[object]*share{}
	for _, e := range oldest {
		if h.size > enough && now.Sub(e.Last) > fairAge {
			remove(e)
			continue
		}
		o := object{e.Object.Kind, e.Object.Namespace, e.Object.Name}
		if shares[o] == nil {
			shares[o] = &share{}
		}
		shares[o].entries = append(shares[o].entries, e)
		shares[o].size += len(e.text)
	}
	all := slices.Collect(maps.Values(shares))
	for h.size > enough {
		most := slices.MaxFunc(all, func(a, b *share) int { return cmp.Compare(a.size, b.size) })
		e := most.entries[0]
		most.entries = most.entries[1:]
		most.size -= len(e.text)
		remove(e)
	}
}

// WithoutOutput returns the message of an event without the output of a probe, which may contain secrets.
func WithoutOutput(r pod.Reason, message string) string {
	switch r {
	case pod.ReasonUnhealthy, pod.ReasonProbeWarning:
		words, combined := strings.CutPrefix(message, combinedPrefix)
		words, _, _ = strings.Cut(words, ":")
		if combined {
			words = combinedPrefix + words
		}
		return words
	}
	return message
}
