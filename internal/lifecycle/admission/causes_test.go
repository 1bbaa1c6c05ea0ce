package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// Whatever Refuses calls unmatched has a cause, and what matches has none.
func TestUnmatched(t *testing.T) {
	labels := map[string]string{"disk": "hdd", "zone": "a"}
	in := func(key string, op v1.NodeSelectorOperator, values ...string) v1.NodeSelectorRequirement {
		return v1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
	}
	affinity := func(terms ...v1.NodeSelectorTerm) *v1.Affinity {
		return &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	all := func(e ...v1.NodeSelectorRequirement) v1.NodeSelectorTerm {
		return v1.NodeSelectorTerm{MatchExpressions: e}
	}
	for name, tc := range map[string]struct {
		spec v1.PodSpec
		want []string
	}{
		"nothing asked for":       {},
		"it matches":              {spec: v1.PodSpec{NodeSelector: map[string]string{"disk": "hdd"}, Affinity: affinity(all(in("zone", "In", "a", "b")))}},
		"one alternative matches": {spec: v1.PodSpec{Affinity: affinity(all(in("gpu", "Exists")), all(in("zone", "In", "a")))}},
		"another value, and a missing label": {v1.PodSpec{NodeSelector: map[string]string{"disk": "ssd", "gpu": "yes", "zone": "a"}},
			[]string{"its nodeSelector asks for disk=ssd: the node has disk=hdd", "its nodeSelector asks for gpu=yes: the node has no label gpu"}},
		"an empty value isn't a missing label": {v1.PodSpec{NodeSelector: map[string]string{"gpu": ""}}, []string{"its nodeSelector asks for gpu=: the node has no label gpu"}},
		"affinity": {v1.PodSpec{Affinity: affinity(all(in("zone", "In", "a"), in("disk", "NotIn", "hdd")), all(in("gpu", "Exists")))},
			[]string{"its nodeAffinity asks for disk NotIn hdd: the node has disk=hdd", "its nodeAffinity asks for gpu Exists: the node has no label gpu"}},
		"the node's name": {v1.PodSpec{Affinity: affinity(v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{in("metadata.name", "In", "n2")}})},
			[]string{"its nodeAffinity asks for metadata.name In n2: the node is n1"}},
	} {
		p := &v1.Pod{Spec: tc.spec}
		if diff := cmp.Diff(tc.want, Unmatched(p, "n1", labels)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if (&Node{Name: "n1", Labels: labels}).selected(p) != (tc.want == nil) {
			t.Errorf("%s: admission says otherwise", name)
		}
	}
}

func TestPortHolders(t *testing.T) {
	with := func(name string, ports ...v1.ContainerPort) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Ports: ports}}}}
		p.Namespace, p.Name = "default", name
		return p
	}
	others := []*v1.Pod{
		with("all", v1.ContainerPort{HostPort: 80}, v1.ContainerPort{ContainerPort: 81}), with("udp", v1.ContainerPort{HostPort: 80, Protocol: v1.ProtocolUDP}),
		with("local", v1.ContainerPort{HostPort: 90, HostIP: "127.0.0.1"}), with("other", v1.ContainerPort{HostPort: 90, HostIP: "192.0.2.1"}),
	}
	for name, tc := range map[string]struct {
		port v1.ContainerPort
		want []string
	}{
		"on one address": {v1.ContainerPort{HostPort: 80, HostIP: "::1"}, []string{"pod default/all has host port 80/TCP"}},
		"on all":         {v1.ContainerPort{HostPort: 90}, []string{"pod default/local has host port 90/TCP", "pod default/other has host port 90/TCP"}},
		"of a protocol":  {v1.ContainerPort{HostPort: 80, Protocol: v1.ProtocolUDP}, []string{"pod default/udp has host port 80/UDP"}},
		"none":           {v1.ContainerPort{ContainerPort: 80}, nil},
		"free":           {v1.ContainerPort{HostPort: 81}, nil},
	} {
		if diff := cmp.Diff(tc.want, PortHolders(with("p", tc.port), others)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
