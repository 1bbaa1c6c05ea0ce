package agent

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/events"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate/unsupported"
)

// tellSets tells what changes about the wanted pods (in the log), what is wrong
// with manifests (the merger has logged that) and what in good ones this build
// doesn't act on: each once.
func (a *Agent) tellSets(ctx context.Context) error {
	changed, end := a.merger.Subscribe()
	defer end()
	var last *desired.Set
	problems, secrets := map[string]bool{}, &openSecrets{}
	swept := false
	for {
		set := a.merger.Current()
		if last == nil || last.Objects != set.Objects || last.Synced != set.Synced {
			a.tidyClaims(ctx)
			a.objectsChanged()
			a.tellAdvice(secrets, set)
		}
		a.lookAtVolumes()
		changes := desired.Diff(last, set)
		a.logChanges(changes)
		for _, d := range changes.Add {
			a.tellUnsupported(d)
		}
		for _, u := range changes.Update {
			a.tellUnsupported(u.New)
		}
		if set.Synced && !swept {
			swept = true
			a.sweepJournal(set)
			a.collector.Wake() // before, it couldn't tell which images are wanted
		}
		problems = a.tellProblems(set, problems)
		last = set
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// objectsChanged has the pods that wait for an object look again.
func (a *Agent) objectsChanged() {
	a.objectsAt.now()
	a.pool.WakeAwaiting()
}

// sweepJournal forgets what an earlier agent recorded about pods that nobody wants any more.
func (a *Agent) sweepJournal(set *desired.Set) {
	wanted := make(map[types.UID]bool, len(set.Pods))
	for _, d := range set.Pods {
		wanted[d.Pod.UID] = true
	}
	a.journal.Sweep(func(uid types.UID) bool { return wanted[uid] })
}

func (a *Agent) logChanges(c desired.Changes) {
	log := a.log.WithName("desired").V(2)
	for _, d := range c.Add {
		log.Info("Pod wanted", "pod", pod.FullName(d.Pod), "podUID", d.Pod.UID, "origin", d.Origin)
	}
	for _, u := range c.Update {
		log.Info("Pod wanted otherwise", "pod", pod.FullName(u.New.Pod), "podUID", u.New.Pod.UID, "origin", u.New.Origin)
	}
	for _, d := range c.Remove {
		log.Info("Pod not wanted any more", "pod", pod.FullName(d.Pod), "podUID", d.Pod.UID, "origin", d.Origin)
	}
}

// tellProblems tells the problems that aren't known yet, and returns all there are.
func (a *Agent) tellProblems(set *desired.Set, known map[string]bool) map[string]bool {
	now := make(map[string]bool, len(set.Problems))
	for _, p := range set.Problems {
		key := p.Origin + "\x00" + p.Message
		now[key] = true
		if !known[key] {
			a.events.Add(events.Entry{Type: "Warning", Reason: "InvalidManifest", Object: v1.ObjectReference{Name: p.Origin}, Message: p.Message})
		}
	}
	return now
}

// tellUnsupported tells what a new pod asks for in vain.
func (a *Agent) tellUnsupported(d *pod.Desired) {
	// The embedded containerd runs with SELinux off: that needs a policy of the host for it.
	fields := unsupported.Fields(d.Pod, unsupported.Runtime{NoSELinux: a.embedded != nil})
	if len(fields) == 0 {
		return
	}
	message := strings.Join(fields, "; ")
	a.log.Info("A pod asks for what this build doesn't do", "pod", pod.FullName(d.Pod), "fields", message)
	a.events.Event(d.Pod, pod.Event{Type: v1.EventTypeWarning, Reason: "Unsupported", Message: message})
}
