package desired

import (
	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// SourceKind makes a source of pods. A new kind of sources is a new member of the list that NewSources gets.
type SourceKind struct {
	Name pod.Source
	// New returns the source, which doesn't run yet. It reports pods to the merger by Name, and may read statuses.
	New func(*Merger, *podstatus.Store) (Source, error)
}

// Source is where pods come from.
type Source struct {
	// Module runs the source; the zero value for a source that another part of the agent runs.
	Module modules.Module
	// Exposures lists who besides root can change what the source reads; nil if nobody can.
	Exposures func() []string
}

// Sources are all sources of pods of an agent, and the merger that they report to.
type Sources struct {
	Merger *Merger
	list   []Source
}

// NewSources makes a source of each kind.
func NewSources(kinds []SourceKind, statuses *podstatus.Store, log logr.Logger) (*Sources, error) {
	names := make([]pod.Source, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
	}
	s := &Sources{Merger: New(log, names...)}
	for _, k := range kinds {
		source, err := k.New(s.Merger, statuses)
		if err != nil {
			return nil, err
		}
		s.list = append(s.list, source)
	}
	return s, nil
}

// Modules returns what runs the sources, in their order.
func (s *Sources) Modules() []modules.Module {
	var list []modules.Module
	for _, one := range s.list {
		if one.Module.Name != "" {
			list = append(list, one.Module)
		}
	}
	return list
}

// Exposures lists who besides root can change what sources read.
func (s *Sources) Exposures() []string {
	var list []string
	for _, one := range s.list {
		if one.Exposures != nil {
			list = append(list, one.Exposures()...)
		}
	}
	return list
}
