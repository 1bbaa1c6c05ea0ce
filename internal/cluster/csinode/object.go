package csinode

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
)

// migrated are the volume plugins of earlier versions of Kubernetes whose volumes CSI drivers provide. The scheduler
// and the attach-detach controller use the drivers on nodes that list them (KEP-625).
const migrated = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder," +
	"kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"

// initialized returns the object with everything that the agent writes besides drivers' entries. o is nil if there is
// no object.
func initialized(o *storage.CSINode, node string, uid types.UID) *storage.CSINode {
	if o == nil {
		o = &storage.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec: storage.CSINodeSpec{Drivers: []storage.CSINodeDriver{}}} // the API requires the list
	}
	o = o.DeepCopy()
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, v1.MigratedPluginsAnnotationKey, migrated)
	if !slices.ContainsFunc(o.OwnerReferences, isNode) {
		o.OwnerReferences = append(o.OwnerReferences,
			metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node, UID: uid})
	}
	return o
}

func isNode(r metav1.OwnerReference) bool { return r.APIVersion == "v1" && r.Kind == "Node" }

// isOfAnother reports whether the owner of the object is a Node object with another UID.
func isOfAnother(o *storage.CSINode, uid types.UID) bool {
	return slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool {
		return isNode(r) && r.UID != uid
	})
}

// only returns the object without the entries of drivers for which chosen returns false.
func only(o *storage.CSINode, chosen func(name string) bool) *storage.CSINode {
	o = o.DeepCopy()
	o.Spec.Drivers = slices.DeleteFunc(o.Spec.Drivers, func(d storage.CSINodeDriver) bool { return !chosen(d.Name) })
	return o
}

// with returns the object with a driver's entry. immutable is true if the object has a different entry of the driver,
// and the API server doesn't allow that change: then the old entry has to be removed first.
func with(o *storage.CSINode, d *nodefacts.CSIDriver) (next *storage.CSINode, immutable bool) {
	entry := storage.CSINodeDriver{Name: d.Name, NodeID: d.NodeID, TopologyKeys: slices.Sorted(maps.Keys(d.Topology))}
	if d.Limit > 0 {
		entry.Allocatable = &storage.VolumeNodeResources{Count: &d.Limit}
	}
	o = o.DeepCopy()
	i := slices.IndexFunc(o.Spec.Drivers, func(e storage.CSINodeDriver) bool { return e.Name == d.Name })
	if i < 0 {
		o.Spec.Drivers = append(o.Spec.Drivers, entry)
		return o, false
	}
	was := o.Spec.Drivers[i]
	o.Spec.Drivers[i] = entry
	return o, was.NodeID != entry.NodeID || !slices.Equal(was.TopologyKeys, entry.TopologyKeys)
}
