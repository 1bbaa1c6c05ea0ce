package reader

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
)

func written() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}},
		Spec: v1.PodSpec{
			Volumes:    []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
			Containers: []v1.Container{{Name: "main", Image: "app:1", Args: []string{"a<b>&c"}}},
		},
	}
}

func canonical(t *testing.T, p *v1.Pod) string {
	t.Helper()
	Clean(p)
	data, err := Canonical(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The canonical form and the hash are what UIDs are made of: were they to change
// with a release or with the API types, every static pod would be recreated.
func TestCanonicalAndHashNeverChange(t *testing.T) {
	got := canonical(t, written())
	want := `{"metadata":{"labels":{"app":"web"},"name":"web","namespace":"default"},"spec":{"containers":[{"args":["a<b>&c"],"image":"app:1","name":"main"}],"volumes":[{"emptyDir":{},"name":"data"}]}}`
	if got != want {
		t.Errorf("canonical form\n%s\nwant\n%s", got, want)
	}
	if got, want := Hash([]byte(got), "Node1"), "ab8d972a346228b939537055a3183d9e"; got != want {
		t.Errorf("hash %s, want %s", got, want)
	}
}

func TestWhatTheHashDependsOn(t *testing.T) {
	base := Hash([]byte(canonical(t, written())), "node1")
	tests := map[string]struct {
		change func(*v1.Pod)
		node   string
		same   bool
	}{
		"nothing":              {func(*v1.Pod) {}, "node1", true},
		"the node's case":      {func(*v1.Pod) {}, "NODE1", true},
		"another node":         {func(*v1.Pod) {}, "node2", false},
		"the default space":    {func(p *v1.Pod) { p.Namespace = "default" }, "node1", true},
		"another namespace":    {func(p *v1.Pod) { p.Namespace = "other" }, "node1", false},
		"status":               {func(p *v1.Pod) { p.Status.PodIP = "10.0.0.1" }, "node1", true},
		"resource version":     {func(p *v1.Pod) { p.ResourceVersion = "7" }, "node1", true},
		"creation time":        {func(p *v1.Pod) { p.CreationTimestamp = metav1.Now() }, "node1", true},
		"a label":              {func(p *v1.Pod) { p.Labels["app"] = "db" }, "node1", false},
		"an image":             {func(p *v1.Pod) { p.Spec.Containers[0].Image = "app:2" }, "node1", false},
		"another kind of data": {func(p *v1.Pod) { p.Spec.Volumes[0].VolumeSource = v1.VolumeSource{} }, "node1", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := written()
			test.change(p)
			if got := Hash([]byte(canonical(t, p)), test.node); (got == base) != test.same {
				t.Errorf("hash is the same: %v, want %v", got == base, test.same)
			}
		})
	}
}

func TestCanonicalCanBeReadBack(t *testing.T) {
	w := written()
	w.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "debug:1"}, TargetContainerName: "main"}}
	first := canonical(t, w)
	if want := `"ephemeralContainers":[{"image":"debug:1","name":"debug","targetContainerName":"main"}]`; !strings.Contains(first, want) {
		t.Errorf("canonical form %s, want %s in it", first, want)
	}
	var p v1.Pod
	if err := json.Unmarshal([]byte(first), &p); err != nil {
		t.Fatal(err)
	}
	if second := canonical(t, &p); second != first {
		t.Errorf("read back and written again it is\n%s\nnot\n%s", second, first)
	}
}

func TestApply(t *testing.T) {
	seen := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	p := written()
	p.Spec.NodeName = "elsewhere"
	Identity{Node: "Node1", Source: pod.SourceFile, Hash: "abc", Version: Version{Base: "base", Generation: 3, Seen: seen}}.Apply(p)
	if p.Name != "web-node1" || p.UID != "base" || p.Generation != 3 || p.Spec.NodeName != "Node1" || p.Status.Phase != v1.PodPending {
		t.Errorf("name %q, UID %q, generation %d, node %q, phase %q", p.Name, p.UID, p.Generation, p.Spec.NodeName, p.Status.Phase)
	}
	for name, want := range map[string]string{
		pod.AnnotationConfigSource: "file",
		pod.AnnotationConfigHash:   "abc",
		pod.AnnotationConfigSeen:   "2026-01-02T03:04:05.000000006Z",
	} {
		if got := p.Annotations[name]; got != want {
			t.Errorf("annotation %s is %q, want %q", name, got, want)
		}
	}
	if len(p.Spec.Tolerations) != 1 || p.Spec.Tolerations[0] != (v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}) {
		t.Errorf("tolerations %v, want NoExecute Exists", p.Spec.Tolerations)
	}
}

