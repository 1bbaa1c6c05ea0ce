package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Unmatched describes to a user which terms of a pod's nodeSelector and required node affinity the node doesn't
// match; empty if it matches all.
func Unmatched(p *v1.Pod, node string, labels map[string]string) []string {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: labels}}
	has := func(key string) string {
		if value, ok := labels[key]; ok {
			return fmt.Sprintf("the node has %s=%s", key, value)
		}
		return "the node has no label " + key
	}
	var list []string
	for _, key := range slices.Sorted(maps.Keys(p.Spec.NodeSelector)) {
		if value, ok := labels[key]; !ok || value != p.Spec.NodeSelector[key] {
			list = append(list, fmt.Sprintf("its nodeSelector asks for %s=%s: %s", key, p.Spec.NodeSelector[key],
				has(key)))
		}
	}
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return list
	}
	matches := func(terms ...v1.NodeSelectorTerm) bool {
		ok, err := nodeaffinity.NewLazyErrorNodeSelector(&v1.NodeSelector{NodeSelectorTerms: terms}).Match(n)
		return ok && err == nil
	}
	terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if matches(terms...) {
		return list
	}
	// Terms are alternatives; all requirements of one term have to match.
	for _, term := range terms {
		for _, e := range term.MatchExpressions {
			if !matches(v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{e}}) {
				list = append(list, fmt.Sprintf("its nodeAffinity asks for %s: %s", requirement(e), has(e.Key)))
			}
		}
		for _, e := range term.MatchFields {
			if !matches(v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{e}}) {
				list = append(list, fmt.Sprintf("its nodeAffinity asks for %s: the node is %s", requirement(e), node))
			}
		}
	}
	return list
}

// requirement formats a requirement, such as "zone In a, b".
func requirement(r v1.NodeSelectorRequirement) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Key, r.Operator, strings.Join(r.Values, ", ")))
}

// PortHolders describes to a user which of the other pods have host ports that the pod asks for.
func PortHolders(p *v1.Pod, others []*v1.Pod) []string {
	var list []string
	for _, wanted := range hostPorts(p, -1) {
		for i, other := range others {
			if slices.ContainsFunc(hostPorts(other, i), wanted.conflicts) {
				list = append(list, fmt.Sprintf("pod %s/%s has host port %d/%s", other.Namespace, other.Name,
					wanted.port, wanted.protocol))
			}
		}
	}
	return list
}
