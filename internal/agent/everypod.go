package agent

import (
	"context"
	"os"
	"path/filepath"

	"github.com/deckhand-node/deckhand/internal/pathelement"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// everyPod knows the pods of this node, wanted or not.
type everyPod struct{ *Agent }

// Wanted lists those that should run, and whether all sources have reported.
func (e everyPod) Wanted() ([]*pod.Desired, bool) {
	set := e.merger.Current()
	return set.Pods, set.Synced
}

// All lists what the runtime has of them.
func (e everyPod) All() []*pod.Observed {
	uids := e.observed.UIDs()
	list := make([]*pod.Observed, 0, len(uids))
	for _, uid := range uids {
		if o := e.observed.Get(uid); o != nil {
			list = append(list, o)
		}
	}
	return list
}

// Running is All; the error is nil.
func (e everyPod) Running(context.Context) ([]*pod.Observed, error) { return e.All(), nil }

// Observed is All, and whether the runtime has been listed as a whole.
func (e everyPod) Observed() ([]*pod.Observed, bool) {
	all := e.listed() // before the list is taken
	return e.All(), all
}

// Settled reports whether it is known what runs here and what should.
func (e everyPod) Settled() bool { return e.listed() && e.merger.Current().Synced }

// Knows reports whether anything of the pod is left but its logs.
func (e everyPod) Knows(uid podUID) bool {
	if e.merger.Current().Get(uid) != nil || e.observed.Get(uid) != nil || e.status.Get(uid) != nil {
		return true
	}
	if pathelement.Check("pod UID", string(uid)) != nil {
		return true // whatever that is, it isn't a pod's
	}
	_, err := os.Lstat(filepath.Join(e.dirs.Pods(), string(uid)))
	return err == nil
}

// listed reports whether the runtime has told once of all that it has.
func (a *Agent) listed() bool {
	select {
	case <-a.observed.Synced():
		return true
	default:
		return false
	}
}
