// Package nodeobjecttest tests the behaviour of an API server's node objects and leases that the agent relies on. It
// runs against a real server and against the fakes that other tests use.
package nodeobjecttest

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
)

// Nodes and Leases are nodeobject's interfaces of these names.
type (
	Nodes interface {
		Get(ctx context.Context, name string) (*v1.Node, error)
		Create(ctx context.Context, n *v1.Node) (*v1.Node, error)
		Patch(ctx context.Context, name string, body []byte) (*v1.Node, error)
		PatchStatus(ctx context.Context, name string, body []byte) (*v1.Node, error)
		Watch(ctx context.Context, name string, tell func(*v1.Node))
	}
	Leases interface {
		Get(ctx context.Context, name string) (*coordination.Lease, error)
		Create(ctx context.Context, l *coordination.Lease) (*coordination.Lease, error)
		Update(ctx context.Context, l *coordination.Lease) (*coordination.Lease, error)
	}
)

// Run tests the behaviour that nodeobject relies on. name is the name of a node that doesn't exist. remove deletes its
// object, as another client would.
func Run(t *testing.T, name string, nodes Nodes, leases Leases, remove func()) {
	ctx := t.Context()
	watching, stop := context.WithCancel(ctx)
	told, done := make(chan *v1.Node, 100), make(chan struct{})
	go func() { defer close(done); nodes.Watch(watching, name, func(n *v1.Node) { told <- n }) }()
	defer func() { stop(); <-done }()
	tells := func(what string, is func(*v1.Node) bool) {
		t.Helper()
		for n := range told { // the test's timeout ends a futile wait
			if is(n) {
				return
			}
			t.Logf("not yet %s: %v", what, n)
		}
	}
	if _, err := nodes.Get(ctx, name); !errors.IsNotFound(err) {
		t.Errorf("get a node that isn't there: %v", err)
	}
	if _, err := nodes.Patch(ctx, name, []byte(`{"metadata": {"labels": {"a": "b"}}}`)); !errors.IsNotFound(err) {
		t.Errorf("patch a node that isn't there: %v", err)
	}
	made, err := nodes.Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil || made.UID == "" {
		t.Fatalf("create a node: %+v, %v", made, err)
	}
	tells("created", func(n *v1.Node) bool { return n != nil && n.UID == made.UID })
	if _, err := nodes.Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); !errors.IsAlreadyExists(err) {
		t.Errorf("create a node that is there: %v", err)
	}
	if n, err := nodes.Patch(ctx, name, []byte(`{"metadata": {"labels": {"a": "b"}}}`)); err != nil ||
		n.Labels["a"] != "b" {
		t.Errorf("patch labels: %+v, %v", n, err)
	}
	for _, c := range []struct{ body, want string }{
		{`{"metadata": {"labels": {"c": "d"}, "annotations": {"x": "1", "y": "2"}}}`, "1"},
		{`{"metadata": {"annotations": {"x": null}}}`, ""},
	} {
		n, err := nodes.Patch(ctx, name, []byte(c.body))
		if err != nil {
			t.Fatalf("patch annotations: %v", err)
		}
		x, has := n.Annotations["x"]
		if x != c.want || has != (c.want != "") || n.Annotations["y"] != "2" || n.Labels["a"] != "b" || n.Labels["c"] != "d" {
			t.Errorf("after the patch %s it is %+v", c.body, n.ObjectMeta)
		}
	}
	for _, kind := range []v1.NodeConditionType{"Theirs", v1.NodeReady} {
		body, err := json.Marshal(
			map[string]any{"status": map[string]any{
				"conditions": []v1.NodeCondition{{Type: kind, Status: v1.ConditionTrue}}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nodes.PatchStatus(ctx, name, body); err != nil {
			t.Errorf("patch the status: %v", err)
		}
	}
	n, err := nodes.Get(ctx, name)
	if err != nil || len(n.Status.Conditions) != 2 || n.Labels["a"] != "b" {
		t.Errorf("conditions are merged by type: %+v, %v", n, err)
	}
	tells("patched", func(n *v1.Node) bool { return n != nil && len(n.Status.Conditions) == 2 })
	runVolumes(t, name, nodes)
	tells("with a list", func(n *v1.Node) bool { return n != nil && len(n.Status.VolumesInUse) == 1 })
	runLeases(t, name, made, leases)
	remove()
	tells("removed", func(n *v1.Node) bool { return n == nil })
	again, err := nodes.Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{"a"}}})
	if err != nil || again.UID == made.UID || len(again.Status.VolumesInUse) != 1 {
		t.Errorf("create it again: %+v, %v", again, err)
	}
}

// runVolumes checks that a patch replaces the whole list of volumes in use, and returns an object that is newer than
// all before. The list of attached volumes and the conditions must stay.
func runVolumes(t *testing.T, name string, nodes Nodes) {
	patch := func(body string) *v1.Node {
		t.Helper()
		n, err := nodes.PatchStatus(t.Context(), name, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := patch(`{"status": {"volumesAttached": [{"name": "x", "devicePath": "/dev/x"}]}}`)
	for _, list := range []string{`["a", "b", "c"]`, `["b"]`, `[]`, `["z", "a"]`, `["d"]`} {
		n := patch(`{"status": {"volumesInUse": ` + list + `}}`)
		var want []v1.UniqueVolumeName
		if err := json.Unmarshal([]byte(list), &want); err != nil {
			t.Fatal(err)
		}
		later, known := apiclient.Newer(n.ResourceVersion, before.ResourceVersion)
		if s := n.Status; !slices.Equal(s.VolumesInUse, want) || !later || !known ||
			len(s.VolumesAttached) != 1 || len(s.Conditions) != 2 {
			t.Errorf("after %s, version %s becomes %s with %+v", list, before.ResourceVersion, n.ResourceVersion, s)
		}
		before = n
	}
}

func runLeases(t *testing.T, name string, owner *v1.Node, leases Leases) {
	ctx := t.Context()
	if _, err := leases.Get(ctx, name); !errors.IsNotFound(err) {
		t.Errorf("get a lease that isn't there: %v", err)
	}
	lease := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1.NamespaceNodeLease,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: owner.UID}}},
		Spec: coordination.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: ptr.To[int32](40)}}
	made, err := leases.Create(ctx, lease)
	if err != nil {
		t.Fatalf("create a lease: %v", err)
	}
	if _, err := leases.Create(ctx, lease); !errors.IsAlreadyExists(err) {
		t.Errorf("create a lease that is there: %v", err)
	}
	renewed := made.DeepCopy()
	renewed.Spec.RenewTime = ptr.To(metav1.NowMicro())
	renewed, err = leases.Update(ctx, renewed)
	if err != nil || renewed.ResourceVersion == made.ResourceVersion || renewed.Spec.RenewTime == nil {
		t.Errorf("update a lease: %+v, %v", renewed, err)
	}
	if _, err := leases.Update(ctx, made); !errors.IsConflict(err) {
		t.Errorf("update an old version of a lease: %v", err)
	}
}
