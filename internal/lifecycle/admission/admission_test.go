package admission_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// requests is a pod that requests these amounts: cpu=1, memory=1Gi, ...
func requests(uid types.UID, amounts ...string) *v1.Pod {
	list := v1.ResourceList{}
	for i := 0; i < len(amounts); i += 2 {
		list[v1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid}, Status: v1.PodStatus{QOSClass: v1.PodQOSBurstable}}
	p.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: list}}}
	return p
}

// port has the pod's container use a port of the node.
func port(p *v1.Pod, ip string, number int32, protocol v1.Protocol) *v1.Pod {
	p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostIP: ip, HostPort: number, Protocol: protocol}}
	return p
}

func onNodes(p *v1.Pod, key string, values ...string) *v1.Pod {
	p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: v1.NodeSelectorOpIn, Values: values}}}}}}}
	return p
}

func with(p *v1.Pod, change func(*v1.PodSpec)) *v1.Pod {
	change(&p.Spec)
	return p
}

func newJudge(held ...admission.Held) *admission.Judge {
	n := &admission.Node{Name: "node1", OS: "linux", Labels: map[string]string{v1.LabelOSStable: "linux", "zone": "a"}, Version: "v1.36.3",
		DeclaredFeatures: []string{"RestartAllContainersOnContainerExits"}}
	j := admission.NewJudge(n, admission.AmountOf(v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourcePods: resource.MustParse("3"),
		"hugepages-2Mi": resource.MustParse("4Mi"), "example.com/card": resource.MustParse("1"),
	}))
	for _, h := range held {
		j.Add(h)
	}
	return j
}

func held(p *v1.Pod) admission.Held {
	return admission.Held{UID: p.UID, Pod: p, Amount: admission.Need(p)}
}

func ending(p *v1.Pod) admission.Held {
	h := held(p)
	h.Ending = true
	return h
}

