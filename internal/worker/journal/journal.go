// Package journal keeps the flight recorders of all pods: what was decided about each lately,
// from what and why. They are in memory. What is needed after the agent's end is on disk:
// everything when it stops; every change, a little later, if the agent before it crashed;
// and at once what the core failed on.
//
// Nothing depends on it: a journal that can't be written, or is damaged, prevents no agent from
// starting and no pod from running.
package journal

import (
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript"
)

// DefaultLimit is how many bytes are kept of each pod where nothing else is said.
const DefaultLimit = 64 << 10

// Config is what a Journal is built from.
type Config struct {
	// Dir is the journal's directory. Its parent has to exist when Start is called.
	Dir string
	// Limit is how many bytes are kept of each pod; 0 for DefaultLimit, less for none.
	Limit int
	// Version is the agent's; records contain it.
	Version string
	Log     logr.Logger
}

// Journal keeps a record of each pod. Its methods may be called concurrently.
//
// Its directory holds transcripts (see package transcript):
//
//	UID.txtar            of this agent
//	previous/UID.txtar   of the agent before
//	failed/UID.txtar     of a pod that the core failed on
//	.running             marks an agent that runs, or didn't shut down cleanly
//
// All files together take at most 64 MiB, or twice what is kept of all pods in memory
// where that is more. What exceeds that is removed, the previous agent's files first.
type Journal struct {
	cfg   Config
	store *store
	// changed wakes Run when there is something to write, while records are kept on disk as well;
	// closing wakes it when closed has more.
	changed, closing wake.Slot
	// failures has a slot for each failure of the core that may be written at a time.
	failures chan struct{}
	// newRecorder makes the recorder of one pod.
	newRecorder func(limit int) recorder

	mu      sync.Mutex
	records map[types.UID]*Record
	// closed are the pods whose files Run has to remove.
	closed map[types.UID]bool
	// ready says that the directory can be used, crashed that the last agent didn't shut down cleanly.
	ready, crashed bool
}

// recorder is the part of a transcript.Recorder that a Record uses.
type recorder interface {
	Comment(line string)
	Record(lifecycle.Input, lifecycle.Decision)
	Bytes() []byte
}

// New makes a journal. Before Start it is in memory alone.
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

// Open begins the record of a pod, or goes on with it. Name is for the log.
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

// Close says that nothing is left of the pod: its record is forgotten, in memory and,
// a little later, on disk. It doesn't wait for the disk: Run removes the files, and Sweep what
// a killed agent has left of them. What the core failed on stays, for a bug report.
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

// Text returns what is recorded of a pod; false if there is nothing.
func (j *Journal) Text(uid types.UID) ([]byte, bool) {
	r := j.record(uid)
	if r == nil {
		return nil, false
	}
	return r.text()
}

// Previous returns what the agent before this one has left of a pod, or agents
// before that if it left nothing; false if none did. It may be damaged.
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

// CrashedBefore reports whether the agent before this one didn't shut down cleanly, or
// its host didn't. It is known once Start has been called.
func (j *Journal) CrashedBefore() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.crashed
}

// count returns how many pods there are.
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
	list := make([]*Record, 0, len(j.records))
	for _, r := range j.records {
		list = append(list, r)
	}
	return list
}
