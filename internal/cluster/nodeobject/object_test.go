package nodeobject

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func amounts(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func at(second int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC))
}

func ready(status v1.ConditionStatus, second int) v1.NodeCondition {
	return v1.NodeCondition{Type: v1.NodeReady, Status: status, LastHeartbeatTime: at(second), LastTransitionTime: at(second)}
}

func TestRegistration(t *testing.T) {
	i := &Identity{Name: "node1", Arch: "amd64", Labels: map[string]string{"disk": "ssd"}, ProviderID: "cloud://1",
		Taints: []v1.Taint{{Key: "gpu", Effect: v1.TaintEffectNoExecute}}, ExternalCloud: true, ControllerAttaches: true,
		ProvidedIPs: "192.0.2.1"}
	want := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node1", Annotations: map[string]string{
			"volumes.kubernetes.io/controller-managed-attach-detach": "true",
			"alpha.kubernetes.io/provided-node-ip":                   "192.0.2.1",
		}, Labels: map[string]string{
			"disk": "ssd", "kubernetes.io/hostname": "node1", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64"}},
		Spec: v1.NodeSpec{ProviderID: "cloud://1", Taints: []v1.Taint{
			{Key: "gpu", Effect: v1.TaintEffectNoExecute},
			{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: v1.TaintEffectNoSchedule}}},
		Status: v1.NodeStatus{Phase: "x"},
	}
	if diff := cmp.Diff(want, registration(i, v1.NodeStatus{Phase: "x"})); diff != "" {
		t.Error(diff)
	}
}

func TestReconciled(t *testing.T) {
	was := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{"team": "a", "kubernetes.io/arch": "arm64"}, Annotations: map[string]string{attachAnnotation: "true", "other": "x"}},
		Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: "theirs"}}, ProviderID: "old"},
		Status:     v1.NodeStatus{Phase: "theirs"},
	}
	n := reconciled(was, &Identity{Name: "node1", Arch: "amd64", ProviderID: "new", Taints: []v1.Taint{{Key: "ours"}}})
	want := was.DeepCopy()
	want.Labels = map[string]string{"team": "a", "kubernetes.io/hostname": "node1", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64"}
	want.Annotations = map[string]string{"other": "x"}
	if diff := cmp.Diff(want, n); diff != "" {
		t.Error(diff)
	}
}

func TestResources(t *testing.T) {
	object, now := amounts("cpu", "2", "hugepages-2Mi", "4Mi", "example.com/card", "3"), amounts("cpu", "4", "hugepages-1Gi", "1Gi")
	for fresh, card := range map[bool]string{true: "0", false: "3"} {
		if diff := cmp.Diff(amounts("cpu", "4", "hugepages-1Gi", "1Gi", "example.com/card", card), resources(object, now, fresh)); diff != "" {
			t.Errorf("fresh %v: %s", fresh, diff)
		}
	}
}

