package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/image/pull"
	"github.com/deckhand-node/deckhand/internal/kit/gate"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/volume"
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
	// refusal is what Prepare and Release fail with; nil for errVolumes.
	refusal error
	// missing fails PrepareContainer, own is the pod that it was called for last.
	missing error
	own     *v1.Pod
}

// objectsOf has no services.
type objectsOf struct{ object.View }

func (objectsOf) Services(context.Context, string) ([]*v1.Service, error) { return nil, nil }

func (w *volumeWorld) Prepare(_ context.Context, p *v1.Pod, _ object.View) error {
	w.prepared = p
	return cmp.Or(w.refusal, errVolumes)
}

func (w *volumeWorld) PrepareContainer(_ context.Context, p *v1.Pod, _ *v1.Container, _ object.View) error {
	w.own = p
	return w.missing
}

func (w *volumeWorld) Images(context.Context, *v1.Pod, *v1.Container) error { return w.refusal }

// ownImages are all there.
type ownImages struct{}

func (ownImages) Ensure(_ context.Context, r pull.Request) (pull.Image, error) {
	return pull.Image{Stored: pull.Stored{Ref: "sha256:" + r.Image}}, nil
}

// A container's image isn't all: what it mounts has to be there, too.
func TestMountedImagesAreEnsuredWithTheContainers(t *testing.T) {
	refusal := &pod.Failure{Reason: pod.ReasonErrImagePull, Message: "no such host", Image: "model:1"}
	p := volumePod()
	for _, w := range []*volumeWorld{{refusal: refusal}, {}} {
		r := w.runner()
		r.cfg.Images = ownImages{}
		got := r.Do(t.Context(), &pod.Desired{Pod: p}, nil, p.UID, pod.Action{Kind: pod.EnsureImage, Container: p.Spec.Containers[0].Name, Image: "web:1"})
		if refused := w.refusal != nil; refused != (got.Failure != nil) || refused && *got.Failure != *refusal || !refused && got.ID != "sha256:web:1" {
			t.Errorf("got %+v, %+v", got, got.Failure)
		}
	}
}

// halves has granted each pod half a CPU.
type halves struct{ grants }

func (h halves) Get(types.UID) *pod.Allocation {
	a, _ := h.Allocated(volumePod())
	return a
}

// TestVolumesOfAContainerComeBeforeItsImage: nothing is pulled for a container that waits for a volume. They are made for
// the pod as it is allocated.
func TestVolumesOfAContainerComeBeforeItsImage(t *testing.T) {
	missing := &pod.Failure{Reason: pod.ReasonFailedMount, Message: "no such ConfigMap"}
	for _, w := range []*volumeWorld{{missing: missing}, {}} {
		r, p := w.runner(), volumePod()
		r.cfg.Images, r.cfg.Allocations = pulledImages{}, halves{}
		got := r.Do(t.Context(), &pod.Desired{Pod: p}, nil, p.UID, pod.Action{Kind: pod.EnsureImage, Container: "main", Image: "web:1"})
		if waits := w.missing != nil; waits && (got.Failure == nil || *got.Failure != *missing) || !waits && got.Failure != nil || waits == (len(w.events) > 0) {
			t.Errorf("got %+v, events %+v", got.Failure, w.events)
		}
		if w.own == nil || w.own.Spec.Containers[0].Resources.Limits.Cpu().String() != "500m" {
			t.Errorf("prepared: %+v", w.own)
		}
	}
}

// pulledImages have to be pulled first.
type pulledImages struct{ ownImages }

func (i pulledImages) Ensure(ctx context.Context, r pull.Request) (pull.Image, error) {
	r.Pulling()
	return i.ownImages.Ensure(ctx, r)
}

func TestPullsAreEvents(t *testing.T) {
	p := volumePod()
	for images, want := range map[Images]int{ownImages{}: 0, pulledImages{}: 1} {
		w := &volumeWorld{}
		r := w.runner()
		r.cfg.Images = images
		r.Do(t.Context(), &pod.Desired{Pod: p}, nil, p.UID, pod.Action{Kind: pod.EnsureImage, Container: "main", Image: "web:1"})
		if len(w.events) != want || want > 0 && (w.events[0].Reason != "Pulling" || w.events[0].Message != `Pulling image "web:1"`) {
			t.Errorf("%T: events %+v", images, w.events)
		}
	}
}

