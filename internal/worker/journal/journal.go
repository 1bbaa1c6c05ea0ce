// Package journal keeps the flight recorders of all pods: the recent decisions about each pod, with their inputs and
// reasons. They are in memory. The journal is saved to disk when the agent stops. If the previous agent crashed, each
// change is saved with a short delay. Input on which the core failed is saved at once.
//
// Nothing depends on the journal: if it can't be written or is damaged, the agent starts and pods run nevertheless.
package journal

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript"
)

// DefaultLimit is the default of Config.Limit, in bytes.
const DefaultLimit = 64 << 10

// Config is the configuration of a Journal.
type Config struct {
	// Dir is the journal's directory. Its parent has to exist when Start is called.
	Dir string
	// Limit is the size of each pod's record in bytes; 0 for DefaultLimit, negative to switch the journal off.
	Limit int
	// Version is the agent's version, which records contain.
	Version string
	Log     logr.Logger
}

// Journal keeps a record of each pod. Its methods are safe for concurrent use.
//
// Its directory holds transcripts (see package transcript):
//
//	UID.txtar            of this agent
//	previous/UID.txtar   of the previous agent
//	failed/UID.txtar     of a pod on which the core failed
//	.running             marks an agent that runs, or didn't shut down cleanly
//
// All files together take at most 64 MiB, or twice the sum of the pods' limits (Config.Limit) if that is more. Files
// beyond that are removed, those of the previous agent first.
type Journal struct {
	cfg   Config
	store *store
	// changed wakes Run after a change that has to be saved, if the previous agent crashed; closing wakes it when a
	// pod is added to closed.
	changed, closing wake.Slot
	// failures is a semaphore: it limits how many failures of the core are written at once.
	failures chan struct{}
	// newRecorder returns the recorder of one pod.
	newRecorder func(limit int) recorder

	mu      sync.Mutex
	records map[types.UID]*Record
	// closed are the pods with files that Run has to remove.
	closed map[types.UID]bool
	// ready says that the directory can be used, crashed that the previous agent didn't shut down cleanly.
	ready, crashed bool
	// failure is the first error of the last Save.
	failure error
}

// recorder is the part of a transcript.Recorder that a Record uses.
type recorder interface {
	Comment(line string)
	Record(lifecycle.Input, lifecycle.Decision)
	Bytes() []byte
}

// New returns a journal. Before Start, the journal is only in memory.
func New(cfg Config) *Journal {
	if cfg.Limit == 0 {
		cfg.Limit = DefaultLimit
	}
	j := &Journal{
		cfg: cfg, changed: wake.NewSlot(), closing: wake.NewSlot(), failures: make(chan struct{}, writers),
		records: map[types.UID]*Record{}, closed: map[types.UID]bool{},
		newRecorder: func(limit int) recorder { return transcript.NewRecorder(limit) },
	}
	j.store = newStore(cfg.Dir, cfg.Limit, j.count)
	return j
}

// off reports whether the journal is switched off.
func (j *Journal) off() bool { return j.cfg.Limit < 0 }

// Open begins or continues the record of a pod. name is for the log.
func (j *Journal) Open(uid types.UID, name string) *Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.records[uid]
	if r == nil {
		r = &Record{journal: j, uid: uid, name: name}
		j.records[uid] = r
	}
	return r
}

// Close drops the record of a pod of which nothing is left. It doesn't block on the disk: Run removes the files soon
// after, and Sweep removes files that a killed agent left. Input on which the core failed is kept for a bug report.
func (j *Journal) Close(uid types.UID) {
	j.mu.Lock()
	r, ready := j.records[uid], j.ready
	delete(j.records, uid)
	if ready {
		j.closed[uid] = true
	}
	j.mu.Unlock()
	if r != nil {
		r.end()
	}
	if ready {
		j.closing.Wake()
	}
}

// removeClosed removes the files of the pods that were closed.
func (j *Journal) removeClosed() {
	j.mu.Lock()
	closed := j.closed
	j.closed = map[types.UID]bool{}
	j.mu.Unlock()
	for uid := range closed {
		if err := j.store.remove(uid); err != nil {
			j.cfg.Log.Error(err, "Can't remove a pod's journal", "podUID", uid)
		}
	}
}

// Text returns the record of a pod; false if there is none. If the disk can't be written, the text begins with the
// number of decisions that aren't on disk.
func (j *Journal) Text(uid types.UID) ([]byte, bool) {
	r := j.record(uid)
	if r == nil {
		return nil, false
	}
	j.mu.Lock()
	failure := j.failure
	j.mu.Unlock()
	remark := ""
	if n := r.pending(); failure != nil && n > 0 {
		remark = fmt.Sprintf("Not on disk: %d decisions, which are lost if the agent is killed. %v\n", n, failure)
	}
	return r.text(remark)
}

// Unwritten is the number of decisions that aren't on disk because the disk can't be written.
func (j *Journal) Unwritten() (n int) {
	j.mu.Lock()
	failure := j.failure
	j.mu.Unlock()
	if failure == nil {
		return 0
	}
	for _, r := range j.all() {
		n += r.pending()
	}
	return n
}

// Previous returns the record of a pod by the previous agent or, if that agent left none, by an earlier agent; false if
// there is none. The record may be damaged.
func (j *Journal) Previous(uid types.UID) ([]byte, bool) {
	j.mu.Lock()
	ready := j.ready
	j.mu.Unlock()
	if !ready {
		return nil, false
	}
	text, err := j.store.read(file{previous, uid})
	if err != nil {
		j.cfg.Log.Error(err, "Can't read a pod's earlier journal", "podUID", uid)
	}
	return text, err == nil && text != nil
}

// CrashedBefore reports whether the previous agent, or the host under it, didn't shut down cleanly. It is valid after
// Start.
func (j *Journal) CrashedBefore() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.crashed
}

// count returns the number of pods with a record.
func (j *Journal) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.records)
}

func (j *Journal) record(uid types.UID) *Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.records[uid]
}

// all returns the records of all pods.
func (j *Journal) all() []*Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Collect(maps.Values(j.records))
}
