package cri_test

import (
	"context"
	"errors"
	"math"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/cri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runtimeServer is a runtime of which a test scripts the few calls it needs.
type runtimeServer struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	versionErr error
	statsErr   error
	events     func(runtimeapi.RuntimeService_GetContainerEventsServer) error
	exec       func(context.Context, *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error)
	stop       func(*runtimeapi.StopContainerRequest) error
	checkpoint func() error
	updated    *runtimeapi.UpdateContainerResourcesRequest
	resized    *runtimeapi.UpdatePodSandboxResourcesRequest
	streams    bool // streams and long: see lists_test.go
	long       bool
}

func (s *runtimeServer) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, s.versionErr
}

func (s *runtimeServer) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{}, nil
}

func (s *runtimeServer) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return nil, status.Errorf(codes.NotFound, "no container %s here", r.ContainerId)
}

func (s *runtimeServer) StopContainer(_ context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	return &runtimeapi.StopContainerResponse{}, s.stop(r)
}

func (s *runtimeServer) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) (*runtimeapi.CheckpointContainerResponse, error) {
	return &runtimeapi.CheckpointContainerResponse{}, s.checkpoint()
}

func (s *runtimeServer) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	return s.exec(ctx, r)
}

func (s *runtimeServer) UpdateContainerResources(_ context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	s.updated = r
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

func (s *runtimeServer) UpdatePodSandboxResources(_ context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	s.resized = r
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

func (s *runtimeServer) ContainerStats(_ context.Context, r *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	return &runtimeapi.ContainerStatsResponse{Stats: &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{Id: r.ContainerId}}}, s.statsErr
}

func (s *runtimeServer) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream runtimeapi.RuntimeService_GetContainerEventsServer) error {
	if s.events == nil {
		return status.Error(codes.Unimplemented, "no events here")
	}
	return s.events(stream)
}

func serve(t *testing.T, socket string, s *runtimeServer) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, s)
	runtimeapi.RegisterImageServiceServer(server, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with the Stop below
	}()
	stop = sync.OnceFunc(func() {
		server.Stop()
		<-done
	})
	t.Cleanup(stop)
	return stop
}

func dial(t *testing.T, socket string, o cri.Observer) *cri.Conn {
	t.Helper()
	c, err := cri.Dial(t.Context(), cri.Options{Endpoint: "unix://" + socket, Timeout: 10 * time.Second, Observer: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestEndpoints(t *testing.T) {
	for _, tc := range []struct{ endpoint, want string }{
		{"", "no container runtime endpoint"},
		{"tcp://127.0.0.1:1", "only unix sockets"},
		{"npipe:////./pipe/x", "only unix sockets"},
		{"unix://run/x.sock", "three slashes"},
		{"run/x.sock", "only unix sockets"},
		{"unix:///" + strings.Repeat("x", 120), "shorter root directory"},
		{"/run/x.sock", ""},
		{"unix:///run/x.sock", ""},
	} {
		c, err := cri.New(cri.Options{Endpoint: tc.endpoint})
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%q: %v", tc.endpoint, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%q: error %v, want one with %q", tc.endpoint, err, tc.want)
		}
		if c != nil {
			c.Close()
		}
	}
}

func TestDialReportsThatNobodyAnswers(t *testing.T) {
	_, err := cri.Dial(t.Context(), cri.Options{Endpoint: filepath.Join(t.TempDir(), "none.sock")})
	if !cri.IsUnavailable(err) || !strings.Contains(err.Error(), "container runtime: version:") {
		t.Fatalf("unexpected error: %v", err)
	}
}

type calls struct {
	mu   sync.Mutex
	list []string
	errs int
}

func (c *calls) Operation(name string, _ time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, name)
	if err != nil {
		c.errs++
	}
}

func TestErrorsAreNamedAndCounted(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket, &runtimeServer{})
	var seen calls
	c := dial(t, socket, &seen)
	_, err := c.ContainerStatus(t.Context(), "abc")
	if !cri.IsNotFound(err) || cri.IsUnavailable(err) || err.Error() != "container runtime: container status abc: no container abc here" {
		t.Fatalf("unexpected error: %v", err)
	}
	if got := strings.Join(seen.list, " "); got != "version image_fs_info container_status" || seen.errs != 1 {
		t.Fatalf("observed %q with %d errors", got, seen.errs)
	}
}

func TestStopGraceIsRoundedUp(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	var asked int64
	serve(t, socket, &runtimeServer{stop: func(r *runtimeapi.StopContainerRequest) error { asked = r.Timeout; return nil }})
	c := dial(t, socket, nil)
	for grace, want := range map[time.Duration]int64{-time.Second: 0, 0: 0, time.Millisecond: 1, 2 * time.Second: 2, math.MaxInt64: 100 * 365 * 24 * 3600} {
		if err := c.StopContainer(t.Context(), "id", grace); err != nil || asked != want {
			t.Errorf("grace %s: asked for %d s, want %d (%v)", grace, asked, want, err)
		}
	}
}

