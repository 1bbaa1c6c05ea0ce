package pod

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func thePod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "ns", UID: "u-1",
			Labels:      map[string]string{"zone": "us-est-coast", "a/b": "l", "cluster": "", "B": "x"},
			Annotations: map[string]string{"two": "a\nb\t\"c\" \\ ü\x01", "one": "1"},
		},
		Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "setup"}},
			Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{
				Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("1500m"), v1.ResourceMemory: resource.MustParse("100Mi"), "hugepages-2Mi": resource.MustParse("6Mi")},
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")},
			}}},
		},
	}
}

func TestField(t *testing.T) {
	for path, want := range map[string]string{
		"metadata.name":      "web",
		"metadata.namespace": "ns",
		"metadata.uid":       "u-1",
		// A line for each, by their order, with no line break at the end.
		"metadata.labels":                 "B=\"x\"\na/b=\"l\"\ncluster=\"\"\nzone=\"us-est-coast\"",
		"metadata.annotations":            `one="1"` + "\n" + `two="a\nb\t\"c\" \\ ü\x01"`,
		"metadata.labels['a/b']":          "l",
		"metadata.labels['none']":         "",
		"metadata.annotations['two']":     "a\nb\t\"c\" \\ ü\x01",
		"metadata.annotations['one']":     "1",
		"metadata.annotations['cluster']": "",
	} {
		if got, err := DownwardField(thePod(), path); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"metadata.labels", "metadata.annotations"} {
		if got, err := DownwardField(&v1.Pod{}, path); err != nil || got != "" {
			t.Errorf("%s of a pod that has none: %q, %v", path, got, err)
		}
	}
	for _, path := range []string{"", "metadata", "spec.nodeName", "status.podIP", "metadata.labels[a]", "metadata.labels['a/b", "metadata.name['a']", "metadata.labels['a/b'].x"} {
		if got, err := DownwardField(thePod(), path); !errors.Is(err, ErrUnknownField) || !strings.Contains(err.Error(), "metadata.labels['KEY']") {
			t.Errorf("%s is %q, %v", path, got, err)
		}
	}
}

func TestResource(t *testing.T) {
	allocatable := v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourceEphemeralStorage: resource.MustParse("50G"), "hugepages-2Mi": resource.MustParse("1Gi")}
	for _, c := range []struct{ named, own, resource, divisor, want string }{
		{"main", "", "limits.cpu", "", "2"}, // rounded up
		{"main", "setup", "limits.cpu", "1m", "1500"},
		{"", "main", "limits.cpu", "1m", "1500"},
		{"main", "", "limits.memory", "1Mi", "100"},
		{"main", "", "limits.memory", "1G", "1"},
		{"main", "", "limits.hugepages-2Mi", "1Mi", "6"},
		{"main", "", "limits.ephemeral-storage", "1G", "50"}, // the node's
		{"main", "", "requests.cpu", "1m", "100"},
		{"main", "", "requests.memory", "", "0"},
		{"setup", "", "limits.cpu", "", "4"},
		{"setup", "", "limits.memory", "1Gi", "8"},
		{"setup", "", "limits.hugepages-2Mi", "", "0"}, // none without a limit
		{"", "", "limits.cpu", "", "error: containerName"},
		{"nobody", "main", "limits.cpu", "", `error: "nobody"`},
		{"main", "", "limits.gpu", "", "error: limits.gpu"},
		{"main", "", "cpu", "", "error: cpu"},
		{"main", "", "limits.cpu", "-1", "error: divisor"},
	} {
		ref := &v1.ResourceFieldSelector{ContainerName: c.named, Resource: c.resource}
		if c.divisor != "" {
			ref.Divisor = resource.MustParse(c.divisor)
		}
		got, err := DownwardResource(thePod(), ref, c.own, allocatable)
		if want, fails := strings.CutPrefix(c.want, "error: "); fails {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %q, %v", c, got, err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

func TestLimitOfThePod(t *testing.T) {
	p := thePod()
	p.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}}
	got, err := DownwardResource(p, &v1.ResourceFieldSelector{Resource: "limits.cpu"}, "setup", v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")})
	if err != nil || got != "3" {
		t.Errorf("%q, %v", got, err)
	}
}
