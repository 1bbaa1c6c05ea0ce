// Package events records events about the pods and the node, for the local API and for the API server. It limits
// repetition as client-go's EventCorrelator does: identical events are counted, similar ones combined, and the
// events about one object are rate limited.
package events

import (
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Component is the source of an event whose Entry names none.
const Component = "deckhand"

// combinedPrefix begins the message of an entry that combines events with different messages.
const combinedPrefix = "(combined from similar events): "

// maxMessage is the maximum length of a message, and of an annotation's value, in bytes. It allows for 10 KiB of a
// probe's output (the kubelet's limit) and the text before it.
const maxMessage = 10<<10 + 128

// Entry is one event, or several similar ones. Callers of Add set Object, Type, Reason, Message, and optionally
// Annotations and Component; the recorder sets the rest.
type Entry struct {
	// ID identifies the entry during the recorder's lifetime. A reader that already has an entry with this ID replaces
	// it.
	ID uint64
	// Seq increases with every recorded event: it orders entries by the last time that they were recorded.
	Seq uint64
	// First and Last are the times of the first and the last occurrence, Count is the number of occurrences.
	First, Last time.Time
	Count       int
	// Type is Normal or Warning.
	Type    string
	Reason  pod.Reason
	Message string
	// Annotations are metadata.annotations of the v1.Event. An entry that combines events with different messages has
	// none.
	Annotations map[string]string
	// Object is the regarding object. For anything that isn't an API object, such as a manifest's path or URL, only
	// Name is set.
	Object v1.ObjectReference
	// Component is the source of the event.
	Component string
}

// aboutPod returns the entry of an event about a pod.
func aboutPod(p *v1.Pod, e pod.Event) Entry {
	return Entry{Type: e.Type, Reason: e.Reason, Message: e.Message, Annotations: e.Annotations,
		Object: v1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID,
			FieldPath: fieldPath(p, e.Container),
		}}
}

// fieldPath returns the path of the container in the pod, in the form of v1.ObjectReference.FieldPath; it is empty
// for the pod as a whole.
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
	return "" // the spec has changed since
}

// shortenValues applies shorten to the values of annotations.
func shortenValues(annotations map[string]string, limit int) map[string]string {
	if len(annotations) == 0 {
		return nil
	}
	short := make(map[string]string, len(annotations))
	for key, value := range annotations {
		short[key] = shorten(value, limit)
	}
	return short
}

// shorten truncates a message, which may be a container's output, to at most limit bytes of valid UTF-8.
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
