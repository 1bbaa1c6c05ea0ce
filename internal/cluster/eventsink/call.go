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

// component is the source of the events. Dashboards and alerts depend on this name.
const component = "kubelet"

// sentState is the state of an entry at the API server.
type sentState struct {
	// count is the event's count at the API server; 0 if that isn't available.
	count   int
	message string
}

// call is a request about one entry: it creates an event or patches the one that was created.
type call struct {
	namespace, name string
	event           *v1.Event
	patch           []byte
}

// plan returns the call that updates an entry's event at the API server; nil if the event is up to date. before is
// the event's state there; nil if there is no event.
func plan(node string, before *sentState, e *events.Entry) (*call, error) {
	about, message := subject(node, e)
	c := &call{namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault), name: eventName(about.Name, e)}
	if before == nil {
		c.event = &v1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: c.namespace, Name: c.name, Annotations: e.Annotations},
			InvolvedObject: about,
			Type:           e.Type, Reason: string(e.Reason), Message: message, Count: int32(e.Count),
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

// subject returns the object of an entry's event, and its message. An entry about something that isn't an API object,
// such as a manifest, is reported as an event of the node.
func subject(node string, e *events.Entry) (v1.ObjectReference, string) {
	if e.Object.Kind != "" {
		return e.Object, e.Message
	}
	return v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)}, e.Object.Name + ": " +
		e.Message
}

// longestName is the length of an object's longest possible name, in bytes.
const longestName = 253

// eventName is the name of an entry's event. It is the same for each call, so that a repeated create, after its
// answer was lost, fails with AlreadyExists.
func eventName(object string, e *events.Entry) string {
	end := fmt.Sprintf(".%x", e.First.UnixNano()+int64(e.ID)) // both terms grow, so that no two sums are equal
	if most := longestName - len(end); len(object) > most {
		object = strings.TrimRight(object[:most], "-.")
	}
	return object + end
}
