package tree

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func TestPath(t *testing.T) {
	for want, parts := range map[string][]string{
		"/": nil,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice": {"kubepods", "burstable", "pod" + slicePart("1-2")},
	} {
		if got := slicePath(parts); got != want {
			t.Errorf("%q: got %s, want %s", parts, got, want)
		}
	}
}

func TestRoot(t *testing.T) {
	for group, want := range map[string][]string{
		"/":                    nil,
		"/a":                   {"a"},
		"/a/b":                 {"a", "b"},
		"/my-pods/b_c":         {"my_pods", "b_c"},
		"/a.slice":             {"a"},
		"/a.slice/a-b_c.slice": {"a", "b_c"},
	} {
		if got := sliceRoot(group); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", group, got, want)
		}
	}
}

// Every text can be told from every other by what slicePart makes of it.
func TestPartAndBelow(t *testing.T) {
	parts := []string{"kubepods", "burstable"}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z0-9_\\x.:-]{0,12}`)).Draw(t, "text")
		name := "kubepods-burstable-" + slicePart(text) + ".slice"
		if got, ok := sliceBelow(parts, name); !ok || got != text {
			t.Errorf("%q became %s, and that %q (%v)", text, name, got, ok)
		}
	})
	for _, name := range []string{
		"kubepods-burstable-poda.scope", "kubepods-poda.slice", "kubepods-burstable-poda-b.slice", "kubepods-burstable.slice",
		`kubepods-burstable-pod\`, `kubepods-burstable-pod\x5.slice`, `kubepods-burstable-pod\x5z.slice`, `kubepods-burstable-pod\y5f.slice`,
	} {
		if got, ok := sliceBelow(parts, name); ok {
			t.Errorf("%s is taken for %q", name, got)
		}
	}
}

func TestCgroupParent(t *testing.T) {
	const uid = "7c5b5a2e-1f00-4d5e-9d0b-0c1b2a3f4e5d"
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	podWith := func(r v1.ResourceRequirements) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: r}}}}
	}
	guaranteed := podWith(v1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("1", "1Gi")})
	burstable, bestEffort := podWith(v1.ResourceRequirements{Requests: list("1", "1Gi")}), podWith(v1.ResourceRequirements{})
	for _, c := range []struct {
		driver Driver
		root   string
		pod    *v1.Pod
		want   string
	}{
		{DriverCgroupfs, "", guaranteed, "/kubepods/pod" + uid},
		{DriverCgroupfs, "", burstable, "/kubepods/burstable/pod" + uid},
		{DriverCgroupfs, "/", bestEffort, "/kubepods/besteffort/pod" + uid},
		{DriverCgroupfs, "/a/b/", bestEffort, "/a/b/kubepods/besteffort/pod" + uid},
		{DriverCgroupfs, "../x", guaranteed, "/x/kubepods/pod" + uid},
		{DriverSystemd, "", guaranteed, "kubepods-pod7c5b5a2e_1f00_4d5e_9d0b_0c1b2a3f4e5d.slice"},
		{DriverSystemd, "", burstable, "kubepods-burstable-pod7c5b5a2e_1f00_4d5e_9d0b_0c1b2a3f4e5d.slice"},
		{DriverSystemd, "/my-node/x", bestEffort, "my_node-x-kubepods-besteffort-pod7c5b5a2e_1f00_4d5e_9d0b_0c1b2a3f4e5d.slice"},
		{DriverSystemd, "/a.slice/a-b.slice", guaranteed, "a-b-kubepods-pod7c5b5a2e_1f00_4d5e_9d0b_0c1b2a3f4e5d.slice"},
	} {
		if got := New(c.driver, c.root, 0).CgroupParent(c.pod); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.driver, c.root, got, c.want)
		}
	}
}
