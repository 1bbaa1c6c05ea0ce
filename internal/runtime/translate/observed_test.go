package translate_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

func TestThereAndBack(t *testing.T) {
	p := webPod()
	sb := sandbox(t, p)
	id, s, ok := translate.Sandbox(&runtimeapi.PodSandbox{Id: "s", Metadata: sb.Metadata, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: 5, Labels: sb.Labels})
	equal(t, "identity", id, translate.Identity{UID: "1234", Name: "web", Namespace: "default"})
	equal(t, "sandbox", s, pod.Sandbox{ID: "s", State: pod.SandboxReady, Attempt: 2, CreatedAt: time.Unix(0, 5)})
	cfg := container(t, p, func(in *translate.ContainerInput) {
		in.Backoff = time.Minute
		in.Mounts = []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: "/host/file"}}
	})
	_, c, ok2 := translate.ContainerStatus(&runtimeapi.ContainerStatus{
		Id: "c", Metadata: cfg.Metadata, State: runtimeapi.ContainerState_CONTAINER_EXITED, CreatedAt: 1, StartedAt: 2, FinishedAt: 3, ExitCode: 137,
		Reason: "OOMKilled", Message: "m", Image: &runtimeapi.ImageSpec{Image: "resolved"}, ImageRef: "ref", LogPath: "/l", Labels: cfg.Labels,
		Annotations: cfg.Annotations, Mounts: cfg.Mounts,
	}, "s", "")
	if !ok || !ok2 || c.Grace == nil || *c.Grace != 20 {
		t.Fatalf("%v %v %+v", ok, ok2, c)
	}
	c.Grace, c.CreatedWith, c.RuntimeReported = nil, nil, nil // see TestCreatedWith, TestRuntimeReported
	equal(t, "container", c, pod.Container{
		ID: "c", Name: "main", SandboxID: "s", Attempt: 4, State: pod.ContainerExited, CreatedAt: time.Unix(0, 1), StartedAt: time.Unix(0, 2),
		FinishedAt: time.Unix(0, 3), ExitCode: 137, Reason: "OOMKilled", Message: "m", Image: "example/web:1", ImageRef: "ref", LogPath: "/l",
		Backoff: time.Minute, Hash: cfg.Annotations[translate.AnnotationHash], TerminationMessagePath: "/host/file",
	})
	_, listed, _ := translate.Container(&runtimeapi.Container{Id: "c", PodSandboxId: "s", Metadata: cfg.Metadata, State: runtimeapi.ContainerState_CONTAINER_UNKNOWN,
		CreatedAt: 1, Image: cfg.Image, ImageRef: "ref", Labels: cfg.Labels, Annotations: cfg.Annotations}, "")
	equal(t, "listed", []any{listed.State, listed.SandboxID, listed.Attempt, listed.Image}, []any{pod.ContainerUnknown, "s", 4, "example/web:1"})
}

// TestStartOnAFullDisk: a container that a full disk kept from starting is told from one whose command is wrong, and from one
// that ran and wrote about its own disk.
func TestStartOnAFullDisk(t *testing.T) {
	cfg := container(t, webPod(), nil)
	for _, tc := range []struct {
		reason, message string
		want            bool
	}{
		{"StartError", "failed to create shim task: write /run/x: no space left on device", true},
		{"StartError", "exec: \"/no\": no such file or directory", false},
		{"Error", "write /data/x: no space left on device", false},
	} {
		_, c, ok := translate.ContainerStatus(&runtimeapi.ContainerStatus{Id: "c", Metadata: cfg.Metadata, Labels: cfg.Labels, Annotations: cfg.Annotations,
			State: runtimeapi.ContainerState_CONTAINER_EXITED, Reason: tc.reason, Message: tc.message}, "s", "")
		if !ok || c.DiskFull != tc.want {
			t.Errorf("%s %q: a full disk %v, want %v", tc.reason, tc.message, c.DiskFull, tc.want)
		}
	}
}

func TestTerminationMessagePolicy(t *testing.T) {
	for written, want := range map[v1.TerminationMessagePolicy]v1.TerminationMessagePolicy{
		"":                            "",
		"garbage":                     "",
		v1.TerminationMessageReadFile: "",
		v1.TerminationMessageFallbackToLogsOnError: v1.TerminationMessageFallbackToLogsOnError,
	} {
		p := webPod()
		p.Spec.Containers[0].TerminationMessagePolicy = written
		cfg := container(t, p, nil)
		_, c, ok := translate.ContainerStatus(&runtimeapi.ContainerStatus{Id: "c", Metadata: cfg.Metadata, Labels: cfg.Labels, Annotations: cfg.Annotations}, "s", "")
		if !ok || c.TerminationMessagePolicy != want {
			t.Errorf("%q is read back as %q, want %q", written, c.TerminationMessagePolicy, want)
		}
	}
}

