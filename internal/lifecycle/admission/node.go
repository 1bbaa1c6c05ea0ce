package admission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	features "k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Refuses returns why the pod can't run on this node, regardless of other pods; nil if it can.
func (n *Node) Refuses(p *v1.Pod) *pod.Failure {
	rejected := func(reason pod.Reason, message string) *pod.Failure {
		return &pod.Failure{Reason: reason, Message: message, Rejected: true}
	}
	if os, asked := p.Spec.NodeSelector[v1.LabelOSStable]; asked && os != n.Labels[v1.LabelOSStable] {
		return rejected(pod.ReasonOSLabel,
			"Failed to admit pod as the `kubernetes.io/os` label doesn't match node label")
	}
	if os := p.Spec.OS; os != nil && string(os.Name) != n.OS {
		return rejected(pod.ReasonOS, "Failed to admit pod as the OS field doesn't match node OS")
	}
	if why := n.forbiddenSysctl(p); why != "" {
		return rejected(pod.ReasonSysctlForbidden, why)
	}
	if name := confined(p); name != "" && !n.AppArmor {
		return rejected(pod.ReasonAppArmor,
			fmt.Sprintf("Cannot enforce AppArmor: AppArmor is not enabled on the host, and container %s asks for a "+
				"profile", name))
	}
	if missing := n.missingFeatures(p); len(missing) > 0 {
		return rejected(pod.ReasonFeatureUnsupported,
			"Pod requires node features that are not available: "+strings.Join(missing, ", "))
	}
	if !n.selected(p) {
		return rejected(pod.ReasonNodeAffinity,
			"Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")
	}
	if p.Spec.NodeName != "" && p.Spec.NodeName != n.Name { // an API server sends a node only the pods bound to it
		return rejected(pod.ReasonNodeName, "Predicate NodeName failed: node(s) didn't match the requested node name")
	}
	if !n.tolerated(p) {
		return rejected(pod.ReasonTaintToleration,
			"Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate")
	}
	if n.AwaitsAddress && needsAddress(p) {
		return &pod.Failure{Wait: pod.WaitForAddress,
			Message: "an address of the node: an external cloud provider has to tell one"}
	}
	if !pod.StrictGroups(p) {
		return nil
	}
	if n.SupplementalGroupsPolicy == nil {
		return &pod.Failure{Reason: pod.ReasonSupplementalGroupsPolicyNotSupported, Wait: pod.WaitForRuntime,
			Message: "the container runtime to tell whether it can do what the pod asks for"}
	}
	if !*n.SupplementalGroupsPolicy {
		return rejected(pod.ReasonSupplementalGroupsPolicyNotSupported,
			"SupplementalGroupsPolicy=Strict is not supported in this node: the container runtime doesn't know it")
	}
	return nil
}

// needsAddress reports whether the pod needs the node's address to start.
func needsAddress(p *v1.Pod) bool {
	if p.Spec.HostNetwork {
		return true
	}
	asks := func(env []v1.EnvVar) bool {
		return slices.ContainsFunc(env, func(e v1.EnvVar) bool {
			return e.ValueFrom != nil && e.ValueFrom.FieldRef != nil &&
				strings.HasPrefix(e.ValueFrom.FieldRef.FieldPath, "status.hostIP")
		})
	}
	with := func(c v1.Container) bool { return asks(c.Env) }
	return slices.ContainsFunc(p.Spec.InitContainers, with) || slices.ContainsFunc(p.Spec.Containers, with)
}

// selected reports whether the node matches the pod's nodeSelector and required node affinity.
func (n *Node) selected(p *v1.Pod) bool {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
	matches, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(node)
	return matches && err == nil
}

// tolerated reports whether the pod tolerates each NoExecute taint. Other effects are the scheduler's concern. A
// static pod tolerates all taints.
func (n *Node) tolerated(p *v1.Pod) bool {
	_, found := corev1.FindMatchingUntoleratedTaint(logr.Discard(), n.Taints, p.Spec.Tolerations,
		func(t *v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute }, true)
	return !found
}

// missingFeatures are the features that the pod requires and this node doesn't declare.
func (n *Node) missingFeatures(p *v1.Pod) []string {
	target, err := version.Parse(n.Version)
	if err != nil {
		return nil // without a version no requirements can be inferred
	}
	f := features.DefaultFramework
	required, err := f.InferForPodScheduling(&features.PodInfo{Spec: &p.Spec}, target)
	if err != nil || required.IsEmpty() {
		return nil
	}
	match, err := f.MatchNodeFeatureSet(required, f.TryMap(n.DeclaredFeatures))
	if err != nil {
		return nil
	}
	return match.UnsatisfiedRequirements
}

// confined returns the name of a container that asks for an AppArmor profile
// (https://kubernetes.io/docs/tutorials/security/apparmor/); empty if none does.
func confined(p *v1.Pod) string {
	for name := range pod.ContainerNames(p) {
		profile, err := pod.AppArmorProfile(p, pod.ContainerNamed(p, name))
		if err != nil || profile != nil && profile.Type != v1.AppArmorProfileTypeUnconfined {
			return name
		}
	}
	return ""
}