func TestApplyKeepsGivenUID(t *testing.T) {
	p := written()
	p.UID = "given"
	Identity{Node: "n", Hash: "abc", Version: First("abc", time.Time{})}.Apply(p)
	if p.UID != "given" || p.Annotations[pod.AnnotationConfigHash] != "abc" {
		t.Errorf("UID %q and hash %q, want the given UID and the content's hash", p.UID, p.Annotations[pod.AnnotationConfigHash])
	}
}

func TestApplyDoesNotRepeatTheToleration(t *testing.T) {
	p := written()
	p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](5)}}
	Identity{Node: "n"}.Apply(p)
	if len(p.Spec.Tolerations) != 1 || p.Spec.Tolerations[0].TolerationSeconds != nil {
		t.Errorf("tolerations %v, want one without a limit", p.Spec.Tolerations)
	}
}

func TestVersions(t *testing.T) {
	first, later := time.Unix(1, 0), time.Unix(2, 0)
	v := First("a", first)
	if v != (Version{Base: "a", Generation: 1, Seen: first}) {
		t.Errorf("a new pod is %+v", v)
	}
	if e := v.Edit().Edit(); e != (Version{Base: "a", Generation: 3, Seen: first}) {
		t.Errorf("edited in place twice it is %+v", e)
	}
	if r := v.Edit().Replace("b", later); r != First("b", later) {
		t.Errorf("another pod is %+v", r)
	}
	again := v.Edit().Replace("a", later)
	if again.Base == "a" || len(again.Base) != 32 || again != First(again.Base, later) {
		t.Errorf("another pod of the content that the one before was created from is %+v", again)
	}
	if back := again.Replace("a", later); back.Base != "a" {
		t.Errorf("and the next one is %+v", back)
	}
}

func TestNoNameStaysNoName(t *testing.T) {
	if got := Name("", "node1"); got != "" {
		t.Errorf("name %q, want none, so that validation asks for one", got)
	}
}

func TestValidateUID(t *testing.T) {
	for uid, good := range map[string]bool{
		"": true, "a": true, "0b31e4d8-8a51-4a4b-9d7e-7d3e4ab0a5c4": true,
		"..": false, "a/b": false, "../../etc": false, "-a": false, "a.": false, "a\nb": false, "a\n": false,
		strings.Repeat("a", 128): true, strings.Repeat("a", 129): false,
	} {
		p := written()
		p.UID = types.UID(uid)
		if got := len(ValidateUID(p)) == 0; got != good {
			t.Errorf("UID %q is taken for good: %v, want %v", uid, got, good)
		}
	}
}

// A pod that gets another version is what it would have been if it had been made as that.
func TestRenew(t *testing.T) {
	first := First("0123", time.Unix(1, 0))
	next := first.Replace("4567", time.Unix(2, 0)).Edit()
	for _, uid := range []types.UID{"", "given"} {
		made := func(v Version) *v1.Pod {
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: uid, Annotations: map[string]string{"a": "b"}}}
			Identity{Node: "n", Source: pod.SourceFile, Hash: "4567", Version: v}.Apply(p)
			return p
		}
		p := made(first)
		if got, want := next.Renew(p, first, "4567"), made(next); !equality.Semantic.DeepEqual(got, want) || !equality.Semantic.DeepEqual(p, made(first)) {
			t.Errorf("UID %q: %+v, want %+v", uid, got.ObjectMeta, want.ObjectMeta)
		}
	}
}
