package eventsink

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/report/events"
)

// component is who reports the events: what shows and alerts on them knows that name.
const component = "kubelet"

// told is what the API server knows of an entry.
type told struct {
	// count is 0 where it isn't known which.
	count   int
	message string
}

// call is a request about one entry: to make an event, or else to patch the one that was made.
type call struct {
	namespace, name string
	event           *v1.Event
	patch           []byte
}

// plan is the call that tells an entry of which the API server knows that; nil if it knows all.
func plan(node string, before *told, e *events.Entry) (*call, error) {
	about, message := subject(node, e)
	c := &call{namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault), name: eventName(about.Name, e)}
	if before == nil {
		c.event = &v1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name}, InvolvedObject: about,
			Type: e.Type, Reason: string(e.Reason), Message: message, Count: int32(e.Count),
			FirstTimestamp: metav1.NewTime(e.First), LastTimestamp: metav1.NewTime(e.Last),
			Source: v1.EventSource{Component: component, Host: node}, ReportingController: component,
			ReportingInstance: node,
		}
		return c, nil
	}
	if before.count == e.Count && before.message == message {
		return nil, nil
	}
	changed := map[string]any{"count": e.Count, "lastTimestamp": metav1.NewTime(e.Last)}
	if before.message != message {
		changed["message"] = message
	}
	var err error
	if c.patch, err = json.Marshal(changed); err != nil {
		return nil, fmt.Errorf("patch of event %s/%s: %w", c.namespace, c.name, err)
	}
	return c, nil
}

// subject is what an entry is about at the API server, and its message there. What is about something that isn't there,
// such as a manifest, is about the node.
func subject(node string, e *events.Entry) (v1.ObjectReference, string) {
	if e.Object.Kind != "" {
		return e.Object, e.Message
	}
	return v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)}, e.Object.Name + ": " +
		e.Message
}

// longestName is how long the name of an object may be.
const longestName = 253

// eventName is the name of an entry's object, the same for each call: one that is made again, as its answer was lost,
// is known by that.
func eventName(object string, e *events.Entry) string {
	end := fmt.Sprintf(".%x", e.First.UnixNano()+int64(e.ID)) // both grow, so that no two have the same sum
	if most := longestName - len(end); len(object) > most {
		object = strings.TrimRight(object[:most], "-.")
	}
	return object + end
}