// A pod with claims that nobody prepares waits, and nothing is made of it.
func TestClaimedDevicesAreWaitedFor(t *testing.T) {
	spec, extended := volumePod(), volumePod()
	spec.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("one")}}
	extended.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "gpu"}
	for _, p := range []*v1.Pod{spec, extended} {
		w := &volumeWorld{}
		got := w.runner().Do(t.Context(), &pod.Desired{Pod: p}, nil, p.UID, pod.Action{Kind: pod.PreparePod})
		if f := got.Failure; f == nil || f.Reason != "FailedPrepareDynamicResources" || f.Rejected || !strings.Contains(f.Message, "ResourceClaims (gpu)") || w.prepared != nil {
			t.Errorf("got %+v, volumes prepared: %v", got.Failure, w.prepared != nil)
		}
	}
}

func (w *volumeWorld) Mounts(_ context.Context, r manager.MountRequest) ([]*runtimeapi.Mount, string, error) {
	w.asked = &r
	return nil, "", errVolumes
}

func (w *volumeWorld) Release(_ context.Context, uid types.UID) error {
	w.released = uid
	return cmp.Or(w.refusal, errVolumes)
}

// grants grants every container half a CPU.
type grants struct{ noAllocations }

func (grants) Release(types.UID) {}

func (grants) Allocated(p *v1.Pod) (*pod.Allocation, error) {
	a := &pod.Allocation{Containers: map[string]v1.ResourceRequirements{}}
	for name := range pod.ContainerNames(p) {
		a.Containers[name] = v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}}
	}
	return a, nil
}

