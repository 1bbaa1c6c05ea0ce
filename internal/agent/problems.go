package agent

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/events"
	"github.com/deckhand-node/deckhand/internal/runtime/translate/unsupported"
)

// tellEvents tells what is wrong with manifests (the merger has logged that), and
// what in good ones this build doesn't act on: each once, as an event.
func (a *Agent) tellEvents(ctx context.Context) error {
	changed, end := a.merger.Subscribe()
	defer end()
	problems, pods := map[string]bool{}, map[types.UID]bool{}
	for {
		set := a.merger.Current()
		problems = a.tellProblems(set, problems)
		pods = a.tellUnsupported(set, pods)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// tellProblems tells the problems that aren't known yet, and returns all there are.
func (a *Agent) tellProblems(set *desired.Set, known map[string]bool) map[string]bool {
	now := make(map[string]bool, len(set.Problems))
	for _, p := range set.Problems {
		key := p.Origin + "\x00" + p.Message
		now[key] = true
		if !known[key] {
			a.events.Add(events.Entry{Type: "Warning", Reason: "InvalidManifest", Object: p.Origin, Message: p.Message})
		}
	}
	return now
}

// tellUnsupported tells what new pods ask for in vain, and returns all pods.
func (a *Agent) tellUnsupported(set *desired.Set, known map[types.UID]bool) map[types.UID]bool {
	now := make(map[types.UID]bool, len(set.Pods))
	for _, d := range set.Pods {
		now[d.Pod.UID] = true
		if known[d.Pod.UID] {
			continue
		}
		if fields := unsupported.Fields(d.Pod); len(fields) > 0 {
			message := strings.Join(fields, "; ")
			a.log.Info("A pod asks for what this build doesn't do", "pod", d.Pod.Name+"_"+d.Pod.Namespace, "fields", message)
			a.events.Add(events.Entry{Type: "Warning", Reason: "Unsupported", Object: d.Pod.Namespace + "/" + d.Pod.Name, Message: message})
		}
	}
	return now
}
