package desired

import (
	"context"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/events"
)

// Events records events.
type Events interface {
	Add(events.Entry)
	Event(p *v1.Pod, e pod.Event)
}

// Announcer reports changes to users, each once. It logs added, updated and removed pods. It records events for
// problems with manifests, which the Merger logs, for manifests that work but should be improved, and for fields that
// this build ignores.
type Announcer struct {
	merger *Merger
	events Events
	// unsupported lists the fields of a pod that this build doesn't support.
	unsupported func(*v1.Pod) []string
	log         logr.Logger
}

// NewAnnouncer returns an announcer; Run starts it. unsupported lists, for users, the fields of a pod that this build
// doesn't support.
func NewAnnouncer(m *Merger, e Events, unsupported func(*v1.Pod) []string, log logr.Logger) *Announcer {
	return &Announcer{merger: m, events: e, unsupported: unsupported, log: log}
}

// Run reports changes of the set until ctx is done. The error is nil.
func (a *Announcer) Run(ctx context.Context) error {
	changed, end := a.merger.Subscribe()
	defer end()
	var last *Set
	problems, secrets := map[string]bool{}, &openSecrets{}
	for {
		set := a.merger.Current()
		if last == nil || last.Objects != set.Objects {
			a.reportAdvice(secrets.check(set.Objects))
		}
		changes := Diff(last, set)
		a.logChanges(changes)
		for _, d := range changes.Add {
			a.reportUnsupported(d)
		}
		for _, d := range changes.Update {
			a.reportUnsupported(d)
		}
		problems = a.reportProblems(set, problems)
		last = set
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

func (a *Announcer) logChanges(c Changes) {
	log := a.log.V(2)
	for _, d := range c.Add {
		log.Info("Pod added", "pod", klog.KObj(d.Pod), "podUID", d.Pod.UID, "origin", d.Origin)
	}
	for _, d := range c.Update {
		log.Info("Pod updated", "pod", klog.KObj(d.Pod), "podUID", d.Pod.UID, "origin", d.Origin)
	}
	for _, d := range c.Remove {
		log.Info("Pod removed", "pod", klog.KObj(d.Pod), "podUID", d.Pod.UID, "origin", d.Origin)
	}
}

// reportAdvice reports manifests that work but should be improved.
func (a *Announcer) reportAdvice(advice []events.Entry) {
	for _, e := range advice {
		a.log.Info("Event occurred", "object", e.Object.Name, "reason", e.Reason, "message", e.Message)
		a.events.Add(e)
	}
}

// reportProblems records events for the problems that aren't in known, and returns the set of all problems for the next
// call.
func (a *Announcer) reportProblems(set *Set, known map[string]bool) map[string]bool {
	now := make(map[string]bool, len(set.Problems))
	for _, p := range set.Problems {
		key := p.Origin + "\x00" + p.Message
		now[key] = true
		if !known[key] {
			a.events.Add(events.Entry{Type: "Warning", Reason: pod.ReasonInvalidManifest,
				Object: v1.ObjectReference{Name: p.Origin}, Message: p.Message})
		}
	}
	return now
}

// reportUnsupported reports the fields of a new pod that this build doesn't support.
func (a *Announcer) reportUnsupported(d *pod.Desired) {
	fields := a.unsupported(d.Pod)
	if len(fields) == 0 {
		return
	}
	message := strings.Join(fields, "; ")
	a.log.Info("Pod uses fields that this build doesn't support", "pod", klog.KObj(d.Pod), "fields", message)
	a.events.Event(d.Pod, pod.Event{Type: v1.EventTypeWarning, Reason: pod.ReasonUnsupported, Message: message})
}
