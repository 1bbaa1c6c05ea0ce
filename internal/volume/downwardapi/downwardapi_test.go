package downwardapi_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/downwardapi"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	"github.com/deckhand-node/deckhand/internal/volume/volumetest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

func spec() volume.Spec {
	items := []v1.DownwardAPIVolumeFile{
		{Path: "meta/labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
		{Path: "version", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations['version']"}},
		{Path: "cpu", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "main", Resource: "limits.cpu", Divisor: resource.MustParse("1m")}},
	}
	return volume.Spec{Volume: &v1.Volume{Name: "info", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: items}}}}
}

func TestContract(t *testing.T) {
	// The node's size is the only thing that the suite can change: the pod is its own.
	milli := int64(0)
	change := func(n int) map[string]string {
		milli = int64(n + 1)
		return map[string]string{"meta/labels": `app="web"`, "version": "1", "cpu": fmt.Sprint(n + 1)}
	}
	allocatable := func() v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)}
	}
	volumetest.Run(t, volumetest.Case{
		Plugin: downwardapi.New(allocatable), Spec: func(string) volume.Spec { return spec() }, Want: change(0), Change: change, InMemory: true,
		Pod: func(p *v1.Pod) {
			p.Labels = map[string]string{"app": "web"}
			p.Annotations = map[string]string{"version": "1"}
		},
	})
}

// Labels, annotations and resources of a pod that runs may change: the next request has the pod as it is now.
func TestFollowsThePod(t *testing.T) {
	p := downwardapi.New(func() v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")} })
	if p.Name() != "kubernetes.io/downward-api" {
		t.Error(p.Name())
	}
	dir := filepath.Join(t.TempDir(), "volumes", "kubernetes.io~downward-api", "info")
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"version": "1"}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main"}}},
	}
	r := volume.Request{Pod: pod, Spec: spec(), Place: volume.Place{Dir: dir}}
	if _, err := p.Mount(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	holds := func(labels, version, cpu string) {
		t.Helper()
		for name, want := range map[string]string{"meta/labels": labels, "version": version, "cpu": cpu} {
			if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
				t.Errorf("%s: %q, %v", name, data, err)
			}
		}
	}
	holds(`app="web"`, "1", "4000")
	r.Pod = pod.DeepCopy()
	r.Pod.Labels["tier"] = "two\nlines"
	r.Pod.Annotations["version"] = "2"
	r.Pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")}
	if changed, err := p.Refresh(t.Context(), r); !changed || err != nil {
		t.Errorf("%t, %v", changed, err)
	}
	holds("app=\"web\"\ntier=\"two\\nlines\"", "2", "250")
	r.Pod = r.Pod.DeepCopy()
	r.Pod.Spec.Containers[0].Name = "renamed"
	if changed, err := p.Refresh(t.Context(), r); changed || err == nil || !strings.Contains(err.Error(), `container "main"`) {
		t.Errorf("%t, %v", changed, err)
	}
	holds("app=\"web\"\ntier=\"two\\nlines\"", "2", "250")
}
