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
func (n Node) Event(e pod.Event) { n.NodeEvent(e.Type, e.Reason, e.Message) }

// NodeEvent is Event with separate arguments. The type is Normal or Warning.
func (n Node) NodeEvent(eventType string, reason pod.Reason, message string) {
	n.Recorder.Add(Entry{Type: eventType, Reason: reason, Message: message,
		Object: v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: types.UID(n.Name)}})
}
