package journal

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Record is one pod's part of the journal. Only the pod's worker goroutine may call Decision and Failed.
type Record struct {
	journal *Journal
	uid     types.UID
	name    string
	// last holds inputs of the newest decision. Only the worker accesses it.
	last seen

	// saving is held while the record is written to disk.
	saving sync.Mutex

	mu sync.Mutex
	// recorder is nil before the first decision, and again if it is broken.
	recorder recorder
	// unsaved is the number of decisions since the file was last written. Decisions that needn't be saved don't count.
	unsaved       int
	ended, broken bool
}

// seen holds inputs and waits of a decision. They are compared to find decisions without a change.
type seen struct {
	pod      *v1.Pod
	observed *pod.Observed
	probes   []pod.ProbeResult
	waits    []pod.Wait
}

// Decision records a decision and its inputs. The caller must not change them afterwards.
func (r *Record) Decision(in lifecycle.Input, d lifecycle.Decision) {
	rec := r.open()
	if rec == nil {
		return
	}
	if err := guard(func() { rec.Record(in, d) }); err != nil {
		r.giveUp(err)
		return
	}
	if r.noteChange(in, d) {
		r.markUnsaved()
	}
}

// Failed records the input on which the core failed, and writes the whole record at once: the agent may crash soon. It
// returns the path for users, or why there is none. If the core fails on many pods, few records are written at once. A
// record whose turn doesn't come within failedWait isn't written.
func (r *Record) Failed(in lifecycle.Input, failure error) string {
	rec := r.open()
	if rec == nil {
		return "not recorded: the journal is switched off"
	}
	err := guard(func() {
		rec.Comment("the core failed on this, which is a bug: " + failure.Error())
		rec.Record(in, lifecycle.Decision{})
	})
	if err != nil {
		r.giveUp(err)
		return "not recorded: the journal failed, too"
	}
	r.markUnsaved()
	if !r.journal.usable() {
		return "only in memory (`deckhand journal`): the journal's directory can't be used"
	}
	select {
	case r.journal.failures <- struct{}{}:
		defer func() { <-r.journal.failures }()
	case <-time.After(failedWait):
		return "only in memory (`deckhand journal`): the core fails on too many pods at once"
	}
	text, _ := r.text("")
	f := file{failed, r.uid}
	if err := r.journal.store.write(f, text, nil); err != nil {
		return fmt.Sprintf("only in memory (`deckhand journal`): %v", err)
	}
	return r.journal.store.path(f)
}

// open returns the recorder, which it creates on first use; nil if nothing is recorded.
func (r *Record) open() recorder {
	if r.journal.off() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recorder == nil && !r.broken {
		r.recorder = r.journal.newRecorder(r.journal.cfg.Limit)
	}
	return r.recorder
}

// guard converts a panic to an error: a failure to record must not end the agent.
func guard(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v\n%s", p, debug.Stack())
		}
	}()
	f()
	return nil
}

// giveUp ends the record of a pod after a failure to record.
func (r *Record) giveUp(err error) {
	r.mu.Lock()
	r.recorder, r.broken = nil, true
	r.mu.Unlock()
	r.journal.cfg.Log.Error(err,
		"Recording what is decided about a pod failed, which is a bug: there is no journal of it any more",
		"pod", logging.Ref(r.name), "podUID", r.uid)
}

// noteChange stores a decision in last, and reports whether the decision has to be saved. A decision that differs from
// the previous one only in Wake needn't be saved.
func (r *Record) noteChange(in lifecycle.Input, d lifecycle.Decision) bool {
	changed := len(in.Results)+len(d.Actions)+len(d.Cancel)+len(d.Events) > 0 || in.Pod != r.last.pod ||
		in.Observed != r.last.observed ||
		!slices.Equal(in.Probes, r.last.probes) || !slices.Equal(d.Waits, r.last.waits)
	r.last = seen{pod: in.Pod, observed: in.Observed, probes: in.Probes, waits: d.Waits}
	return changed
}

// markUnsaved notes that the record has to be saved.
func (r *Record) markUnsaved() {
	r.mu.Lock()
	r.unsaved++
	r.mu.Unlock()
	if r.journal.CrashedBefore() {
		r.journal.changed.Wake()
	}
}

// text returns the text of the record for a file, with a remark at its head; false if there is none.
func (r *Record) text(remark string) ([]byte, bool) {
	r.mu.Lock()
	rec := r.recorder
	r.mu.Unlock()
	if rec == nil {
		return nil, false
	}
	text := fmt.Appendf(nil, "Recorded by deckhand %s.\n%s", r.journal.cfg.Version, remark)
	if err := guard(func() { text = append(text, rec.Bytes()...) }); err != nil {
		r.giveUp(err)
		return nil, false
	}
	return text, true
}

// pending is the number of decisions that have to be saved.
func (r *Record) pending() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return 0
	}
	return r.unsaved
}

// save writes the record to its file if it has changed.
func (r *Record) save() error {
	r.saving.Lock()
	defer r.saving.Unlock()
	pending := r.pending()
	if pending == 0 {
		return nil
	}
	r.mu.Lock()
	r.unsaved -= pending
	r.mu.Unlock()
	text, ok := r.text("")
	if !ok {
		return nil
	}
	err := r.journal.store.write(file{current, r.uid}, text, r)
	if err != nil {
		r.mu.Lock()
		r.unsaved += pending
		r.mu.Unlock()
	}
	return err
}

// end stops saving the record: a file that is being written is removed. It doesn't block.
func (r *Record) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// hasEnded reports whether nothing is left of the pod; false for a nil record.
func (r *Record) hasEnded() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}
