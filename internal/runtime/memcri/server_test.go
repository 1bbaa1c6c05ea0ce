package memcri_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/memcri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const image = "example.com/app:1"

// serve starts a server in process, with a client, for as long as the test lasts.
func serve(t testing.TB, o memcri.Options) (*memcri.Server, runtimeapi.RuntimeServiceClient) {
	t.Helper()
	o.Images = []string{image}
	s, err := memcri.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(""); err != nil {
		t.Fatal(err)
	}
	conn, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return s, runtimeapi.NewRuntimeServiceClient(conn)
}

func runSandbox(t testing.TB, cri runtimeapi.RuntimeServiceClient, name string) (string, *runtimeapi.PodSandboxConfig) {
	t.Helper()
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		Labels:   map[string]string{"io.kubernetes.pod.uid": name},
	}
	r, err := cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetPodSandboxId(), config
}

func create(t testing.TB, cri runtimeapi.RuntimeServiceClient, sandbox string, pod *runtimeapi.PodSandboxConfig, name string, attempt uint32, command ...string) string {
	t.Helper()
	r, err := cri.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox, SandboxConfig: pod,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
			Image:    &runtimeapi.ImageSpec{Image: image},
			Command:  command,
			Labels:   map[string]string{"io.kubernetes.pod.uid": pod.GetMetadata().GetUid(), "io.kubernetes.container.name": name},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetContainerId()
}

func start(t testing.TB, cri runtimeapi.RuntimeServiceClient, id string) {
	t.Helper()
	if _, err := cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
}

func containerStatus(t testing.TB, cri runtimeapi.RuntimeServiceClient, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	r, err := cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetStatus()
}

func wantExit(t testing.TB, st *runtimeapi.ContainerStatus, code int32, reason string) {
	t.Helper()
	if st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != code || st.GetReason() != reason {
		t.Errorf("container is %s with code %d and reason %q, want exited with %d and %q",
			st.GetState(), st.GetExitCode(), st.GetReason(), code, reason)
	}
}

func TestBehaviours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, cri := serve(t, memcri.Options{})
		s.Behave("by-name", memcri.Behaviour{Exits: true, ExitAfter: time.Hour, ExitCode: 3})
		s.Behave("stubborn", memcri.Behaviour{IgnoreTerm: time.Minute, TermCode: 4})
		sb, pod := runSandbox(t, cri, "p")

		byName := create(t, cri, sb, pod, "by-name", 0)
		start(t, cri, byName)
		time.Sleep(time.Hour - time.Nanosecond)
		synctest.Wait()
		if st := containerStatus(t, cri, byName); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("container is %s before its time", st.GetState())
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantExit(t, containerStatus(t, cri, byName), 3, "Error")

		stubborn := create(t, cri, sb, pod, "a", 0, "/bin/stubborn")
		start(t, cri, stubborn)
		began := time.Now()
		if _, err := cri.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: stubborn, Timeout: 3600}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("stop took %s, want a minute", took)
		}
		wantExit(t, containerStatus(t, cri, stubborn), 4, "Error")

		forever := create(t, cri, sb, pod, "b", 0, "ignore-term")
		start(t, cri, forever)
		if err := s.Exit(forever, 137, "OOMKilled"); err != nil {
			t.Fatal(err)
		}
		wantExit(t, containerStatus(t, cri, forever), 137, "OOMKilled")
		if s.Exit(forever, 0, "") == nil || s.Exit("none", 0, "") == nil {
			t.Error("Exit of what doesn't run succeeded")
		}
	})
}

func TestFaultsApply(t *testing.T) {
	s, cri := serve(t, memcri.Options{})
	s.FailNext("RunPodSandbox", 1, status.Error(codes.Unknown, "no network"))
	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p"}}
	_, err := cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err == nil || !strings.Contains(err.Error(), "no network") {
		t.Errorf("error %v, want the injected one", err)
	}
	s.LoseNext("RunPodSandbox", 1)
	if _, err := cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config}); status.Code(err) != codes.Unavailable {
		t.Errorf("error %v, want Unavailable", err)
	}
	if len(s.Sandboxes()) != 1 || s.Calls("RunPodSandbox") != 2 {
		t.Errorf("%d sandboxes after %d calls, want 1 after 2", len(s.Sandboxes()), s.Calls("RunPodSandbox"))
	}
}

func TestViolations(t *testing.T) {
	s, cri := serve(t, memcri.Options{})
	sb, pod := runSandbox(t, cri, "p")
	first, second := create(t, cri, sb, pod, "a", 0), create(t, cri, sb, pod, "a", 1)
	start(t, cri, first)
	start(t, cri, create(t, cri, sb, pod, "b", 0))
	if v := s.Violations(); len(v) != 0 {
		t.Errorf("violations %v without a reason", v)
	}
	start(t, cri, second)
	if v := s.Violations(); len(v) != 1 || !strings.Contains(v[0], "p/a") {
		t.Errorf("violations %v, want one about p/a", v)
	}
}

func TestReboot(t *testing.T) {
	s, cri := serve(t, memcri.Options{})
	sb, pod := runSandbox(t, cri, "p")
	runs, done := create(t, cri, sb, pod, "runs", 0), create(t, cri, sb, pod, "done", 0)
	start(t, cri, runs)
	start(t, cri, done)
	if err := s.Exit(done, 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := s.Reboot(); err != nil {
		t.Fatal(err)
	}
	waitReady(t, cri)
	wantExit(t, containerStatus(t, cri, runs), 255, "Unknown")
	wantExit(t, containerStatus(t, cri, done), 0, "Completed")
	st := s.Sandboxes()[0]
	if st.GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY || st.GetNetwork().GetIp() != "" {
		t.Errorf("sandbox is %s with address %q", st.GetState(), st.GetNetwork().GetIp())
	}
}

// waitReady waits until the connection is there again.
func waitReady(t testing.TB, cri runtimeapi.RuntimeServiceClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		_, err := cri.Version(ctx, &runtimeapi.VersionRequest{})
		if err == nil {
			return
		}
		if status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
	}
}

