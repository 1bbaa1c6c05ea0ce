// Package nodeobject keeps this node's object at an API server: how it is registered, what an existing one is
// given, when and with what its status is patched, and its lease.
package nodeobject

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/pkg/apis"
)

// attachAnnotation says that volumes are attached to the node by a controller (enableControllerAttachDetach).
const attachAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"

// providedIPs tells the cloud's controller the addresses to begin with.
const providedIPs = "alpha.kubernetes.io/provided-node-ip"

// uninitialized is what keeps pods off a node until its cloud's controller has looked at it.
const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// Identity is what the configuration and the machine say of the node, and no status does.
type Identity struct {
	Name string
	// Labels are those of --node-labels, Arch is as Go names it. The operating system is Linux.
	Labels map[string]string
	Arch   string
	// Taints are registerWithTaints.
	Taints     []v1.Taint
	ProviderID string
	// ExternalCloud says that the node's cloud is looked after by a controller (--cloud-provider=external), and
	// ProvidedIPs with which addresses of the node that is to begin (--node-ip).
	ExternalCloud bool
	ProvidedIPs   string
	// ControllerAttaches is enableControllerAttachDetach.
	ControllerAttaches bool
}

// defaultLabels are those that every node has and its agent keeps.
func (i *Identity) defaultLabels() map[string]string {
	return map[string]string{
		v1.LabelHostname: i.Name, v1.LabelOSStable: "linux", v1.LabelArchStable: i.Arch,
		kubelet.LabelOS: "linux", kubelet.LabelArch: i.Arch,
	}
}

// annotate makes the agent's own annotations what they have to be.
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

// registration is the object with which the node is created.
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

// reconciled is what an existing object has to be when its agent has restarted. Taints and the labels of others stay:
// they may be anybody's by now.
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

// resources are those that the node has now. Of what only the object says, huge pages are gone with their kernel. What
// isn't the node's own, somebody may have written there; to a fresh agent it is what plugins gave that aren't back yet:
// none.
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

// extended reports whether a resource is one that plugins give.
func extended(name v1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}