func TestSandboxAddresses(t *testing.T) {
	st := &runtimeapi.PodSandboxStatus{Id: "s", Labels: sandbox(t, webPod()).Labels, CreatedAt: -6795364578871345152,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1", AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::1"}, {Ip: "10.0.0.1"}, {}}},
		Linux:   &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}}}
	_, s, ok := translate.SandboxStatus(st)
	equal(t, "sandbox", s, pod.Sandbox{ID: "s", State: pod.SandboxReady, IPs: []string{"10.0.0.1", "fd00::1"}, HostNetwork: true})
	equal(t, "ok", ok, true)
}

func TestForeignThingsAreIgnored(t *testing.T) {
	if _, _, ok := translate.Sandbox(&runtimeapi.PodSandbox{Id: "s", Labels: map[string]string{"io.kubernetes.pod.uid": "1"}}); ok {
		t.Error("a sandbox without a pod's name was taken")
	}
	if _, _, ok := translate.SandboxStatus(nil); ok {
		t.Error("no status was taken")
	}
	if _, _, ok := translate.ContainerStatus(nil, "", ""); ok {
		t.Error("no status was taken")
	}
	if _, _, ok := translate.Container(&runtimeapi.Container{Id: "c", Labels: sandbox(t, webPod()).Labels}, ""); ok {
		t.Error("a container without a name was taken")
	}
}

func TestMalformedAnnotations(t *testing.T) {
	cfg := container(t, webPod(), nil)
	for k := range cfg.Annotations {
		cfg.Annotations[k] = "-garbage"
	}
	cfg.Annotations[translate.AnnotationBackoff] = "-5s"
	delete(cfg.Annotations, translate.AnnotationImage)
	_, c, ok := translate.Container(&runtimeapi.Container{Id: "c", Metadata: cfg.Metadata, Image: cfg.Image, Labels: cfg.Labels, Annotations: cfg.Annotations}, "")
	equal(t, "container", []any{ok, c.Attempt, c.Backoff, c.Grace, c.Image}, []any{true, 4, time.Duration(0), (*int64)(nil), "example/web:1"})
}

// The kubelet doesn't say on its containers how long the next one waits: that follows from the number of restarts.
func TestBackoffOfTheKubeletsContainers(t *testing.T) {
	read := func(annotations map[string]string) time.Duration {
		labels := map[string]string{"io.kubernetes.pod.uid": "1", "io.kubernetes.pod.name": "a", "io.kubernetes.pod.namespace": "b", "io.kubernetes.container.name": "c"}
		_, c, ok := translate.Container(&runtimeapi.Container{Id: "c", Labels: labels, Annotations: annotations}, "")
		if !ok {
			t.Fatal("the container isn't read")
		}
		return c.Backoff
	}
	for restarts, want := range map[string]time.Duration{"0": 0, "1": 10 * time.Second, "2": 20 * time.Second, "5": 160 * time.Second, "6": 300 * time.Second, "1000": 300 * time.Second} {
		equal(t, restarts+" restarts", read(map[string]string{"io.kubernetes.container.restartCount": restarts}), want)
	}
	equal(t, "our own container", read(map[string]string{"io.kubernetes.container.restartCount": "3", "deckhand.io/image": "a"}), time.Duration(0))
}

// A container that ran when the host went down hasn't crashed.
func TestBackoffEndsWithTheBoot(t *testing.T) {
	cfg, err := translate.ContainerConfig(&translate.Settings{Boot: "b1"}, translate.ContainerInput{Pod: webPod(), Container: &webPod().Spec.Containers[0], Attempt: 1, Backoff: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for boot, want := range map[string]time.Duration{"b1": time.Minute, "b2": 0, "": time.Minute} {
		_, c, ok := translate.ContainerStatus(&runtimeapi.ContainerStatus{Id: "c", Metadata: cfg.Metadata, Labels: cfg.Labels, Annotations: cfg.Annotations}, "s", boot)
		_, listed, _ := translate.Container(&runtimeapi.Container{Id: "c", Metadata: cfg.Metadata, Labels: cfg.Labels, Annotations: cfg.Annotations}, boot)
		equal(t, "in boot "+boot, []any{ok, c.Backoff, listed.Backoff}, []any{true, want, want})
	}
}

// A runtime notes the start of a short program after its end, and a clock may be set back.
func TestEndBeforeStart(t *testing.T) {
	labels := map[string]string{"io.kubernetes.pod.uid": "u", "io.kubernetes.pod.name": "p",
		"io.kubernetes.pod.namespace": "n", "io.kubernetes.container.name": "web"}
	for finished, want := range map[int64]int64{0: 9, 7: 7, 12: 9} {
		st := &runtimeapi.ContainerStatus{Id: "c", Labels: labels, StartedAt: 9, FinishedAt: finished}
		if _, c, ok := translate.ContainerStatus(st, "", ""); !ok || !c.StartedAt.Equal(time.Unix(0, want)) {
			t.Errorf("ended at %d: started at %v, want %d", finished, c.StartedAt, want)
		}
	}
}
