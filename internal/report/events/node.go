package events

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Node records events about a node in a Recorder.
type Node struct {
	Recorder *Recorder
	// Name is the node's name.
	Name string
}

// Event records an event about the node, with the current time.
func (n Node) Event(e pod.Event) {
	n.Recorder.Add(Entry{Type: e.Type, Reason: e.Reason, Message: e.Message, Annotations: e.Annotations,
		Object: v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: types.UID(n.Name)}})
}

// NodeEvent is Event with separate arguments. The type is Normal or Warning.
func (n Node) NodeEvent(eventType string, reason pod.Reason, message string) {
	n.Event(pod.Event{Type: eventType, Reason: reason, Message: message})
}