// TestResourcesOfTheCluster: what only a scheduler counts doesn't count here; a device plugin that is away is waited for.
func TestResourcesOfTheCluster(t *testing.T) {
	j := admission.NewJudge(&admission.Node{Name: "node1", OS: "linux", InCluster: true, AwaitsPlugin: map[v1.ResourceName]bool{"example.com/away": true}}, admission.Amount{})
	for name, want := range map[string]string{
		"example.com/none": "admitted",
		"example.com/away": "waits for Plugin, OutOfexample.com/away: the device plugin of example.com/away, which hasn't registered",
		"hugepages-1Gi":    "rejected OutOfhugepages-1Gi: Node didn't have enough resource: hugepages-1Gi, requested: 1Gi, used: 0, capacity: 0",
	} {
		p := requests("p", name, map[bool]string{true: "1Gi", false: "1"}[name == "hugepages-1Gi"])
		if got := told(j.Admit(p, admission.Need(p))); got != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
}

// TestReasons holds reasons and messages as people and their dashboards know them.
func TestReasons(t *testing.T) {
	two := []admission.Held{held(requests("a", "cpu", "1", "memory", "512Mi", "hugepages-2Mi", "2Mi")), held(port(requests("b", "cpu", "2"), "192.0.2.1", 80, ""))}
	strict := func(s *v1.PodSpec) {
		s.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: ptr.To(v1.SupplementalGroupsPolicyStrict)}
	}
	for _, tc := range []struct {
		name string
		held []admission.Held
		pod  *v1.Pod
		want string
	}{
		{"fits", two, requests("p", "cpu", "1", "memory", "512Mi", "hugepages-2Mi", "2Mi", "example.com/card", "1"), "admitted"},
		{"nothing requested on a full node", []admission.Held{held(requests("a", "cpu", "9"))}, requests("p"), "admitted"},
		{"ephemeral storage isn't counted here", nil, requests("p", "ephemeral-storage", "900Gi"), "admitted"},
		{"cpu", two, requests("p", "cpu", "1100m"), "rejected OutOfcpu: Node didn't have enough resource: cpu, requested: 1100m, used: 3, capacity: 4"},
		{"more than the node has", nil, requests("p", "memory", "900Gi"), "rejected OutOfmemory: Node didn't have enough resource: memory, requested: 900Gi, used: 0, capacity: 1Gi"},
		{"more than an int64 holds", nil, requests("p", "memory", "1e30"), "rejected OutOfmemory: Node didn't have enough resource: memory, requested: 1Pi, used: 0, capacity: 1Gi"},
		{"more thousandths of a CPU than an int64 holds", nil, requests("p", "cpu", "9e18"), "rejected OutOfcpu: Node didn't have enough resource: cpu, requested: 1125899906842624m, used: 0, capacity: 4"},
		{"containers with more than an int64 together", nil, with(requests("p", "memory", "8Ei"), func(s *v1.PodSpec) { s.Containers = append(s.Containers, s.Containers[0]) }),
			"rejected OutOfmemory: Node didn't have enough resource: memory, requested: 1Pi, used: 0, capacity: 1Gi"},
		{"beside pods that run with more than an int64 together", []admission.Held{held(requests("a", "memory", "8Ei")), held(requests("b", "memory", "8Ei"))}, requests("p", "memory", "1"),
			"rejected OutOfmemory: Node didn't have enough resource: memory, requested: 1, used: 2Pi, capacity: 1Gi"},
		{"several", two, requests("p", "cpu", "5", "memory", "2Gi"), "rejected OutOfcpu: Node didn't have enough resource: cpu, requested: 5, used: 3, capacity: 4"},
		{"huge pages", two, requests("p", "hugepages-2Mi", "4Mi"), "rejected OutOfhugepages-2Mi: Node didn't have enough resource: hugepages-2Mi, requested: 4Mi, used: 2Mi, capacity: 4Mi"},
		{"an extended resource", nil, requests("p", "example.com/card", "2"), "rejected OutOfexample.com/card: Node didn't have enough resource: example.com/card, requested: 2, used: 0, capacity: 1"},
		{"one that nobody offers", nil, requests("p", "example.com/none", "1"), "waits for Plugin, OutOfexample.com/none: the device plugin of example.com/none, which hasn't registered"},
		{"one that nobody offers, and too much else", nil, requests("p", "example.com/none", "1", "cpu", "5"), "rejected OutOfcpu: Node didn't have enough resource: cpu, requested: 5, used: 0, capacity: 4"},
		{"pods", append(two, held(requests("c"))), requests("p"), "rejected OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"},
		{"room that pods which are ending hold", append(two[:1:1], ending(requests("b", "cpu", "3"))), requests("p", "cpu", "1500m"), "waits for Room, OutOfcpu: cpu: pods that are ending hold it"},
		{"more than they give back", append(two[:1:1], ending(requests("b", "cpu", "3"))), requests("p", "cpu", "3500m"), "rejected OutOfcpu: Node didn't have enough resource: cpu, requested: 3500m, used: 4, capacity: 4"},

		{"host port", two, port(requests("p"), "", 80, v1.ProtocolTCP), "rejected NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		{"host port of a sidecar", two, with(requests("p"), func(s *v1.PodSpec) {
			s.InitContainers = []v1.Container{{Name: "s", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways), Ports: []v1.ContainerPort{{HostPort: 80, HostIP: "0.0.0.0"}}}}
		}), "rejected NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		{"host port of another address", two, port(requests("p"), "192.0.2.2", 80, v1.ProtocolTCP), "admitted"},
		{"host port of another protocol", two, port(requests("p"), "", 80, v1.ProtocolUDP), "admitted"},
		{"host port of a pod that is ending", []admission.Held{ending(port(requests("a"), "", 80, ""))}, port(requests("p"), "", 80, ""), "waits for Room, NodePorts: its host ports: pods that are ending hold them"},

		{"nodeSelector", nil, with(requests("p"), func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"zone": "b"} }), "rejected NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		{"nodeSelector that fits", nil, with(requests("p"), func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"zone": "a"} }), "admitted"},
		{"node affinity", nil, onNodes(requests("p"), "zone", "b", "c"), "rejected NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		{"node affinity that fits", nil, onNodes(requests("p"), "zone", "b", "a"), "admitted"},
		{"no nonsense", nil, onNodes(requests("p"), "zone", "not a label value!"), "rejected NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		{"another node's", nil, with(requests("p"), func(s *v1.PodSpec) { s.NodeName = "other" }), "rejected NodeName: Predicate NodeName failed: node(s) didn't match the requested node name"},
		{"the node's own", nil, with(requests("p"), func(s *v1.PodSpec) { s.NodeName = "node1" }), "admitted"},
		{"OS", nil, with(requests("p"), func(s *v1.PodSpec) { s.OS = &v1.PodOS{Name: v1.Windows} }), "rejected PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS"},
		{"OS that fits", nil, with(requests("p"), func(s *v1.PodSpec) { s.OS = &v1.PodOS{Name: v1.Linux} }), "admitted"},
		{"OS by label", nil, with(requests("p"), func(s *v1.PodSpec) { s.NodeSelector = map[string]string{v1.LabelOSStable: "windows"} }), "rejected PodOSSelectorNodeLabelDoesNotMatch: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"},
		{"strict groups, and the runtime hasn't told", nil, with(requests("p"), strict), "waits for Runtime, SupplementalGroupsPolicyNotSupported: the container runtime to tell whether it can do what the pod asks for"},
		{"strict groups, and the pod can't run here anyway", nil, with(requests("p"), func(s *v1.PodSpec) { strict(s); s.OS = &v1.PodOS{Name: v1.Windows} }), "rejected PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS"},
		{"a feature that is declared", nil, with(requests("p"), func(s *v1.PodSpec) {
			s.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}}
		}), "admitted"},
		{"a feature that isn't", nil, with(requests("p"), func(s *v1.PodSpec) { s.HostNetwork, s.HostUsers = true, ptr.To(false) }), "rejected PodFeatureUnsupported: Pod requires node features that are not available: UserNamespacesHostNetworkSupport"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := told(newJudge(tc.held...).Admit(tc.pod, admission.Need(tc.pod))); got != tc.want {
				t.Errorf("%s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestWhatAPodNeeds: all of its resources count, as a scheduler counts them, and 1 more is refused.
func TestWhatAPodNeeds(t *testing.T) {
	asks := func(amounts ...string) v1.ResourceRequirements {
		return requests("", amounts...).Spec.Containers[0].Resources
	}
	always := ptr.To(v1.ContainerRestartPolicyAlways)
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		want string
	}{
		{"one container", requests("p", "cpu", "1", "memory", "1Gi"), "cpu=1,memory=1Gi"},
		{"two", with(requests("p", "cpu", "1"), func(s *v1.PodSpec) { s.Containers = append(s.Containers, s.Containers[0]) }), "cpu=2"},
		{"ephemeral storage, huge pages, devices", requests("p", "ephemeral-storage", "5Gi", "hugepages-2Mi", "4Mi", "example.com/card", "2"), "ephemeral-storage=5Gi,hugepages-2Mi=4Mi,example.com/card=2"},
		{"init containers run one after the other", with(requests("p", "cpu", "1"), func(s *v1.PodSpec) {
			s.InitContainers = []v1.Container{{Resources: asks("cpu", "3", "memory", "1Gi")}, {Resources: asks("cpu", "2")}}
		}), "cpu=3,memory=1Gi"},
		{"sidecars run beside all that comes later", with(requests("p", "cpu", "1"), func(s *v1.PodSpec) {
			s.InitContainers = []v1.Container{{Resources: asks("cpu", "3")}, {Resources: asks("cpu", "500m"), RestartPolicy: always}, {Resources: asks("cpu", "2800m")}}
		}), "cpu=3300m"},
		{"overhead", with(requests("p", "cpu", "1"), func(s *v1.PodSpec) { s.Overhead = asks("cpu", "250m", "memory", "8Mi").Requests }), "cpu=1250m,memory=8Mi"},
		{"what the pod asks for as a whole", with(requests("p", "cpu", "1", "ephemeral-storage", "1Gi"), func(s *v1.PodSpec) {
			s.Resources = &v1.ResourceRequirements{Requests: asks("cpu", "1500m", "memory", "2Gi").Requests}
			s.Overhead = asks("cpu", "100m").Requests
		}), "cpu=1600m,memory=2Gi,ephemeral-storage=1Gi"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			capacity := admission.Amount{v1.ResourcePods: 1}
			for _, part := range strings.Split(tc.want, ",") {
				name, amount, _ := strings.Cut(part, "=")
				maps.Copy(capacity, admission.AmountOf(v1.ResourceList{v1.ResourceName(name): resource.MustParse(amount)}))
			}
			need := admission.Need(tc.pod)
			if !maps.Equal(need, capacity) {
				t.Errorf("it needs %v, want %v", need, capacity)
			}
			if got := told(admission.NewJudge(&admission.Node{}, capacity).Admit(tc.pod, need)); got != "admitted" {
				t.Errorf("on a node that has that: %s", got)
			}
			for name := range need {
				less := maps.Clone(capacity)
				less[name]--
				if got := told(admission.NewJudge(&admission.Node{}, less).Admit(tc.pod, need)); !strings.HasPrefix(got, "rejected OutOf"+string(name)+": ") {
					t.Errorf("with less %s: %s", name, got)
				}
			}
		})
	}
}

// told is an answer in words.
func told(a admission.Answer) string {
	switch f := a.Failure; {
	case f == nil:
		return "admitted"
	case f.Rejected:
		return fmt.Sprintf("rejected %s: %s", f.Reason, f.Message)
	default:
		return fmt.Sprintf("waits for %s, %s: %s", f.Wait, f.Reason, f.Message)
	}
}

// TestTaints: NoExecute keeps pods away that don't tolerate it; the other effects are the scheduler's, which somebody has passed by.
func TestTaints(t *testing.T) {
	const refused = "rejected TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
	for _, tc := range []struct {
		effect v1.TaintEffect
		by     v1.Toleration
		want   string
	}{
		{v1.TaintEffectNoExecute, v1.Toleration{Key: "other", Operator: v1.TolerationOpExists}, refused},
		{v1.TaintEffectNoExecute, v1.Toleration{Key: "card", Value: "broken"}, "admitted"},
		{v1.TaintEffectNoExecute, v1.Toleration{Key: "card", Value: "new"}, refused},
		{v1.TaintEffectNoExecute, v1.Toleration{Key: "card", Operator: v1.TolerationOpExists, TolerationSeconds: ptr.To(int64(300))}, "admitted"},
		{v1.TaintEffectNoExecute, v1.Toleration{Operator: v1.TolerationOpExists}, "admitted"},
		{v1.TaintEffectNoSchedule, v1.Toleration{}, "admitted"},
		{v1.TaintEffectPreferNoSchedule, v1.Toleration{}, "admitted"},
	} {
		n := &admission.Node{Taints: []v1.Taint{{Key: "card", Value: "broken", Effect: tc.effect}}}
		p := with(requests("p"), func(s *v1.PodSpec) { s.Tolerations = []v1.Toleration{tc.by} })
		if got := told(admission.NewJudge(n, nil).Admit(p, nil)); got != tc.want {
			t.Errorf("%s, tolerated by %+v: %s", tc.effect, tc.by, got)
		}
	}
}

func TestStrictGroups(t *testing.T) {
	p := with(requests("p"), func(s *v1.PodSpec) {
		s.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: ptr.To(v1.SupplementalGroupsPolicyStrict)}
	})
	for able, want := range map[bool]string{true: "admitted",
		false: "rejected SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node: the container runtime doesn't know it"} {
		n := &admission.Node{SupplementalGroupsPolicy: &able}
		if got := told(admission.NewJudge(n, nil).Admit(p, nil)); got != want {
			t.Errorf("a runtime that knows it, %v: %s", able, got)
		}
	}
}

