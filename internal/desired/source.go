package desired

import (
	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// SourceKind creates a source of pods. A new kind of source is a new element of the list for NewSources.
type SourceKind struct {
	Name pod.Source
	// New returns the source, which doesn't run yet. The source reports pods to the merger under Name, and may read
	// statuses.
	New func(*Merger, *podstatus.Store) (Source, error)
}

// Source is a source of pods.
type Source struct {
	// Module runs the source; it is the zero value if another part of the agent runs the source.
	Module modules.Module
	// Exposures lists the users besides root who can change the source's input; nil if the source has no such input.
	Exposures func() []string
}

// Sources are all sources of pods of an agent, and the merger that they report to.
type Sources struct {
	Merger *Merger
	list   []Source
}

// NewSources creates a source of each kind.
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

// Modules returns the modules that run the sources, in order.
func (s *Sources) Modules() []modules.Module {
	var list []modules.Module
	for _, one := range s.list {
		if one.Module.Name != "" {
			list = append(list, one.Module)
		}
	}
	return list
}

// Exposures lists the users besides root who can change the input of sources.
func (s *Sources) Exposures() []string {
	var list []string
	for _, one := range s.list {
		if one.Exposures != nil {
			list = append(list, one.Exposures()...)
		}
	}
	return list
}
