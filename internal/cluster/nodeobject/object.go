// Package nodeobject maintains this node's object at an API server: its registration, the reconciliation of an
// existing object, when and how its status is patched, and its lease.
package nodeobject

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/pkg/apis"
)

// attachAnnotation says that a controller attaches the node's volumes (enableControllerAttachDetach).
const attachAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"

// providedIPs lists the node's initial addresses for the cloud controller.
const providedIPs = "alpha.kubernetes.io/provided-node-ip"

// uninitialized taints a node until its cloud controller has initialized it.
const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// Identity is the part of the node's object, except its status, that configuration and machine determine.
type Identity struct {
	Name string
	// Labels are the labels from --node-labels. Arch is the CPU architecture as Go names it (GOARCH). The operating
	// system is always Linux.
	Labels map[string]string
	Arch   string
	// Taints are the taints of a node that the agent registers (registerWithTaints).
	Taints     []v1.Taint
	ProviderID string
	// ExternalCloud says that a cloud controller manages the node (--cloud-provider=external). ProvidedIPs are the
	// addresses that the cloud controller starts with (--node-ip).
	ExternalCloud bool
	ProvidedIPs   string
	// ControllerAttaches says that a controller attaches the node's volumes (enableControllerAttachDetach).
	ControllerAttaches bool
}

// defaultLabels are the labels that every node has and its agent maintains.
func (i *Identity) defaultLabels() map[string]string {
	return map[string]string{
		v1.LabelHostname: i.Name, v1.LabelOSStable: "linux", v1.LabelArchStable: i.Arch,
		kubelet.LabelOS: "linux", kubelet.LabelArch: i.Arch,
	}
}

// annotate sets the agent's own annotations, and removes those that don't apply any more.
func annotate(n *v1.Node, i *Identity) {
	own := map[string]string{}
	if i.ControllerAttaches {
		own[attachAnnotation] = "true"
	}
	if i.ExternalCloud && i.ProvidedIPs != "" {
		own[providedIPs] = i.ProvidedIPs
	}
	for _, key := range []string{attachAnnotation, providedIPs} {
		delete(n.Annotations, key)
	}
	for key, value := range own {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value)
	}
}

// registration is the object that registers the node.
func registration(i *Identity, status v1.NodeStatus) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: i.Name, Labels: i.defaultLabels()}, Status: status}
	maps.Copy(n.Labels, i.Labels)
	n.Spec.ProviderID = i.ProviderID
	n.Spec.Taints = append(n.Spec.Taints, i.Taints...)
	if i.ExternalCloud {
		n.Spec.Taints = append(n.Spec.Taints,
			v1.Taint{Key: uninitialized, Value: "true", Effect: v1.TaintEffectNoSchedule})
	}
	annotate(n, i)
	return n
}

// reconciled is an existing object with the labels, annotations and other fields that a starting agent sets. Taints
// and labels that others may have set stay.
func reconciled(existing *v1.Node, i *Identity) *v1.Node {
	n := existing.DeepCopy()
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	maps.Copy(n.Labels, i.defaultLabels())
	if n.Spec.ProviderID == "" {
		n.Spec.ProviderID = i.ProviderID
	}
	annotate(n, i)
	return n
}

// resources returns the resources in now, and the extended resources that only the object has: an administrator may
// have added those. If fresh is true, the agent hasn't sent a status yet, and the amounts of these extended resources
// are set to 0: they may be from device plugins that haven't registered again. Other resources that only the object
// has, such as huge pages of an earlier kernel, are dropped.
func resources(object, now v1.ResourceList, fresh bool) v1.ResourceList {
	list := maps.Clone(now)
	for name, amount := range object {
		if _, has := list[name]; has || !extended(name) {
			continue
		}
		if list == nil {
			list = v1.ResourceList{}
		}
		if fresh {
			amount = *resource.NewQuantity(0, resource.DecimalSI)
		}
		list[name] = amount
	}
	return list
}

// extended reports whether a resource is an extended resource, such as those of device plugins.
func extended(name v1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}
