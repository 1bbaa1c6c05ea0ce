package plugins

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// hugePagesDir is where the kernel reports huge pages.
func hugePagesDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for path, text := range files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// asking is a container with limits: names and amounts by turns.
func asking(limits ...string) v1.Container {
	list := v1.ResourceList{}
	for i := 0; i < len(limits); i += 2 {
		list[v1.ResourceName(limits[i])] = resource.MustParse(limits[i+1])
	}
	return v1.Container{Resources: v1.ResourceRequirements{Limits: list, Requests: list}}
}

func TestPagesOfAPod(t *testing.T) {
	sidecar := asking("hugepages-2Mi", "2Mi")
	sidecar.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	pod := func(containers ...v1.Container) *v1.Pod { return &v1.Pod{Spec: v1.PodSpec{Containers: containers}} }
	for name, c := range map[string]struct {
		pod         *v1.Pod
		medium      v1.StorageMedium
		page, total int64
		err         string
	}{
		"one size": {pod(asking("hugepages-2Mi", "4Mi", "memory", "1Gi")), "HugePages", 2 << 20, 4 << 20, ""},
		"sum of containers": {
			pod(asking("hugepages-2Mi", "4Mi"), asking("memory", "1Gi"), asking("hugepages-2048Ki", "6Mi")),
			"HugePages-2Mi", 2 << 20, 6 << 20, "", // two names of one resource: the API doesn't add them up
		},
		"sum under one name": {pod(asking("hugepages-2Mi", "4Mi"), asking("hugepages-2Mi", "6Mi")), "HugePages", 2 << 20, 10 << 20, ""},
		"with a sidecar": {
			&v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{sidecar}, Containers: []v1.Container{asking("hugepages-2Mi", "4Mi")}}},
			"HugePages", 2 << 20, 6 << 20, "",
		},
		"an init container has more": {
			&v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{asking("hugepages-2Mi", "8Mi")}, Containers: []v1.Container{asking("hugepages-2Mi", "4Mi")}}},
			"HugePages", 2 << 20, 8 << 20, "",
		},
		"of the pod as a whole": {
			&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{}}, Resources: ptr.To(asking("hugepages-1Gi", "2Gi").Resources)}},
			"HugePages", 1 << 30, 2 << 30, "",
		},
		"one of two sizes": {pod(asking("hugepages-2Mi", "4Mi"), asking("hugepages-1Gi", "1Gi")), "HugePages-1Gi", 1 << 30, 1 << 30, ""},
		"the size by another name": {
			pod(asking("hugepages-2Mi", "4Mi")), "HugePages-2048Ki", 2 << 20, 4 << 20, "",
		},
		"containers that disagree": {pod(asking("hugepages-2Mi", "4Mi"), asking("hugepages-1Gi", "1Gi")), "HugePages", 0, 0, "2Mi and 1Gi: use HugePages-2Mi"},
		"nobody asks":              {pod(asking("memory", "1Gi")), "HugePages", 0, 0, "limits.hugepages-2Mi"},
		"nobody asks for those":    {pod(asking("hugepages-2Mi", "4Mi")), "HugePages-1Gi", 0, 0, "limits.hugepages-1Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			page, total, err := pages(c.pod, c.medium)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %q in it", err, c.err)
				}
				return
			}
			if err != nil || page != c.page || total != c.total {
				t.Errorf("pages of %d, %d bytes, %v; want %d, %d", page, total, err, c.page, c.total)
			}
		})
	}
}

func TestSizeInHugePages(t *testing.T) {
	for _, c := range []struct {
		sizeLimit *resource.Quantity
		want      int64
	}{{nil, 8 << 20}, {ptr.To(resource.MustParse("4Mi")), 4 << 20}, {ptr.To(resource.MustParse("1Gi")), 8 << 20}} {
		r := emptyDirRequest(t, v1.EmptyDirVolumeSource{Medium: v1.StorageMediumHugePages, SizeLimit: c.sizeLimit})
		r.Pod.Spec.Containers = []v1.Container{asking("hugepages-2Mi", "8Mi")}
		mountEmptyDir(t, unlimited(t), r)
		if got := capacity(t, r.Dir); got != c.want {
			t.Errorf("size limit %v: %d bytes, want %d", c.sizeLimit, got, c.want)
		}
	}
}

func TestAHostWithoutSuchPages(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"none at all":  {map[string]string{}, "no huge pages of 2Mi: its kernel has none at all"},
		"other sizes":  {map[string]string{"hugepages-64kB/nr_hugepages": "1\n", "hugepages-1048576kB/nr_hugepages": "1\n"}, "offers 64Ki and 1Gi"},
		"none to have": {map[string]string{"hugepages-2048kB/nr_hugepages": "0\n", "hugepages-2048kB/nr_overcommit_hugepages": "0\n"}, "hugepages-2048kB/nr_hugepages"},
		"as needed":    {map[string]string{"hugepages-2048kB/nr_hugepages": "0\n", "hugepages-2048kB/nr_overcommit_hugepages": "10\n"}, ""},
		"set aside":    {map[string]string{"hugepages-2048kB/nr_hugepages": "10\n", "hugepages-2048kB/nr_overcommit_hugepages": "0\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := emptyDirRequest(t, v1.EmptyDirVolumeSource{Medium: v1.StorageMediumHugePages})
			r.Pod.Spec.Containers = []v1.Container{asking("hugepages-2Mi", "8Mi")}
			_, err := NewEmptyDir(Config{HugePages: hugePagesDir(t, c.files)}).Mount(t.Context(), r)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}