func TestPatchHasOnlyWhatIsOurs(t *testing.T) {
	theirs := v1.NodeCondition{Type: "NetworkUnavailable", Status: v1.ConditionFalse, LastHeartbeatTime: at(1)}
	was := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", ResourceVersion: "7"}, Status: v1.NodeStatus{
		Conditions: []v1.NodeCondition{theirs, ready(v1.ConditionTrue, 1)},
		Addresses:  []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}}, Capacity: amounts("cpu", "2", "hugepages-2Mi", "4Mi"),
		VolumesAttached: []v1.AttachedVolume{{Name: "theirs"}},
		// of an agent before: the attach-detach controller detaches a volume that isn't in this list any more
		VolumesInUse: []v1.UniqueVolumeName{"one", "two", "three"},
	}}
	same := was.Status.DeepCopy()
	same.Conditions, same.VolumesInUse = []v1.NodeCondition{ready(v1.ConditionTrue, 1)}, nil
	for name, tc := range map[string]struct {
		change func(*v1.NodeStatus)
		want   string
	}{
		"nothing":   {func(*v1.NodeStatus) {}, ""},
		"heartbeat": {func(s *v1.NodeStatus) { s.Conditions[0] = ready(v1.ConditionTrue, 9) }, `{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"2026-01-01T00:00:09Z","lastTransitionTime":"2026-01-01T00:00:01Z"}]}}`},
		"not ready": {func(s *v1.NodeStatus) { s.Conditions[0] = ready(v1.ConditionFalse, 9) }, `{"status":{"conditions":[{"type":"Ready","status":"False","lastHeartbeatTime":"2026-01-01T00:00:09Z","lastTransitionTime":"2026-01-01T00:00:09Z"}]}}`},
		"addresses": {func(s *v1.NodeStatus) {
			s.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.2"}, {Type: v1.NodeInternalIP, Address: "2001:db8::2"}}
		}, `{"status":{"addresses":[{"$patch":"replace"},{"type":"InternalIP","address":"192.0.2.2"},{"type":"InternalIP","address":"2001:db8::2"}]}}`},
		"resources": {func(s *v1.NodeStatus) { s.Capacity = amounts("cpu", "4") }, `{"status":{"capacity":{"cpu":"4","hugepages-2Mi":null}}}`},
	} {
		now := same.DeepCopy()
		tc.change(now)
		got, err := patch(was, withStatus(was, now, false))
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: %s, error %v", name, got, err)
		}
	}
}

func TestDue(t *testing.T) {
	sent := at(0).Time
	status := func(r v1.ConditionStatus, heartbeat int, capacity string) *v1.NodeStatus {
		return &v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeDiskPressure, Status: v1.ConditionFalse}, {Type: v1.NodeReady, Status: r, LastHeartbeatTime: at(heartbeat)}}, Capacity: amounts("cpu", capacity)}
	}
	was, pressed := status(v1.ConditionTrue, 0, "2"), status(v1.ConditionTrue, 0, "2")
	pressed.Conditions[0].Status = v1.ConditionTrue
	for name, tc := range map[string]struct {
		now  *v1.NodeStatus
		want time.Duration
	}{
		"nothing":             {was, 5 * time.Minute},
		"made later":          {status(v1.ConditionTrue, 9, "2"), 5 * time.Minute},
		"the same amount":     {status(v1.ConditionTrue, 0, "2000m"), 5 * time.Minute},
		"another amount":      {status(v1.ConditionTrue, 0, "4"), time.Second},
		"more for pods":       {&v1.NodeStatus{Conditions: was.Conditions, Capacity: was.Capacity, Allocatable: amounts("example.com/gpu", "2")}, 100 * time.Millisecond},
		"readiness":           {status(v1.ConditionFalse, 0, "2"), 0},
		"readiness and more":  {status(v1.ConditionUnknown, 0, "4"), 0},
		"no readiness at all": {&v1.NodeStatus{}, 0},
		"pressure":            {pressed, 0},
	} {
		for _, hurried := range []bool{false, true} {
			want := tc.want
			if hurried && want == amountsGap {
				want = minGap
			}
			if got := due(was, tc.now, sent, hurried, 5*time.Minute).Sub(sent); got != want {
				t.Errorf("%s (hurried: %v): after %s, want %s", name, hurried, got, want)
			}
		}
	}
}

// TestObjectTTL: what a controller says counts, and a minute where it says nothing that is understood.
func TestObjectTTL(t *testing.T) {
	for text, want := range map[string]int{"": 60, "0": 0, "300": 300, "-1": 60, "soon": 60} {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1.ObjectTTLAnnotationKey: text}}}
		if got := objectTTL(n); got != want {
			t.Errorf("%q: %d s, want %d", text, got, want)
		}
	}
	if got := objectTTL(&v1.Node{}); got != 60 {
		t.Errorf("without the annotation: %d s", got)
	}
}
