// Package events records what happens on the node, for whoever lists it, follows
// it or writes it to an API server. Whoever repeats itself can't drown the rest
// out: identical events are counted, similar ones combined, and what one object
// has to tell is limited, as client-go documents it of its EventCorrelator.
package events

import (
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Component is who reports an event, where its Entry doesn't say.
const Component = "deckhand"

// combinedPrefix begins the message of an entry that stands for several messages.
const combinedPrefix = "(combined from similar events): "

// maxMessage is the length of a message in bytes: 10 KiB of a probe's output, as the kubelet has
// them, and what is said before them.
const maxMessage = 10<<10 + 128

// Entry is one event, or several alike. What a caller of Add gives is Object,
// Type, Reason, Message and perhaps Component; the recorder fills in the rest.
type Entry struct {
	// ID names the entry for as long as the recorder lives. An entry of an ID not seen
	// before is a new one, that of a known ID takes the place of the one seen.
	ID uint64
	// Seq is when the entry was recorded last, in the order of all that were recorded.
	Seq uint64
	// First and Last are when the event was seen first and last, Count how often.
	First, Last time.Time
	Count       int
	// Type is Normal or Warning.
	Type    string
	Reason  pod.Reason
	Message string
	// Object is what the event is about. Where that is no object of the API, such as
	// a manifest's path or URL, there is only a Name.
	Object v1.ObjectReference
	// Component is who reports it.
	Component string
}

// aboutPod is the entry of something that happened to a pod.
func aboutPod(p *v1.Pod, e pod.Event) Entry {
	return Entry{Type: e.Type, Reason: e.Reason, Message: e.Message, Object: v1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		FieldPath: fieldPath(p, e.Container),
	}}
}

// fieldPath says which container of the pod is meant, as v1.ObjectReference's
// comment has it; empty for the pod as a whole.
func fieldPath(p *v1.Pod, container string) string {
	if container == "" {
		return ""
	}
	for i := range p.Spec.Containers {
		if p.Spec.Containers[i].Name == container {
			return "spec.containers{" + container + "}"
		}
	}
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == container {
			return "spec.initContainers{" + container + "}"
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if p.Spec.EphemeralContainers[i].Name == container {
			return "spec.ephemeralContainers{" + container + "}"
		}
	}
	return "" // of a spec that has changed since
}

// shorten returns a message, which may be a container's output, of at most limit bytes.
func shorten(message string, limit int) string {
	message = strings.ToValidUTF8(message, "�")
	if len(message) <= limit {
		return message
	}
	const more = "…"
	end := limit - len(more)
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + more
}
