package agent

import (
	"strings"

	"github.com/deckhand-node/deckhand/internal/events"
	"github.com/deckhand-node/deckhand/internal/local"
)

// Events returns what happened lately, the newest last.
func (a view) Events() []local.Event { return eventViews(a.events.List()) }

// EventsSince returns what was told after the event of this Seq.
func (a view) EventsSince(seq uint64) []local.Event { return eventViews(a.events.Since(seq)) }

// EventsChanged returns a channel that gets a value when EventsSince has more to return.
func (a view) EventsChanged() (<-chan struct{}, func()) { return a.events.Watch() }

func eventViews(list []events.Entry) []local.Event {
	out := make([]local.Event, len(list))
	for i, e := range list {
		object := e.Object.Name
		if e.Object.Kind != "" {
			object = strings.ToLower(e.Object.Kind) + "/" + object
		}
		out[i] = local.Event{Seq: e.Seq, Time: e.Last, First: e.First, Type: e.Type, Reason: e.Reason, Namespace: e.Object.Namespace, Object: object,
			UID: e.Object.UID, Part: e.Object.FieldPath, Component: e.Component, Message: e.Message, Count: e.Count}
	}
	return out
}