func TestResources(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	server := &runtimeServer{}
	serve(t, socket, server)
	c := dial(t, socket, nil)
	err := c.UpdateContainerResources(t.Context(), "id", &runtimeapi.LinuxContainerResources{CpuShares: 7})
	if err != nil || server.updated.ContainerId != "id" || server.updated.Linux.CpuShares != 7 {
		t.Errorf("asked for %v (%v)", server.updated, err)
	}
	err = c.UpdatePodSandboxResources(t.Context(), "id", &runtimeapi.LinuxContainerResources{CpuShares: 8}, &runtimeapi.LinuxContainerResources{CpuShares: 9})
	if err != nil || server.resized.PodSandboxId != "id" || server.resized.Overhead.CpuShares != 8 || server.resized.Resources.CpuShares != 9 {
		t.Errorf("asked for %v (%v)", server.resized, err)
	}
	if st, err := c.ContainerStats(t.Context(), "id"); err != nil || st.GetAttributes().GetId() != "id" {
		t.Errorf("told %v (%v)", st, err)
	}
}

func TestEventStream(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket, &runtimeServer{events: func(s runtimeapi.RuntimeService_GetContainerEventsServer) error {
		for i := range int64(200) {
			if err := s.Send(&runtimeapi.ContainerEventResponse{CreatedAt: i}); err != nil {
				return err
			}
		}
		<-s.Context().Done()
		return nil
	}})
	c := dial(t, socket, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var got []int64
	established := false
	err := c.GetContainerEvents(ctx, func() { established = true }, func(e *runtimeapi.ContainerEventResponse) {
		if !established {
			t.Error("an event came before the subscription was told")
		}
		if got = append(got, e.CreatedAt); len(got) == 100 {
			cancel() // the rest must neither be handled nor block anything
		}
	})
	if len(got) != 100 || got[99] != 99 {
		t.Fatalf("got %d events", len(got))
	}
	if status.Code(err) != codes.Canceled {
		t.Fatalf("unexpected error: %v", err)
	}
}

func TestRuntimeWithoutEvents(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket, &runtimeServer{})
	c := dial(t, socket, nil)
	err := c.GetContainerEvents(t.Context(), func() {}, func(*runtimeapi.ContainerEventResponse) {})
	if !cri.IsUnimplemented(err) {
		t.Fatalf("unexpected error: %v", err)
	}
}

// A runtime that was away for a while must be back as soon as it answers: with
// cri-client's own back-off it takes up to 3 s longer.
func TestReconnectsAtOnce(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	stop := serve(t, socket, &runtimeServer{})
	c := dial(t, socket, nil)
	stop()
	down := time.Now()
	for time.Since(down) < 1500*time.Millisecond {
		if _, err := c.Version(t.Context()); !cri.IsUnavailable(err) {
			t.Fatalf("unexpected error: %v", err)
		}
		time.Sleep(20 * time.Millisecond) // the outage is real time: gRPC's back-off grows with it
	}
	serve(t, socket, &runtimeServer{})
	begin := time.Now()
	_, err := c.Version(t.Context())
	if took := time.Since(begin); err != nil || took > 200*time.Millisecond {
		t.Fatalf("the first call after the outage took %s: %v", took, err)
	}
	if _, err := c.ImageFsInfo(t.Context()); err != nil {
		// The image service's connection finds out on its first call, which may fail.
		if _, err = c.ImageFsInfo(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A runtime that listens but isn't ready leaves no connection behind (goleak would see it).
func TestRuntimeNotReadyYet(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket, &runtimeServer{versionErr: errors.New("server is not initialized yet")})
	c, err := cri.New(cri.Options{Endpoint: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 5 {
		if _, err := c.Version(t.Context()); !cri.IsUnavailable(err) {
			t.Fatalf("unexpected error: %v", err)
		}
	}
}

func TestClosed(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket, &runtimeServer{})
	c := dial(t, socket, nil)
	c.Close()
	if _, err := c.Version(t.Context()); err == nil || !strings.Contains(err.Error(), "was closed") {
		t.Fatalf("unexpected error: %v", err)
	}
}

// TestCheckpointing: it is known which containers the runtime has frozen for a checkpoint, also where that fails.
func TestCheckpointing(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	var c *cri.Conn
	serve(t, socket, &runtimeServer{checkpoint: func() error {
		if !c.Checkpointing("a") || c.Checkpointing("b") {
			t.Error("a is being checkpointed, b isn't")
		}
		return status.Error(codes.Internal, "no criu")
	}})
	c = dial(t, socket, nil)
	if err := c.CheckpointContainer(t.Context(), &runtimeapi.CheckpointContainerRequest{ContainerId: "a"}); err == nil || c.Checkpointing("a") {
		t.Errorf("%v; it counts as being checkpointed: %v", err, c.Checkpointing("a"))
	}
}
