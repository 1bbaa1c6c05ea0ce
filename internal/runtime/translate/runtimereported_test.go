package translate_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
)

func reportedStatus(t *testing.T) *runtimeapi.ContainerStatus {
	t.Helper()
	st := statusOf(container(t, webPod(), nil))
	st.User = &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: 5, Gid: 6, SupplementalGroups: []int64{6, 7}}}
	st.StopSignal = runtimeapi.Signal_SIGTERM
	st.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/data", HostPath: "/x"},
		{ContainerPath: "/ro", HostPath: "/y", Readonly: true},
		{ContainerPath: "/rro", HostPath: "/z", Readonly: true, RecursiveReadOnly: true},
	}
	return st
}

func TestRuntimeReported(t *testing.T) {
	st := reportedStatus(t)
	c := read(t, st, nil)
	equal(t, "told", c.RuntimeReported, &pod.RuntimeReported{
		User: &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: 5, GID: 6, SupplementalGroups: []int64{6, 7}}},
		VolumeMounts: []v1.VolumeMountStatus{
			{MountPath: "/data"},
			{MountPath: "/ro", ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyDisabled)},
			{MountPath: "/rro", ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyEnabled)},
		},
		StopSignal: v1.SIGTERM,
	})
	if again := read(t, reportedStatus(t), &c); again.RuntimeReported != c.RuntimeReported {
		t.Error("the same told again isn't shared with what is known")
	}
	// containerd leaves the user empty when it can't look it up.
	st.User, st.Mounts, st.StopSignal = &runtimeapi.ContainerUser{}, nil, 0
	if again := read(t, st, &c); again.RuntimeReported != c.RuntimeReported {
		t.Errorf("what isn't told any more was forgotten: %+v", again.RuntimeReported)
	}
	equal(t, "nothing told", read(t, st, nil).RuntimeReported, (*pod.RuntimeReported)(nil))

	for name, change := range map[string]func(*runtimeapi.ContainerStatus){
		"user":      func(st *runtimeapi.ContainerStatus) { st.User.Linux.Uid = 9 },
		"groups":    func(st *runtimeapi.ContainerStatus) { st.User.Linux.SupplementalGroups = nil },
		"signal":    func(st *runtimeapi.ContainerStatus) { st.StopSignal = runtimeapi.Signal_SIGHUP },
		"path":      func(st *runtimeapi.ContainerStatus) { st.Mounts[0].ContainerPath = "/else" },
		"read-only": func(st *runtimeapi.ContainerStatus) { st.Mounts[1].Readonly = false },
		"recursion": func(st *runtimeapi.ContainerStatus) { st.Mounts[2].RecursiveReadOnly = false },
	} {
		st := reportedStatus(t)
		change(st)
		equal(t, name, read(t, st, &c).RuntimeReported, read(t, st, nil).RuntimeReported)
		if read(t, st, &c).RuntimeReported == c.RuntimeReported {
			t.Errorf("%s: what changed wasn't taken in", name)
		}
	}
}

// The events of a node repeat the statuses of all of a pod's containers.
func TestKnownContainersCostLittle(t *testing.T) {
	p := webPod()
	p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"bye"}}}}
	st := reportedStatus(t)
	st.Annotations = container(t, p, nil).Annotations
	c := read(t, st, nil)
	if n := testing.AllocsPerRun(100, func() { read(t, st, &c) }); n > 1 {
		t.Errorf("reading the status of a known container allocates %v times, want no more than the pod's grace", n)
	}
}

func TestSignals(t *testing.T) {
	for value, name := range runtimeapi.Signal_name {
		if value == 0 {
			continue
		}
		st := reportedStatus(t)
		st.StopSignal = runtimeapi.Signal(value)
		signal := read(t, st, nil).RuntimeReported.StopSignal
		p := webPod()
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{StopSignal: &signal}
		equal(t, name+" there and back", container(t, p, nil).StopSignal, runtimeapi.Signal(value))
		if strings.Contains(string(signal), "PLUS") || strings.Contains(string(signal), "MINUS") {
			t.Errorf("%s is told as %s", name, signal)
		}
	}
	for signal, want := range map[v1.Signal]runtimeapi.Signal{v1.SIGRTMINPLUS3: runtimeapi.Signal_SIGRTMINPLUS3, v1.SIGRTMAXMINUS14: runtimeapi.Signal_SIGRTMAXMINUS14} {
		p := webPod()
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{StopSignal: &signal}
		equal(t, string(signal), container(t, p, nil).StopSignal, want)
	}
}