func TestAppArmor(t *testing.T) {
	runtimeDefault := &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	unconfined := &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	local := &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: ptr.To("a")}
	inPod := func(a *v1.AppArmorProfile) func(*v1.PodSpec) {
		return func(s *v1.PodSpec) { s.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: a} }
	}
	in := func(a *v1.AppArmorProfile) *v1.SecurityContext { return &v1.SecurityContext{AppArmorProfile: a} }
	annotated := requests("p")
	annotated.Annotations = map[string]string{v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "main": v1.DeprecatedAppArmorBetaProfileRuntimeDefault}
	const refused = "rejected AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host, and container %s asks for a profile"
	for _, tc := range []struct {
		name, want string
		pod        *v1.Pod
	}{
		{"pod", "main", with(requests("p"), inPod(runtimeDefault))},
		{"container", "main", with(requests("p"), func(s *v1.PodSpec) { s.Containers[0].SecurityContext = in(local) })},
		{"annotation", "main", annotated},
		{"init container", "i", with(requests("p"), func(s *v1.PodSpec) { s.InitContainers = []v1.Container{{Name: "i", SecurityContext: in(local)}} })},
		{"ephemeral container", "e", with(requests("p"), func(s *v1.PodSpec) {
			s.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", SecurityContext: in(runtimeDefault)}}}
		})},
		{"nothing", "", requests("p")},
		{"unconfined", "", with(requests("p"), inPod(unconfined))},
		{"the pod's isn't used", "", with(requests("p"), func(s *v1.PodSpec) { inPod(local)(s); s.Containers[0].SecurityContext = in(unconfined) })},
	} {
		want := "admitted"
		if tc.want != "" {
			want = fmt.Sprintf(refused, tc.want)
		}
		if got := told(admission.NewJudge(&admission.Node{}, nil).Admit(tc.pod, nil)); got != want {
			t.Errorf("%s: %s", tc.name, got)
		}
		if got := told(admission.NewJudge(&admission.Node{AppArmor: true}, nil).Admit(tc.pod, nil)); got != "admitted" {
			t.Errorf("%s on a host with AppArmor: %s", tc.name, got)
		}
	}
}

