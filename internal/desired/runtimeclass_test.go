package desired

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
)

func amount(cpu string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
}

// class is RuntimeClass kata.
func class(overhead v1.ResourceList, scheduling *nodev1.Scheduling) ObjectClaim {
	c := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Handler: "kata", Scheduling: scheduling}
	if overhead != nil {
		c.Overhead = &nodev1.Overhead{PodFixed: overhead}
	}
	return defined(pod.SourceFile, "class.yaml", c, 1)
}

// classy is a claim to a pod of RuntimeClass kata.
func classy(change func(*v1.PodSpec)) Claim {
	c := claim(pod.SourceFile, "web.yaml", "web", "1", 1)
	c.Desired.Pod.Spec.RuntimeClassName = ptr.To("kata")
	if change != nil {
		change(&c.Desired.Pod.Spec)
	}
	return c
}

func TestRuntimeClassAdmission(t *testing.T) {
	near := v1.Toleration{Key: "kata", Operator: v1.TolerationOpExists}
	far := v1.Toleration{Key: "far", Operator: v1.TolerationOpExists}
	tests := map[string]struct {
		pod      func(*v1.PodSpec)
		class    []ObjectClaim
		want     func(*v1.PodSpec)
		conflict string
	}{
		"no class is defined":      {},
		"a class without overhead": {class: []ObjectClaim{class(nil, nil)}},
		"overhead":                 {class: []ObjectClaim{class(amount("250m"), nil)}, want: func(s *v1.PodSpec) { s.Overhead = amount("250m") }},
		"the same overhead": {pod: func(s *v1.PodSpec) { s.Overhead = amount("0.25") }, class: []ObjectClaim{class(amount("250m"), nil)},
			want: func(s *v1.PodSpec) { s.Overhead = amount("0.25") }},
		"other overhead":                  {pod: func(s *v1.PodSpec) { s.Overhead = amount("1") }, class: []ObjectClaim{class(amount("250m"), nil)}, conflict: "spec.overhead isn't that of RuntimeClass kata"},
		"overhead the class doesn't have": {pod: func(s *v1.PodSpec) { s.Overhead = amount("1") }, class: []ObjectClaim{class(nil, nil)}, conflict: "spec.overhead"},
		"overhead, and no class is there": {pod: func(s *v1.PodSpec) { s.Overhead = amount("1") }, want: func(s *v1.PodSpec) { s.Overhead = amount("1") }},
		"overhead of a pod without class": {pod: func(s *v1.PodSpec) { s.RuntimeClassName, s.Overhead = nil, amount("1") }, class: []ObjectClaim{class(amount("2"), nil)}, want: func(s *v1.PodSpec) { s.RuntimeClassName, s.Overhead = nil, amount("1") }},
		"a class of another name":         {pod: func(s *v1.PodSpec) { s.RuntimeClassName = ptr.To("gvisor") }, class: []ObjectClaim{class(amount("2"), nil)}, want: func(s *v1.PodSpec) { s.RuntimeClassName = ptr.To("gvisor") }},
		"selector and tolerations, merged": {
			pod: func(s *v1.PodSpec) {
				s.NodeSelector, s.Tolerations = map[string]string{"a": "b", "c": "d"}, []v1.Toleration{near}
			},
			class: []ObjectClaim{class(nil, &nodev1.Scheduling{NodeSelector: map[string]string{"c": "d", "e": "f"}, Tolerations: []v1.Toleration{near, far}})},
			want: func(s *v1.PodSpec) {
				s.NodeSelector, s.Tolerations = map[string]string{"a": "b", "c": "d", "e": "f"}, []v1.Toleration{near, far}
			},
		},
		"a selector of none": {class: []ObjectClaim{class(nil, &nodev1.Scheduling{NodeSelector: map[string]string{"e": "f"}})},
			want: func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"e": "f"} }},
		"a selector that contradicts": {pod: func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"a": "b"} },
			class: []ObjectClaim{class(nil, &nodev1.Scheduling{NodeSelector: map[string]string{"a": "c"}})}, conflict: `spec.nodeSelector[a] is "b", but RuntimeClass kata wants "c"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := classy(test.pod)
			written := c.Desired.Pod.DeepCopy()
			m := New(logr.Discard(), pod.SourceFile)
			m.Report(Report{Source: pod.SourceFile, Claims: []Claim{c}, Objects: test.class})
			set := m.Current()
			if diff := cmp.Diff(written, c.Desired.Pod); diff != "" {
				t.Errorf("the source's pod was changed:\n%s", diff)
			}
			if test.conflict != "" {
				if len(set.Pods) != 1 || set.Get("1") != c.Desired || len(set.Problems) != 1 || !strings.Contains(set.Problems[0].Message, test.conflict) ||
					set.Problems[0].Pod != "default/web" || set.Problems[0].Origin != "web.yaml" {
					t.Errorf("pods %v, problems %v; want the pod as it is, and %q", set.Pods, set.Problems, test.conflict)
				}
				return
			}
			want := classy(test.want).Desired.Pod.Spec
			if len(set.Pods) != 1 || len(set.Problems) > 0 || set.Get("1") != set.Pods[0] {
				t.Fatalf("pods %v, problems %v", set.Pods, set.Problems)
			}
			if diff := cmp.Diff(want, set.Pods[0].Pod.Spec); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}

// While neither the pod nor its class changes, the set has the same pod by pointer.
func TestAdmittedPodKeepsItsPointer(t *testing.T) {
	m := New(logr.Discard(), pod.SourceFile)
	c, small, large := classy(nil), class(amount("1"), nil), class(amount("2"), nil)
	report := func(claims []Claim, list ...ObjectClaim) *pod.Desired {
		t.Helper()
		m.Report(Report{Source: pod.SourceFile, Claims: claims, Objects: list})
		d := m.Current().Get("1")
		if d == nil {
			t.Fatalf("problems %v", m.Current().Problems)
		}
		return d
	}
	if held := report([]Claim{c}); held != c.Desired {
		t.Error("without a class it is another pod")
	}
	first := report([]Claim{c}, small)
	if cpu := first.Pod.Spec.Overhead.Cpu(); cpu.Value() != 1 || first.Origin != "web.yaml" {
		t.Errorf("overhead %v from %s", cpu, first.Origin)
	}
	other := claim(pod.SourceFile, "db.yaml", "db", "2", 1)
	if again := report([]Claim{c, other}, small, defined(pod.SourceFile, "x", configMap("x", "y"), 1)); again != first {
		t.Error("another pod and another object made it another pod")
	}
	if before := m.Current(); report([]Claim{c, other}, small, m.reports[pod.SourceFile].Objects[1]) != first || m.Current() != before {
		t.Error("a report that says the same changed the set")
	}
	stale := small
	stale.Object = small.Object.WithStale("its manifest is bad")
	if again := report([]Claim{c, other}, stale, m.reports[pod.SourceFile].Objects[1]); again != first {
		t.Error("a class that is kept for another reason made it another pod")
	}
	old := m.Current()
	second := report([]Claim{c, other}, large, m.reports[pod.SourceFile].Objects[1])
	if second.Pod.Spec.Overhead.Cpu().Value() != 2 || second.Pod.UID != first.Pod.UID {
		t.Errorf("overhead %v after the class was edited", second.Pod.Spec.Overhead)
	}
	if changes := Diff(old, m.Current()); len(changes.Update) != 1 || changes.Update[0] != second {
		t.Errorf("changes %+v, want an update", changes)
	}
	if gone := report([]Claim{c, other}); gone != c.Desired {
		t.Error("without the class it isn't the pod of its manifest")
	}
}

// A class that comes to contradict a pod must not have it taken down, nor one that is gone.
func TestPodOutlivesItsRuntimeClass(t *testing.T) {
	m := New(logr.Discard(), pod.SourceFile)
	c := classy(func(s *v1.PodSpec) { s.Overhead = amount("1") })
	for _, list := range [][]ObjectClaim{{class(amount("1"), nil)}, {class(amount("2"), nil)}, {class(nil, nil)}, nil} {
		m.Report(Report{Source: pod.SourceFile, Claims: []Claim{c}, Objects: list})
		if got := m.Current().Get("1"); got != c.Desired {
			t.Errorf("objects %v: the pod is %v", list, got)
		}
	}
	if problems := m.Current().Problems; len(problems) > 0 {
		t.Errorf("without a class: problems %v", problems)
	}
}

// An API server has admitted its pods by the classes as they were: one that a manifest defines, or that is edited, neither
// changes them nor finds fault with them.
func TestRuntimeClassesOfManifestsAreForTheirPods(t *testing.T) {
	m := New(logr.Discard(), pod.SourceFile, pod.SourceAPI)
	c := classy(func(s *v1.PodSpec) { s.Overhead = amount("1") })
	c.Desired.Source = pod.SourceAPI
	m.Report(Report{Source: pod.SourceFile, Objects: []ObjectClaim{class(amount("2"), nil)}})
	m.Report(Report{Source: pod.SourceAPI, Claims: []Claim{c}})
	if set := m.Current(); set.Get("1") != c.Desired || len(set.Problems) > 0 {
		t.Errorf("the pod is %v, problems %v", set.Get("1"), set.Problems)
	}
}
