package agent

import (
	"context"

	"github.com/deckhand-node/deckhand/internal/events"
)

// logProblems tells each new problem of the sources, once, in the log and as an event.
func (a *Agent) logProblems(ctx context.Context) error {
	changed, end := a.merger.Subscribe()
	defer end()
	known := map[string]bool{}
	for {
		now := map[string]bool{}
		for _, p := range a.merger.Current().Problems {
			key := p.Origin + "\x00" + p.Message
			now[key] = true
			if !known[key] {
				a.log.Info("A manifest can't be used", "source", p.Source, "origin", p.Origin, "pod", p.Pod, "problem", p.Message)
				a.events.Add(events.Entry{Type: "Warning", Reason: "InvalidManifest", Object: p.Origin, Message: p.Message})
			}
		}
		known = now
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}