func TestEventSwitches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, cri := serve(t, memcri.Options{})
		stream, err := cri.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		s.DropEvents(true)
		runSandbox(t, cri, "unseen")
		s.DropEvents(false)
		seen, _ := runSandbox(t, cri, "seen")
		e, err := stream.Recv()
		if err != nil || e.GetContainerId() != seen {
			t.Errorf("first event is %v (%v), want one about the second sandbox", e, err)
		}
		s.NoEvents()
		again, err := cri.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := again.Recv(); status.Code(err) != codes.Unimplemented {
			t.Errorf("events where there are none: %v, want Unimplemented", err)
		}
	})
}

// A reader that doesn't read holds up nobody, and misses what it can't hold.
func TestSlowReader(t *testing.T) {
	s, cri := serve(t, memcri.Options{EventQueue: 10})
	stream, err := cri.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AwaitCalls(t.Context(), "GetContainerEvents", 1); err != nil {
		t.Fatal(err)
	}
	filler := strings.Repeat("x", 64<<10) // fills the connection's window quickly
	for n := range 100 {
		_, err := cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
			Metadata:    &runtimeapi.PodSandboxMetadata{Name: "p", Attempt: uint32(n)},
			Annotations: map[string]string{"filler": filler},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if s.EventsMissed() == 0 {
		t.Error("the reader missed nothing, though it never read")
	}
	if _, err := stream.Recv(); err != nil {
		t.Errorf("reading at last: %v", err)
	}
}

func TestExec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, cri := serve(t, memcri.Options{})
		sb, pod := runSandbox(t, cri, "p")
		id := create(t, cri, sb, pod, "a", 0)
		start(t, cri, id)
		broken := errors.New("no shell")
		s.SetExec(func(st *runtimeapi.ContainerStatus, command []string) memcri.ExecResult {
			if st.GetMetadata().GetName() != "a" {
				t.Errorf("exec in %v", st)
			}
			return map[string]memcri.ExecResult{
				"ok":   {Stdout: "fine", Takes: time.Second},
				"slow": {Takes: time.Hour},
				"bad":  {Err: broken},
			}[command[0]]
		})
		exec := func(word string) (*runtimeapi.ExecSyncResponse, error) {
			return cri.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{word}, Timeout: 5})
		}
		if r, err := exec("ok"); err != nil || string(r.GetStdout()) != "fine" {
			t.Errorf("ok: %v, %v", r, err)
		}
		if _, err := exec("slow"); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("slow: %v, want DeadlineExceeded", err)
		}
		if _, err := exec("bad"); err == nil || !strings.Contains(err.Error(), "no shell") {
			t.Errorf("bad: %v", err)
		}
	})
}

func TestMemory(t *testing.T) {
	s, cri := serve(t, memcri.Options{})
	sb, pod := runSandbox(t, cri, "p")
	id := create(t, cri, sb, pod, "a", 0)
	if s.SetMemory(id, 1) == nil {
		t.Error("a container that doesn't run was given memory")
	}
	start(t, cri, id)
	if err := s.SetMemory(id, 50<<20); err != nil {
		t.Fatal(err)
	}
	r, err := cri.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: id})
	if err != nil || r.GetStats().GetMemory().GetUsageBytes().GetValue() != 50<<20 {
		t.Errorf("it uses %v (%v), want 50 MiB", r, err)
	}
	if err := s.SetLayer(id, 4096, 3); err != nil {
		t.Fatal(err)
	}
	r, err = cri.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: id})
	if layer := r.GetStats().GetWritableLayer(); err != nil || layer.GetUsedBytes().GetValue() != 4096 || layer.GetInodesUsed().GetValue() != 3 {
		t.Errorf("its layer takes %v (%v), want 4 KiB and 3 inodes", layer, err)
	}
	limit := func(bytes int64) error {
		_, err := cri.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: bytes},
		})
		return err
	}
	if err := limit(60 << 20); err != nil {
		t.Error(err)
	}
	if err := limit(40 << 20); err == nil || !strings.Contains(err.Error(), "current usage") {
		t.Errorf("limiting it to less than it uses: %v", err)
	}
	if got := containerStatus(t, cri, id).GetResources().GetLinux().GetMemoryLimitInBytes(); got != 60<<20 {
		t.Errorf("its limit is %d, want the one before", got)
	}
}

func TestConditions(t *testing.T) {
	s, cri := serve(t, memcri.Options{})
	s.SetCondition(&runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Reason: "NoCNI"})
	r, err := cri.Status(t.Context(), &runtimeapi.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.GetStatus().GetConditions() {
		if c.GetStatus() != (c.GetType() != runtimeapi.NetworkReady) {
			t.Errorf("condition %v", c)
		}
	}
}

func TestSocket(t *testing.T) {
	s, err := memcri.New(memcri.Options{})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "cri.sock")
	if err := os.WriteFile(socket, nil, 0o644); err != nil { // a stale one
		t.Fatal(err)
	}
	if err := s.Start(socket); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Start(socket) == nil || s.Restart() == nil {
		t.Error("a server that serves could be started again")
	}
	if st, err := os.Stat(socket); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v; want mode 0600", st, err)
	}
	if _, err := memcri.New(memcri.Options{PodCIDR: "nonsense"}); err == nil {
		t.Error("a pod CIDR of nonsense was accepted")
	}
}
