package translate_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// statusOf is what a runtime tells of a container with this configuration.
func statusOf(cfg *runtimeapi.ContainerConfig) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{Id: "c", Metadata: cfg.Metadata, Image: cfg.Image, Labels: cfg.Labels, Annotations: cfg.Annotations, Mounts: cfg.Mounts}
}

func read(t *testing.T, st *runtimeapi.ContainerStatus, known *pod.Container) pod.Container {
	t.Helper()
	_, c, ok := translate.ContainerUpdate(st, "s", "", known)
	if !ok {
		t.Fatalf("%v isn't taken for a pod's container", st)
	}
	return c
}

func TestCreatedWith(t *testing.T) {
	want := pod.CreatedWith{
		Resources: &v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m"), v1.ResourceMemory: resource.MustParse("64Mi")},
			Limits:   v1.ResourceList{v1.ResourceMemory: resource.MustParse("0.5Gi"), "example.com/gpu": resource.MustParse("1")},
		},
		PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"bye", "now"}}},
		Ports:   webPod().Spec.Containers[0].Ports,
	}
	p := webPod()
	p.Spec.Containers[0].Resources = *want.Resources
	p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: want.PreStop}
	st := statusOf(container(t, p, nil))
	equal(t, "annotation", st.Annotations[translate.AnnotationResources],
		`{"limits":{"example.com/gpu":"1","memory":"512Mi"},"requests":{"cpu":"250m","memory":"64Mi"}}`)
	c := read(t, st, nil)
	if c.CreatedWith == nil || !equality.Semantic.DeepEqual(*c.CreatedWith, want) {
		t.Errorf("have %+v\nwant %+v", c.CreatedWith, want)
	}

	p.Spec.InitContainers = []v1.Container{{Name: "first"}, {Name: "proxy", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
	for i, want := range []int{0, 2} {
		st := statusOf(container(t, p, func(in *translate.ContainerInput) { in.Container = &p.Spec.InitContainers[i] }))
		equal(t, "position of a sidecar", read(t, st, nil).CreatedWith.Sidecar, want)
	}

	// It is read once: what is known is taken over, if it is of the same container.
	st.Annotations[translate.AnnotationResources] = `{"limits":{"memory":"1Gi"}}`
	if again := read(t, st, &c); again.CreatedWith != c.CreatedWith {
		t.Error("what a known container was made with was read again")
	}
	c.ID = "other"
	if again := read(t, st, &c); again.CreatedWith == c.CreatedWith || again.CreatedWith.Resources.Limits.Memory().Value() != gi {
		t.Errorf("what another container was made with was taken over: %+v", again.CreatedWith)
	}
}

func TestCreatedWithNothing(t *testing.T) {
	p := webPod()
	p.Spec.Containers[0].Ports = nil
	st := statusOf(container(t, p, nil))
	if text, written := st.Annotations[translate.AnnotationResources]; written {
		t.Errorf("no resources are written as %q", text)
	}
	equal(t, "known to be made with nothing", read(t, st, nil).CreatedWith, &pod.CreatedWith{Resources: &v1.ResourceRequirements{}})
	delete(st.Annotations, translate.AnnotationImage) // as another agent writes it
	equal(t, "made by another agent", read(t, st, nil).CreatedWith, &pod.CreatedWith{})
	for key := range st.Annotations {
		st.Annotations[key] = "{garbage"
	}
	equal(t, "with annotations of garbage", read(t, st, nil).CreatedWith, &pod.CreatedWith{})
	st.Annotations = nil
	equal(t, "from another agent", read(t, st, nil).CreatedWith, (*pod.CreatedWith)(nil))
}
