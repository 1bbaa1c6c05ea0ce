package agent

import (
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/events"
	"github.com/deckhand-node/deckhand/internal/objects"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// openSecrets advises about manifest files of Secrets that others than their owner may
// read: once of each file, for as long as it stays that way.
type openSecrets struct{ told map[string]bool }

// look goes through a set, and returns an event for each file that wasn't told of yet.
func (s *openSecrets) look(set *objects.Set) []events.Entry {
	now := map[string]bool{}
	var news []events.Entry
	for _, d := range set.List() {
		if d.Key().Kind != objects.Secret || d.Source != pod.SourceFile {
			continue
		}
		file := d.Origin
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm()&0o077 == 0 || now[file] {
			continue // a file that is just gone is looked at again with the next set
		}
		now[file] = true
		if !s.told[file] {
			news = append(news, events.Entry{Type: v1.EventTypeWarning, Reason: "ReadableSecret", Object: v1.ObjectReference{Name: file},
				Message: fmt.Sprintf("%s defines %s and has mode %04o, so that others than its owner may read or change it: `chmod 600 %s`", file, d.Key(), info.Mode().Perm(), file)})
		}
	}
	s.told = now
	return news
}

// tellAdvice tells what could be done better about manifests that work.
func (a *Agent) tellAdvice(s *openSecrets, set *desired.Set) {
	for _, e := range s.look(set.Objects) {
		a.log.Info(e.Message)
		a.events.Add(e)
	}
}
