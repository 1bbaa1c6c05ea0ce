package view

import (
	"strings"

	"github.com/deckhand-node/deckhand/internal/report/events"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// Events returns recent events, the newest last.
func (v View) Events() []local.Event { return eventViews(v.conf.Events.List()) }

// EventsSince returns the events whose Seq is higher than seq.
func (v View) EventsSince(seq uint64) []local.Event { return eventViews(v.conf.Events.Since(seq)) }

// EventsChanged returns a channel that gets a value when EventsSince has more to return.
func (v View) EventsChanged() (<-chan struct{}, func()) { return v.conf.Events.Watch() }

func eventViews(list []events.Entry) []local.Event {
	out := make([]local.Event, len(list))
	for i, e := range list {
		object := e.Object.Name
		if e.Object.Kind != "" {
			object = strings.ToLower(e.Object.Kind) + "/" + object
		}
		out[i] = local.Event{Seq: e.Seq, Time: e.Last, First: e.First, Type: e.Type, Reason: string(e.Reason),
			Namespace: e.Object.Namespace, Object: object,
			UID: e.Object.UID, Part: e.Object.FieldPath, Component: e.Component, Message: e.Message, Count: e.Count,
			Annotations: e.Annotations}
	}
	return out
}
