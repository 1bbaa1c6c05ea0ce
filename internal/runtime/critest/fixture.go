package critest

import (
	"context"
	"crypto/rand"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// patience is the timeout of everything that tests wait for. Only failing tests reach it.
const patience = 30 * time.Second

// fixture is the environment of one test.
type fixture struct {
	Harness
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	ctx     context.Context // ends with the test
	logs    string
}

func newFixture(t *testing.T, h Harness) *fixture {
	t.Helper()
	f := &fixture{Harness: h, ctx: t.Context(), logs: t.TempDir()}
	conn := f.connect(t)
	f.runtime = runtimeapi.NewRuntimeServiceClient(conn)
	f.images = runtimeapi.NewImageServiceClient(conn)
	return f
}

func (f *fixture) connect(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := f.Connect()
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Errorf("close connection: %v", err)
		}
	})
	return conn
}

// pod is a sandbox's config, and the sandbox once it runs.
type pod struct {
	f      *fixture
	config *runtimeapi.PodSandboxConfig
	id     string
}

// newPod returns a pod with a unique name.
func (f *fixture) newPod() *pod {
	uid := rand.Text()
	name := "p-" + uid[:8]
	p := &pod{f: f, config: &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "critest", Uid: uid},
		Hostname:     name,
		LogDirectory: filepath.Join(f.logs, uid),
		Labels:       map[string]string{"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": name},
		Annotations:  map[string]string{"critest/note": "kept as it is"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		},
	}}
	if f.CgroupParent != nil {
		p.config.Linux.CgroupParent = f.CgroupParent(uid)
	}
	return p
}

// run starts the sandbox and removes it when the test ends.
func (p *pod) run(t *testing.T) *pod {
	t.Helper()
	r, err := p.f.runtime.RunPodSandbox(p.f.ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
	if err != nil {
		t.Fatalf("RunPodSandbox: %v", err)
	}
	p.id = r.GetPodSandboxId()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.f.ctx), patience)
		defer cancel()
		if _, err := p.f.runtime.StopPodSandbox(ctx,
			&runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Errorf("clean up: stop sandbox: %v", err)
		}
		if _, err := p.f.runtime.RemovePodSandbox(ctx,
			&runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Errorf("clean up: remove sandbox: %v", err)
		}
	})
	return p
}

func (f *fixture) runPod(t *testing.T) *pod {
	t.Helper()
	return f.newPod().run(t)
}

func (p *pod) stop(t *testing.T) {
	t.Helper()
	if _, err := p.f.runtime.StopPodSandbox(p.f.ctx,
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatalf("StopPodSandbox: %v", err)
	}
}

func (p *pod) remove(t *testing.T) {
	t.Helper()
	if _, err := p.f.runtime.RemovePodSandbox(p.f.ctx,
		&runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatalf("RemovePodSandbox: %v", err)
	}
}

func (p *pod) status(t *testing.T) *runtimeapi.PodSandboxStatus {
	t.Helper()
	r, err := p.f.runtime.PodSandboxStatus(p.f.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
	if err != nil {
		t.Fatalf("PodSandboxStatus: %v", err)
	}
	return r.GetStatus()
}

// containerConfig returns the configuration of a container whose program gets the given words.
func (p *pod) containerConfig(name string, words ...string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: p.f.Image},
		Command:  p.f.Program,
		Args:     words,
		Labels: map[string]string{
			"io.kubernetes.pod.uid":        p.config.GetMetadata().GetUid(),
			"io.kubernetes.container.name": name,
		},
		Annotations: map[string]string{"critest/note": "kept too"},
		LogPath:     name + "/0.log",
		Linux:       &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpuShares: 100}},
	}
}

// create makes a container and returns its ID.
func (p *pod) create(t *testing.T, config *runtimeapi.ContainerConfig) string {
	t.Helper()
	id, err := p.tryCreate(config)
	if err != nil {
		t.Fatalf("CreateContainer %s: %v", config.GetMetadata().GetName(), err)
	}
	return id
}

func (p *pod) tryCreate(config *runtimeapi.ContainerConfig) (string, error) {
	r, err := p.f.runtime.CreateContainer(p.f.ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.id, Config: config, SandboxConfig: p.config,
	})
	return r.GetContainerId(), err
}

// start creates and starts a container and returns its ID.
func (p *pod) start(t *testing.T, name string, words ...string) string {
	t.Helper()
	id := p.create(t, p.containerConfig(name, words...))
	p.f.startContainer(t, id)
	return id
}

// startReady is start, but waits until the program handles signals.
func (p *pod) startReady(t *testing.T, name, word string) string {
	t.Helper()
	id := p.start(t, name, word)
	p.awaitOutput(t, name)
	return id
}

// awaitOutput waits until the container has written a line.
func (p *pod) awaitOutput(t *testing.T, name string) {
	t.Helper()
	log := filepath.Join(p.config.GetLogDirectory(), name, "0.log")
	p.f.eventually(t, "the program says it is ready", func() bool { return countLines(t, log) > 0 })
}

func (f *fixture) startContainer(t *testing.T, id string) {
	t.Helper()
	if _, err := f.runtime.StartContainer(f.ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatalf("StartContainer: %v", err)
	}
}

func (f *fixture) stopContainer(t *testing.T, id string, timeout int64) {
	t.Helper()
	if _, err := f.runtime.StopContainer(f.ctx,
		&runtimeapi.StopContainerRequest{ContainerId: id, Timeout: timeout}); err != nil {
		t.Fatalf("StopContainer: %v", err)
	}
}

func (f *fixture) removeContainer(t *testing.T, id string) {
	t.Helper()
	if _, err := f.runtime.RemoveContainer(f.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Fatalf("RemoveContainer: %v", err)
	}
}

func (f *fixture) containerStatus(t *testing.T, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	r, err := f.runtime.ContainerStatus(f.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatalf("ContainerStatus: %v", err)
	}
	return r.GetStatus()
}

// awaitExit waits until the container has exited.
func (f *fixture) awaitExit(t *testing.T, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	var st *runtimeapi.ContainerStatus
	f.eventually(t, "the container exits", func() bool {
		st = f.containerStatus(t, id)
		return st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return st
}

// eventually polls for a state that no event reports.
func (f *fixture) eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s in vain until %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: code %s (%v), want %s", what, got, err, want)
	}
}

func wantError(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s succeeded, want an error", what)
	}
}

func wantState(t *testing.T, st *runtimeapi.ContainerStatus, want runtimeapi.ContainerState) {
	t.Helper()
	if st.GetState() != want {
		t.Fatalf("container is %s (exit code %d, reason %q, message %q), want %s",
			st.GetState(), st.GetExitCode(), st.GetReason(), st.GetMessage(), want)
	}
}

// wantRecent checks that ns is a recent time in nanoseconds since the epoch.
func wantRecent(t *testing.T, what string, ns int64) {
	t.Helper()
	if age := time.Since(time.Unix(0, ns)); age < 0 || age > time.Minute {
		t.Errorf("%s is %d, which is %s ago; want nanoseconds since the epoch, just now", what, ns, age)
	}
}