func (w *volumeWorld) runner() *Executor {
	return New(Config{
		Volumes: w, Objects: seen{objectsOf{&w.sandboxWorld}}, Observer: &w.sandboxWorld, Recorder: &w.sandboxWorld, Allocations: grants{}, Users: &w.sandboxWorld,
		Settings: func() *translate.Settings { return &translate.Settings{} }, Features: func() *translate.Features { return w.able },
		HostIPs: func() []string { return nil }, Allocatable: func() v1.ResourceList { return nil }, Parallel: 1, Log: logr.Discard(),
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

func TestVolumesArePreparedForThePodAsItIsAllocated(t *testing.T) {
	w := &volumeWorld{}
	p := volumePod()
	r := w.runner().Do(t.Context(), &pod.Desired{Pod: p}, nil, p.UID, pod.Action{Kind: pod.PreparePod})
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

// TestAReasonIsOneLine, however many errors there are.
func TestAReasonIsOneLine(t *testing.T) {
	both := errors.Join(errors.New("a is missing"), errors.New("b is missing"))
	named := &pod.Failure{Reason: "FailedMount", Message: both.Error(), Awaits: pod.Object{Kind: "ConfigMap", Namespace: "default", Name: "c"}}
	for _, refusal := range []error{both, named} {
		w := &volumeWorld{refusal: refusal}
		f := w.runner().Do(t.Context(), &pod.Desired{Pod: volumePod()}, nil, "u", pod.Action{Kind: pod.PreparePod}).Failure
		if f == nil || f.Reason != "FailedMount" || f.Message != "a is missing; b is missing" || (refusal == error(named)) != (f.Awaits == named.Awaits) {
			t.Errorf("told %+v", f)
		}
	}
	if named.Message != both.Error() {
		t.Error("what the volumes said was changed")
	}
}

// A release that waits for a driver is tried again as soon as the driver is there.
func TestReleaseAwaits(t *testing.T) {
	awaited := pod.Object{Kind: "CSI driver", Name: "csi.example.com"}
	w := &volumeWorld{refusal: fmt.Errorf("volume %q: %w", "data", volume.Awaits(awaited, "it hasn't registered"))}
	runner := w.runner()
	runner.cfg.Cgroups, runner.cfg.Allocations = &goneCgroups{}, &rooms{}
	r := runner.Do(t.Context(), &pod.Desired{Pod: volumePod()}, nil, "u", pod.Action{Kind: pod.ReleaseVolumes})
	if f := r.Failure; f == nil || f.Reason != "FailedUnmount" || f.Awaits != awaited {
		t.Errorf("%+v", f)
	}
}

func TestVolumesAreReleased(t *testing.T) {
	w, cgroups := &volumeWorld{}, &goneCgroups{}
	room := &rooms{}
	runner := w.runner()
	runner.cfg.Cgroups, runner.cfg.Allocations = cgroups, room
	r := runner.Do(t.Context(), &pod.Desired{Pod: volumePod()}, nil, "u", pod.Action{Kind: pod.ReleaseVolumes})
	objects := &known{}
	done := New(Config{Objects: objects, Volumes: cleaning{}, Cgroups: cgroups, Allocations: room, Observer: &w.sandboxWorld, Parallel: 1, Log: logr.Discard()}).Do(t.Context(), &pod.Desired{Pod: volumePod()}, nil, "u", pod.Action{Kind: pod.ReleaseVolumes})
	if done.Failure != nil || !slices.Equal(objects.forgotten, []types.UID{"u"}) {
		t.Errorf("%+v: forgotten %q", done.Failure, objects.forgotten)
	}
	if f := r.Failure; w.released != "u" || cgroups.removed != "u" || f == nil || f.Reason != "FailedUnmount" {
		t.Errorf("released %q, removed the cgroup of %q, %+v", w.released, cgroups.removed, f)
	}
	if room.released != 2 {
		t.Errorf("its room was given back %d times: volumes that stay take none", room.released)
	}
	cgroups.err = errVolumes
	if r := runner.Do(t.Context(), &pod.Desired{Pod: volumePod()}, nil, "u", pod.Action{Kind: pod.ReleaseVolumes}); r.Failure == nil || room.released != 2 {
		t.Errorf("a pod whose cgroup stays gave its room back: %+v", r.Failure)
	}
}

// brokenCgroups can't be made.
type brokenCgroups struct{ Cgroups }

func (brokenCgroups) Ensure(context.Context, *v1.Pod, allocated.Limits) error {
	return errors.New("cgroup: no space left on device")
}

func TestCgroupThatCannotBeMade(t *testing.T) {
	w := &volumeWorld{}
	runner := w.runner()
	runner.cfg.Volumes, runner.cfg.Cgroups = prepared{}, brokenCgroups{}
	r := runner.Do(t.Context(), &pod.Desired{Pod: volumePod()}, nil, "u", pod.Action{Kind: pod.PreparePod})
	if f := r.Failure; f == nil || f.Reason != "FailedCreatePodContainer" || f.Message != "cgroup: no space left on device" {
		t.Errorf("got %+v", f)
	}
}

// prepared has nothing to prepare.
type prepared struct{ Volumes }

func (prepared) Prepare(context.Context, *v1.Pod, object.View) error { return nil }

// rooms counts how often pods' room was given back.
type rooms struct {
	Allocations
	released int
}

func (r *rooms) Release(types.UID) { r.released++ }

// goneCgroups knows whose cgroup was removed.
type goneCgroups struct {
	Cgroups
	removed types.UID
	err     error
}

func (c *goneCgroups) Remove(_ context.Context, uid types.UID) error {
	c.removed = uid
	return c.err
}

// cleaning has pods' volumes removed, or not.
type cleaning struct {
	Volumes
	err error
}

func (w cleaning) Clean(context.Context, types.UID) error { return w.err }

func (w cleaning) Release(context.Context, types.UID) error { return w.err }

func (grants) Forget(types.UID) {}

// noRecords and noLogs have nothing of pods.
type (
	noRecords struct{ Records }
	noLogs    struct{ Logs }
)

func (noRecords) Remove(types.UID) error      { return nil }
func (noLogs) Orphans() ([]layout.Pod, error) { return nil, nil }
func (noLogs) RemoveDeadLinks() error         { return nil }
func (noLogs) RemovePod(layout.Pod) error     { return nil }

// TestOrphansThatAreCleanedUpAreCounted, as are those that can't be; pods that are known, and what is given up, aren't.
func TestOrphansThatAreCleanedUpAreCounted(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		pod  *pod.Desired
		err  error
		want []string
	}{
		{t.Context(), nil, nil, []string{"u false"}},
		{t.Context(), nil, errVolumes, []string{"u true"}},
		{t.Context(), &pod.Desired{Pod: volumePod()}, nil, nil},
		{t.Context(), &pod.Desired{Pod: volumePod()}, errVolumes, nil},
		{over, nil, errVolumes, nil},
	} {
		w, s := cleaning{err: c.err}, &sandboxWorld{}
		objects := &known{}
		r := New(Config{Objects: objects, Volumes: w, HostIPs: func() []string { return nil }, Logs: noLogs{}, Records: noRecords{}, Allocations: grants{}, Cgroups: cgroupsOf{s}, Users: s, Observer: s, Meter: s, Parallel: 1, Log: logr.Discard()})
		got := r.Do(c.ctx, c.pod, nil, "u", pod.Action{Kind: pod.CleanPod})
		if (got.Failure != nil) != (c.err != nil) || !slices.Equal(s.orphans, c.want) {
			t.Errorf("%+v: counted %q, failure %+v", c, s.orphans, got.Failure)
		}
		// What can't be removed may need its objects still.
		if (len(objects.forgotten) > 0) != (c.err == nil) {
			t.Errorf("%+v: forgotten %q", c, objects.forgotten)
		}
	}
}

func TestMountsAreAskedForWithTheEnvironment(t *testing.T) {
	w := &volumeWorld{}
	sb := &pod.Sandbox{IPs: []string{"10.0.0.7"}}
	p := volumePod()
	_, _, err := w.runner().containerConfig(t.Context(), &pod.Desired{Pod: p}, &pod.Observed{}, sb, pod.Action{Container: "main", Attempt: 4})
	if !errors.Is(err, errVolumes) || w.asked == nil {
		t.Fatal(err)
	}
	if a := w.asked; a.Container != "main" || a.Attempt != 4 || len(a.PodIPs) != 1 || len(a.Env) != 1 || a.Env[0].Key != "A" || string(a.Env[0].Value) != "1" || a.RecursiveReadOnly {
		t.Errorf("asked: %+v", a)
	}
}

// grouped has volumes that are for groups.
type grouped struct{ volumeWorld }

func (grouped) Mounts(context.Context, manager.MountRequest) ([]*runtimeapi.Mount, string, error) {
	return nil, "", nil
}

func (grouped) Groups(*v1.Pod) []int64 { return []int64{77} }

func (grouped) BlockVolumes(*v1.Pod, *v1.Container) (map[string]pod.BlockVolume, error) {
	return nil, nil
}

func (grants) PreStart(context.Context, *v1.Pod, *v1.Container) error { return nil }

func (grants) Assigned(context.Context, *v1.Pod, *v1.Container) (translate.Devices, error) {
	return translate.Devices{}, nil
}

func TestContainersAreInTheGroupsOfVolumes(t *testing.T) {
	w := &grouped{}
	r := w.runner()
	r.cfg.Volumes = w
	p := volumePod()
	c, _, err := r.containerConfig(t.Context(), &pod.Desired{Pod: p}, &pod.Observed{}, &pod.Sandbox{}, pod.Action{Container: "main"})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.GetLinux().GetSecurityContext().GetSupplementalGroups(); !slices.Equal(got, []int64{77}) {
		t.Errorf("groups %v", got)
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
		got, err := w.runner().recursiveReadOnly(t.Context(), &pod.Desired{Pod: p}, &p.Spec.Containers[0])
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// vanished are volumes of which something went after all was made ready.
type vanished struct {
	volumeWorld
	// checks is how often they are checked; from hangs on, checks have no end; 0 for never.
	checks, hangs int
}

func (*vanished) Mounts(context.Context, manager.MountRequest) ([]*runtimeapi.Mount, string, error) {
	return nil, "", nil
}
func (*vanished) Groups(*v1.Pod) []int64 { return nil }
func (*vanished) BlockVolumes(*v1.Pod, *v1.Container) (map[string]pod.BlockVolume, error) {
	return nil, nil
}
func (v *vanished) Recheck(ctx context.Context, _ *v1.Pod, _ *v1.Container) error {
	v.checks++
	if v.hangs > 0 && v.checks >= v.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return v.refusal
}

// The runtime isn't asked to create or start a container of which something is gone that it mounts: it would make a directory in its place.
func TestWhatVanishedIsNotAskedOfTheRuntime(t *testing.T) {
	refusal := pod.Failure{Reason: pod.ReasonCreateContainerConfigError, Message: "hostPath type check failed"}
	v := &vanished{volumeWorld: volumeWorld{refusal: &refusal}}
	v.classes = map[string]string{}
	r := v.runner()
	r.cfg.Volumes, r.cfg.DNS, r.cfg.Cgroups = v, &v.sandboxWorld, cgroupsOf{&v.sandboxWorld}
	p := volumePod()
	o := &pod.Observed{UID: p.UID, Sandboxes: []pod.Sandbox{{ID: "s", State: pod.SandboxReady}}}
	for _, kind := range []pod.ActionKind{pod.CreateContainer, pod.StartContainer} {
		got := r.Do(t.Context(), &pod.Desired{Pod: p}, o, p.UID, pod.Action{Kind: kind, Container: "main", SandboxID: "s", ID: "c"})
		if got.Failure == nil || *got.Failure != refusal {
			t.Errorf("%s: %+v", kind, got.Failure)
		}
	}
}

// A file system that hangs keeps no other container from starting.
func TestACheckThatHangsHoldsNoStart(t *testing.T) {
	for hangs, held := range map[int]time.Duration{1: 0, 2: recheckWithin} {
		synctest.Test(t, func(t *testing.T) {
			v := &vanished{hangs: hangs}
			r := v.runner()
			r.cfg.Volumes, r.gate = v, gate.New(1)
			p := volumePod()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go r.Do(ctx, &pod.Desired{Pod: p}, &pod.Observed{UID: p.UID}, p.UID, pod.Action{Kind: pod.StartContainer, Container: "main", ID: "c"})
			synctest.Wait()
			start := time.Now()
			release, err := r.gate.Acquire(ctx, priorityStart)
			if err != nil {
				t.Fatal(err)
			}
			release()
			if took := time.Since(start); took != held {
				t.Errorf("check %d hangs: another waits for %s, want %s", hangs, took, held)
			}
		})
	}
}
