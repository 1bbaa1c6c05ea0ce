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

// Events takes in events.
type Events interface {
	Add(events.Entry)
	Event(p *v1.Pod, e pod.Event)
}

// Announcer reports to people, each thing once: in the log, what changes about the wanted pods (what is
// wrong with manifests the Merger has logged); as events, what is wrong with manifests, what could
// be better about those that work, and what of them this build doesn't act on.
type Announcer struct {
	merger *Merger
	events Events
	// unsupported lists what a pod asks for in vain.
	unsupported func(*v1.Pod) []string
	log         logr.Logger
}

// NewAnnouncer returns an announcer that says nothing before Run. unsupported lists, for people,
// what a pod asks for in vain.
func NewAnnouncer(m *Merger, e Events, unsupported func(*v1.Pod) []string, log logr.Logger) *Announcer {
	return &Announcer{merger: m, events: e, unsupported: unsupported, log: log}
}

// Run reports until ctx ends. The error is nil.
func (a *Announcer) Run(ctx context.Context) error {
	changed, end := a.merger.Subscribe()
	defer end()
	var last *Set
	problems, secrets := map[string]bool{}, &openSecrets{}
	for {
		set := a.merger.Current()
		if last == nil || last.Objects != set.Objects {
			a.reportAdvice(secrets.look(set.Objects))
		}
		changes := Diff(last, set)
		a.logChanges(changes)
		for _, d := range changes.Add {
			a.reportUnsupported(d)
		}
		for _, u := range changes.Update {
			a.reportUnsupported(u.New)
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
	for _, u := range c.Update {
		log.Info("Pod updated", "pod", klog.KObj(u.New.Pod), "podUID", u.New.Pod.UID, "origin", u.New.Origin)
	}
	for _, d := range c.Remove {
		log.Info("Pod removed", "pod", klog.KObj(d.Pod), "podUID", d.Pod.UID, "origin", d.Origin)
	}
}

// reportAdvice reports what could be done better about manifests that work.
func (a *Announcer) reportAdvice(advice []events.Entry) {
	for _, e := range advice {
		a.log.Info("Event occurred", "object", e.Object.Name, "reason", e.Reason, "message", e.Message)
		a.events.Add(e)
	}
}

// reportProblems makes events of the problems that aren't known yet, and returns all there are.
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

// reportUnsupported reports what a new pod asks for in vain.
func (a *Announcer) reportUnsupported(d *pod.Desired) {
	fields := a.unsupported(d.Pod)
	if len(fields) == 0 {
		return
	}
	message := strings.Join(fields, "; ")
	a.log.Info("Pod uses fields that this build doesn't support", "pod", klog.KObj(d.Pod), "fields", message)
	a.events.Event(d.Pod, pod.Event{Type: v1.EventTypeWarning, Reason: pod.ReasonUnsupported, Message: message})
}