// TestWaitsSayWhy: whoever waits knows for what, and its failure is no rejection.
func TestWaitsSayWhy(t *testing.T) {
	a := newJudge(ending(requests("a", "cpu", "4"))).Admit(requests("p", "cpu", "1"), admission.Need(requests("p", "cpu", "1")))
	if f := a.Failure; f == nil || f.Rejected || f.Wait != pod.WaitForRoom || a.Preempt != nil {
		t.Errorf("got %+v", a)
	}
	hostIP := []v1.EnvVar{{Name: "HOST", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.hostIP"}}}}
	for name, p := range map[string]*v1.Pod{
		"host network": with(requests("p"), func(s *v1.PodSpec) { s.HostNetwork = true }),
		"variable":     with(requests("p"), func(s *v1.PodSpec) { s.Containers[0].Env = hostIP }),
		"neither":      requests("p"),
	} {
		for _, awaits := range []bool{false, true} {
			f := admission.NewJudge(&admission.Node{AwaitsAddress: awaits}, nil).Admit(p, nil).Failure
			if waits := f != nil && !f.Rejected && f.Wait == pod.WaitForAddress; waits != (awaits && name != "neither") || !waits && f != nil {
				t.Errorf("%s on a node that awaits its address (%v): %+v", name, awaits, f)
			}
		}
	}
}

// BenchmarkAdmission judges 500 pods one after the other, each beside all before it: 20 ms are allowed.
func BenchmarkAdmission(b *testing.B) {
	var pods []*v1.Pod
	for i := range 500 {
		pods = append(pods, port(requests(types.UID(fmt.Sprint("pod", i)), "cpu", "1m", "memory", "1Mi"), "", int32(1000+i), ""))
	}
	n := &admission.Node{Name: "node1", OS: "linux", Labels: map[string]string{v1.LabelOSStable: "linux"}, Version: "v1.36.3"}
	capacity := admission.AmountOf(v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("4Gi"), v1.ResourcePods: resource.MustParse("500")})
	for b.Loop() {
		j := admission.NewJudge(n, capacity)
		for _, p := range pods {
			need := admission.Need(p)
			if a := j.Admit(p, need); a.Failure != nil {
				b.Fatal(a.Failure)
			}
			j.Add(admission.Held{UID: p.UID, Pod: p, Amount: need})
		}
	}
}
