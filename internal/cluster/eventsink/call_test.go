package eventsink

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/deckhand-node/deckhand/internal/report/events"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func aboutPod(name string, count int) *events.Entry {
	return &events.Entry{ID: 1, Seq: uint64(count), First: noon, Last: noon.Add(time.Duration(count) * time.Second), Count: count, Type: v1.EventTypeWarning, Reason: "Unhealthy", Message: "sick",
		Object: v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: name, UID: "u", FieldPath: "spec.containers{c}"}}
}

func TestPlan(t *testing.T) {
	of := func(c int, message string) *sentState { return &sentState{c, message} }
	for name, tc := range map[string]struct {
		before *sentState
		want   string
	}{
		"new": {nil, `{"metadata":{"name":"web.1886e830c7f08001","namespace":"ns"},"involvedObject":{"kind":"Pod","namespace":"ns","name":"web","uid":"u","apiVersion":"v1","fieldPath":"spec.containers{c}"},` +
			`"reason":"Unhealthy","message":"sick","source":{"component":"kubelet","host":"n1"},"firstTimestamp":"2026-01-02T12:00:00Z","lastTimestamp":"2026-01-02T12:00:03Z","count":3,"type":"Warning","eventTime":null,` +
			`"reportingComponent":"kubelet","reportingInstance":"n1"}`},
		"repeated":         {of(2, "sick"), `{"count":3,"lastTimestamp":"2026-01-02T12:00:03Z"}`},
		"another message":  {of(2, "ill"), `{"count":3,"lastTimestamp":"2026-01-02T12:00:03Z","message":"sick"}`},
		"made, not known":  {of(0, "sick"), `{"count":3,"lastTimestamp":"2026-01-02T12:00:03Z"}`},
		"nothing to tell":  {of(3, "sick"), ``},
		"only its message": {of(3, "ill"), `{"count":3,"lastTimestamp":"2026-01-02T12:00:03Z","message":"sick"}`},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := plan("n1", tc.before, aboutPod("web", 3))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if c != nil {
				got = string(c.patch)
			}
			if c != nil && c.event != nil {
				text, err := json.Marshal(c.event)
				if err != nil {
					t.Fatal(err)
				}
				got = strings.Replace(string(text), `,"metadata":{}`, "", 1)
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestAnnotations: they are sent with the event, and stay as they are.
func TestAnnotations(t *testing.T) {
	e := aboutPod("web", 3)
	e.Annotations = map[string]string{"starved_resource": "memory"}
	c, err := plan("n1", nil, e)
	if err != nil || c.event.Annotations["starved_resource"] != "memory" {
		t.Errorf("got %+v, %v", c, err)
	}
	if c, err = plan("n1", &sentState{2, "sick"}, e); err != nil || string(c.patch) != `{"count":3,"lastTimestamp":"2026-01-02T12:00:03Z"}` {
		t.Errorf("got %s, %v", c.patch, err)
	}
}

// TestSubject: what isn't at the API server is told of the node that has it.
func TestSubject(t *testing.T) {
	e := &events.Entry{First: noon, Object: v1.ObjectReference{Name: "/etc/m/web.yaml"}, Message: "line 3: bad"}
	c, err := plan("N1", nil, e)
	if err != nil {
		t.Fatal(err)
	}
	if o := c.event.InvolvedObject; o.Kind != "Node" || o.Name != "N1" || o.UID != "N1" || c.namespace != "default" || c.event.Message != "/etc/m/web.yaml: line 3: bad" {
		t.Errorf("%+v: %s", o, c.event.Message)
	}
}

// TestEventName: the name of an event is valid however long its object's is, and differs for each entry.
func TestEventName(t *testing.T) {
	for _, object := range []string{"a", strings.Repeat("a", 253), strings.Repeat("a", 235) + "-." + strings.Repeat("b", 16)} {
		one, two := *aboutPod(object, 1), *aboutPod(object, 1)
		two.ID++
		a, b := eventName(object, &one), eventName(object, &two)
		for _, wrong := range validation.IsDNS1123Subdomain(a) {
			t.Errorf("%s: %s", a, wrong)
		}
		if a == b {
			t.Errorf("two events are called %s", a)
		}
	}
}
