package effects

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
)

var errVolumes = errors.New("the volumes refuse")

// volumeWorld records what volumes are asked for, and refuses it.
type volumeWorld struct {
	sandboxWorld
	Volumes
	Allocations
	prepared *v1.Pod
	asked    *manager.MountRequest
	released types.UID
	able     *translate.Features
}

// objectsOf has no services.
type objectsOf struct{ Objects }

func (objectsOf) Services(context.Context, string) ([]*v1.Service, error) { return nil, nil }

func (w *volumeWorld) Prepare(_ context.Context, p *v1.Pod) error {
	w.prepared = p
	return errVolumes
}

func (w *volumeWorld) Mounts(_ context.Context, r manager.MountRequest) ([]*runtimeapi.Mount, string, error) {
	w.asked = &r
	return nil, "", errVolumes
}

func (w *volumeWorld) Release(_ context.Context, uid types.UID) error {
	w.released = uid
	return errVolumes
}

// grants grants every container half a CPU.
type grants struct{ Allocations }

func (grants) Admit(p *v1.Pod) (*pod.Allocation, error) {
	a := &pod.Allocation{Containers: map[string]v1.ResourceRequirements{}}
	for name := range pod.ContainerNames(p) {
		a.Containers[name] = v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}}
	}
	return a, nil
}

func (w *volumeWorld) runner() *Runner {
	return New(Config{
		Volumes: w, Objects: objectsOf{&w.sandboxWorld}, Facts: &w.sandboxWorld, Recorder: &w.sandboxWorld, Allocations: grants{}, Users: &w.sandboxWorld,
		Settings: func() *translate.Settings { return &translate.Settings{} }, Features: func() *translate.Features { return w.able },
		Allocatable: func() v1.ResourceList { return nil }, Parallel: 1, Log: logr.Discard(),
	})
}

func volumePod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "main", Env: []v1.EnvVar{{Name: "A", Value: "1"}},
			Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}},
		}}},
	}
}

func TestVolumesArePreparedForThePodAsItIsGranted(t *testing.T) {
	w := &volumeWorld{}
	p := volumePod()
	r := w.runner().Do(t.Context(), p, nil, p.UID, pod.Action{Kind: pod.PreparePod})
	if f := r.Failure; f == nil || f.Reason != "FailedMount" {
		t.Errorf("got %+v", f)
	}
	if w.prepared == nil || w.prepared.Spec.Containers[0].Resources.Limits.Cpu().String() != "500m" {
		t.Errorf("prepared: %+v", w.prepared)
	}
	if p.Spec.Containers[0].Resources.Limits.Cpu().String() != "2" {
		t.Error("the pod itself was changed")
	}
}

func TestVolumesAreReleased(t *testing.T) {
	w := &volumeWorld{}
	r := w.runner().Do(t.Context(), volumePod(), nil, "u", pod.Action{Kind: pod.ReleaseVolumes})
	if f := r.Failure; w.released != "u" || f == nil || f.Reason != "FailedUnmount" {
		t.Errorf("released %q, %+v", w.released, f)
	}
}

func TestMountsAreAskedForWithTheEnvironment(t *testing.T) {
	w := &volumeWorld{}
	sb := &pod.Sandbox{IPs: []string{"10.0.0.7"}}
	_, _, err := w.runner().containerConfig(t.Context(), volumePod(), &pod.Observed{}, sb, pod.Action{Container: "main", Attempt: 4})
	if !errors.Is(err, errVolumes) || w.asked == nil {
		t.Fatal(err)
	}
	if a := w.asked; a.Container != "main" || a.Attempt != 4 || len(a.PodIPs) != 1 || len(a.Env) != 1 || a.Env[0].Key != "A" || string(a.Env[0].Value) != "1" || a.RecursiveReadOnly {
		t.Errorf("asked: %+v", a)
	}
}

func TestRecursiveReadOnlyIsTheRuntimeHandlers(t *testing.T) {
	able := &translate.Features{Handlers: map[string]translate.HandlerFeatures{"kata": {RecursiveReadOnlyMounts: true}}}
	classes := map[string]string{"strong": "kata", "weak": "runc"}
	for name, c := range map[string]struct {
		mode     *v1.RecursiveReadOnlyMode
		class    string
		features *translate.Features
		want     bool
		fails    bool
	}{
		"able":                         {ptr.To(v1.RecursiveReadOnlyEnabled), "strong", able, true, false},
		"able, if possible":            {ptr.To(v1.RecursiveReadOnlyIfPossible), "strong", able, true, false},
		"not able":                     {ptr.To(v1.RecursiveReadOnlyEnabled), "weak", able, false, false},
		"not known yet":                {ptr.To(v1.RecursiveReadOnlyEnabled), "strong", nil, false, false},
		"not asked for":                {nil, "strong", able, false, false},
		"disabled":                     {ptr.To(v1.RecursiveReadOnlyDisabled), "strong", able, false, false},
		"class is gone":                {ptr.To(v1.RecursiveReadOnlyEnabled), "gone", able, false, true},
		"class is gone, if possible":   {ptr.To(v1.RecursiveReadOnlyIfPossible), "gone", able, false, false},
		"class is gone, not asked for": {nil, "gone", able, false, false},
	} {
		w := &volumeWorld{able: c.features}
		w.classes = classes
		p := volumePod()
		p.Spec.RuntimeClassName = &c.class
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "other"}, {Name: "data", RecursiveReadOnly: c.mode}}
		got, err := w.runner().recursiveReadOnly(t.Context(), p, &p.Spec.Containers[0])
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
