// Package csinodetest tests the behaviour of an API server's CSINode objects that the agent relies on. It runs against
// a real server and against the fakes that other tests use.
package csinodetest

import (
	"context"
	"testing"

	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// CSINodes are those of csinode.
type CSINodes interface {
	Get(ctx context.Context, name string) (*storage.CSINode, error)
	Create(ctx context.Context, n *storage.CSINode) (*storage.CSINode, error)
	Update(ctx context.Context, n *storage.CSINode) (*storage.CSINode, error)
	Delete(ctx context.Context, name string, uid types.UID) error
}

// Run tests the behaviour that csinode relies on. node and uid are the name and UID of a node without a CSINode object.
func Run(t *testing.T, node string, uid types.UID, all CSINodes) {
	ctx := t.Context()
	if _, err := all.Get(ctx, node); !errors.IsNotFound(err) {
		t.Errorf("get an object that isn't there: %v", err)
	}
	empty := &storage.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: uid}}},
		Spec: storage.CSINodeSpec{Drivers: []storage.CSINodeDriver{}}}
	made, err := all.Create(ctx, empty)
	if err != nil || made.UID == "" || len(made.OwnerReferences) != 1 {
		t.Fatalf("create without drivers: %+v, %v", made, err)
	}
	if _, err := all.Create(ctx, empty); !errors.IsAlreadyExists(err) {
		t.Errorf("create an object that is there: %v", err)
	}
	with := func(o *storage.CSINode, d storage.CSINodeDriver) *storage.CSINode {
		o = o.DeepCopy()
		o.Spec.Drivers = []storage.CSINodeDriver{d}
		return o
	}
	driver := storage.CSINodeDriver{Name: "a.example", NodeID: "1", TopologyKeys: []string{"example/rack", "example/zone"}}
	now, err := all.Update(ctx, with(made, driver))
	if err != nil || len(now.Spec.Drivers) != 1 || now.ResourceVersion == made.ResourceVersion {
		t.Fatalf("update: %+v, %v", now, err)
	}
	if _, err := all.Update(ctx, with(made, driver)); !errors.IsConflict(err) {
		t.Errorf("update an old version: %v", err)
	}
	for what, change := range map[string]func(*storage.CSINodeDriver){
		"another node ID":     func(d *storage.CSINodeDriver) { d.NodeID = "2" },
		"other topology keys": func(d *storage.CSINodeDriver) { d.TopologyKeys = nil },
		"no node ID":          func(d *storage.CSINodeDriver) { d.Name, d.NodeID = "b.example", "" },
	} {
		bad := driver
		change(&bad)
		if _, err := all.Update(ctx, with(now, bad)); !errors.IsInvalid(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	driver.Allocatable = &storage.VolumeNodeResources{Count: ptr.To[int32](7)}
	if now, err = all.Update(ctx, with(now, driver)); err != nil || *now.Spec.Drivers[0].Allocatable.Count != 7 {
		t.Errorf("another limit: %+v, %v", now, err)
	}
	if read, err := all.Get(ctx, node); err != nil || read.ResourceVersion != now.ResourceVersion {
		t.Errorf("get: %+v, %v", read, err)
	}
	if err := all.Delete(ctx, node, "another"); !errors.IsConflict(err) {
		t.Errorf("delete an object with another UID: %v", err)
	}
	if err := all.Delete(ctx, node, made.UID); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := all.Delete(ctx, node, made.UID); !errors.IsNotFound(err) {
		t.Errorf("delete it again: %v", err)
	}
	if _, err := all.Update(ctx, now); !errors.IsNotFound(err) && !errors.IsConflict(err) {
		t.Errorf("update an object that is gone: %v", err)
	}
}
