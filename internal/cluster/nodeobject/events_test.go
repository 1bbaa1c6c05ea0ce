package nodeobject

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
)

// Each change of the pressure is one event, and so is each end of it.
func TestPressureEvents(t *testing.T) {
	all := admission.Pressure{Memory: true, Disk: true, PIDs: true}
	for _, tc := range []struct {
		was, now admission.Pressure
		want     []string
	}{
		{admission.Pressure{}, admission.Pressure{}, nil},
		{all, all, nil},
		{admission.Pressure{}, all, []string{"NodeHasInsufficientMemory", "NodeHasDiskPressure", "NodeHasInsufficientPID"}},
		{all, admission.Pressure{}, []string{"NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"}},
		{admission.Pressure{Memory: true}, admission.Pressure{Disk: true}, []string{"NodeHasSufficientMemory", "NodeHasDiskPressure"}},
	} {
		var got []string
		for _, e := range PressureEvents("n1", tc.was, tc.now) {
			got = append(got, string(e.Reason))
			if e.Type != v1.EventTypeNormal || e.Message != "Node n1 status is now: "+string(e.Reason) {
				t.Errorf("%+v", e)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%+v, then %+v: %q, want %q", tc.was, tc.now, got, tc.want)
		}
	}
}

// Reasons are written out: controllers and alerts go by them.
func TestEvents(t *testing.T) {
	node := func(ready v1.ConditionStatus, boot string, cordoned bool) *v1.Node {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: v1.NodeSpec{Unschedulable: cordoned}, Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{BootID: boot}}}
		if ready != "" {
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: ready}}
		}
		return n
	}
	for name, tc := range map[string]struct {
		was, now *v1.Node
		want     []string
	}{
		"nothing":                {node(v1.ConditionTrue, "a", true), node(v1.ConditionTrue, "a", true), nil},
		"new":                    {node("", "", false), node(v1.ConditionTrue, "a", false), nil},
		"ready":                  {node(v1.ConditionFalse, "a", false), node(v1.ConditionTrue, "a", false), []string{"NodeReady"}},
		"ready after an absence": {node(v1.ConditionUnknown, "a", false), node(v1.ConditionTrue, "a", false), []string{"NodeReady"}},
		"not ready":              {node(v1.ConditionTrue, "a", false), node(v1.ConditionFalse, "a", false), []string{"NodeNotReady"}},
		"rebooted":               {node(v1.ConditionTrue, "a", false), node(v1.ConditionTrue, "b", false), []string{"Rebooted"}},
		"all at once":            {node(v1.ConditionUnknown, "a", true), node(v1.ConditionFalse, "b", false), []string{"Rebooted", "NodeNotReady", "NodeSchedulable"}},
		"cordoned":               {node("", "", false), node("", "", true), []string{"NodeNotSchedulable"}},
	} {
		t.Run(name, func(t *testing.T) {
			events := statusEvents(tc.was, tc.now)
			if e, happened := cordoned(tc.was, tc.now); happened {
				events = append(events, e)
			}
			var got []string
			for _, e := range events {
				got = append(got, string(e.Reason))
				message := "Node n1 status is now: " + string(e.Reason)
				if e.Reason == "Rebooted" {
					message = "Node n1 has been rebooted, boot id: b"
				}
				if e.Message != message {
					t.Errorf("%+v, want %q", e, message)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	if _, happened := cordoned(nil, node("", "", true)); !happened {
		t.Error("a node is cordoned when the agent starts, and nobody says so")
	}
	if _, happened := cordoned(node("", "", true), nil); happened {
		t.Error("an object that is removed isn't uncordoned")
	}
}
