package mirror

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// owner is this node. Its Node object owns the mirror pods.
type owner struct {
	name string
	uid  types.UID
}

// call creates the mirror pod make, or deletes the mirror pod with the UID remove. namespace and name are the mirror
// pod's.
type call struct {
	namespace, name string
	make            *v1.Pod
	remove          types.UID
}

// same reports whether two calls have the same purpose.
func (c *call) same(other *call) bool {
	if other == nil || c.remove != other.remove || (c.make == nil) != (other.make == nil) {
		return false
	}
	return c.make == nil || c.make.Annotations[v1.MirrorPodAnnotationKey] == other.make.Annotations[v1.MirrorPodAnnotationKey] && ownerOf(c.make) == ownerOf(other.make)
}

// plan returns the calls that give each static pod its mirror pod, by pod name. There is at most one call for a name:
// a mirror pod that has to be replaced is deleted first. statuses are the statuses of all pods on the node. awaited
// is Config.Awaited.
func plan(node owner, statuses []*podstatus.Entry, mirrors []*v1.Pod,
	awaited func(namespace, name string) bool) map[string]*call {
	calls := map[string]*call{}
	if node.uid == "" {
		return calls // mirror pods would have no owner
	}
	static := map[string]*v1.Pod{}
	for _, e := range statuses {
		if !e.Report.Desired.Source.Local() {
			continue
		}
		name := pod.FullName(e.Pod)
		if other := static[name]; other == nil || other.DeletionTimestamp != nil {
			static[name] = e.Pod
		}
	}
	for _, m := range mirrors {
		name := pod.FullName(m)
		p := static[name]
		delete(static, name)
		if p == nil && awaited(m.Namespace, m.Name) || p != nil && fits(m, p, node) {
			continue
		}
		calls[name] = &call{namespace: m.Namespace, name: m.Name, remove: m.UID}
	}
	for name, p := range static {
		if p.DeletionTimestamp == nil { // a terminating pod has none: its mirror pod was deleted
			calls[name] = &call{namespace: p.Namespace, name: p.Name, make: mirrorOf(p, node)}
		}
	}
	return calls
}

// fits reports whether a mirror pod is equal to the one that would be created now. A mirror pod that a user deletes or
// ends doesn't fit, because that doesn't end the static pod. A mirror pod that has ended while its static pod was
// started again doesn't fit, either: the API doesn't allow a pod to leave a terminal phase.
func fits(m, static *v1.Pod, node owner) bool {
	over := pod.Terminal(m.Status.Phase) != "" && pod.Terminal(static.Status.Phase) == ""
	return !over && m.DeletionTimestamp == nil &&
		m.Annotations[v1.MirrorPodAnnotationKey] == static.Annotations[pod.AnnotationConfigHash] &&
		ownerOf(m) == node.uid
}

// ownerOf is the UID of the node that owns a mirror pod.
func ownerOf(m *v1.Pod) types.UID {
	if r := metav1.GetControllerOfNoCopy(m); r != nil && r.Kind == "Node" {
		return r.UID
	}
	return ""
}

// mirrorOf returns the mirror pod of a static pod
// (https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror).
func mirrorOf(static *v1.Pod, node owner) *v1.Pod {
	m := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: static.Namespace, Name: static.Name, Labels: maps.Clone(static.Labels),
		Annotations: maps.Clone(static.Annotations),
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: node.name, UID: node.uid, Controller: ptr.To(true)}},
	}, Spec: *static.Spec.DeepCopy()}
	m.Annotations[v1.MirrorPodAnnotationKey] = static.Annotations[pod.AnnotationConfigHash]
	// The API server computes the priority from priorityClassName, and refuses another value. A pod can't be created
	// with ephemeral containers.
	m.Spec.Priority, m.Spec.EphemeralContainers = nil, nil
	return m
}
