package handler

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// serveConns has talk serve each connection, one after the other, and returns the address.
func serveConns(t *testing.T, talk func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			talk(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// silent accepts connections and says nothing until they end.
func silent(t *testing.T) string {
	t.Helper()
	return serveConns(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
}

// refusing is an address where nobody listens.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return l.Addr().String()
}

// blackhole is an address that doesn't answer at all: the kernel drops what comes in
// for a listener whose queue is full.
func blackhole(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*unix.SockaddrInet4).Port}).String()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return address
}

func tcpProbe() *v1.Probe {
	return &v1.Probe{TimeoutSeconds: 1, ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromString("web")}}}
}

func TestTCPProbe(t *testing.T) {
	h := handlers(nil)
	want(t, h.Probe(t.Context(), local(t, silent(t)), tcpProbe()), Success, "")
	address := refusing(t)
	want(t, h.Probe(t.Context(), local(t, address), tcpProbe()), Failure, "dial tcp "+address+": connect: connection refused")
	address = blackhole(t)
	want(t, h.Probe(t.Context(), local(t, address), tcpProbe()), Failure, "dial tcp "+address+": i/o timeout")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	p := tcpProbe()
	p.TimeoutSeconds = 3600
	want(t, h.Probe(ctx, local(t, address), p), Unknown, "cancelled")
}

// TestNoDescriptor: a probe for which this process can't open a connection has no result.
func TestNoDescriptor(t *testing.T) {
	h, healthy := handlers(nil), serveGRPC(t, healthServer{check: func(context.Context, string) (*grpc_health_v1.HealthCheckResponse, error) {
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
	}})
	probes := map[string]*v1.Probe{"gRPC": grpcProbe(healthy, nil), "TCP": tcpProbe(),
		"HTTP": {TimeoutSeconds: 1, ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromString("web")}}}}
	want(t, h.Probe(t.Context(), healthy, probes["gRPC"]), Success, "") // afterwards the poller needs no other file
	var limit unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}, nil); err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]Outcome{}
	for name, p := range probes {
		outcomes[name] = h.Probe(t.Context(), healthy, p)
	}
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	for name, o := range outcomes {
		if o.State != Unknown || !strings.Contains(o.Message, "too many open files") {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// healthServer answers Check; what it isn't made for it leaves to the embedded one.
type healthServer struct {
	grpc_health_v1.UnimplementedHealthServer
	check func(context.Context, string) (*grpc_health_v1.HealthCheckResponse, error)
}

func (s healthServer) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	return s.check(ctx, r.GetService())
}

func serveGRPC(t *testing.T, service grpc_health_v1.HealthServer) Target {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	if service != nil {
		grpc_health_v1.RegisterHealthServer(s, service)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return local(t, l.Addr().String())
}

func grpcProbe(t Target, service *string) *v1.Probe {
	return &v1.Probe{TimeoutSeconds: 1, ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: t.Container.Ports[1].ContainerPort, Service: service}}}
}

func TestGRPCProbe(t *testing.T) {
	s := health.NewServer()
	s.SetServingStatus("up", grpc_health_v1.HealthCheckResponse_SERVING)
	s.SetServingStatus("down", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	real := serveGRPC(t, s)
	none := serveGRPC(t, nil)
	fixed := func(err error) Target {
		return serveGRPC(t, healthServer{check: func(context.Context, string) (*grpc_health_v1.HealthCheckResponse, error) { return nil, err }})
	}
	slow := serveGRPC(t, healthServer{check: func(ctx context.Context, _ string) (*grpc_health_v1.HealthCheckResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	name := func(s string) *string { return &s }
	for what, c := range map[string]struct {
		target  Target
		service *string
		state   State
		message string
	}{
		"serving":             {real, nil, Success, ""},
		"service serving":     {real, name("up"), Success, ""},
		"service not serving": {real, name("down"), Failure, `service unhealthy (responded with "NOT_SERVING")`},
		"unknown service":     {real, name("other"), Failure, "error: health rpc failed: rpc error: code = NotFound desc = unknown service"},
		"no health service":   {none, nil, Failure, "does not implement the grpc health protocol"},
		"unimplemented":       {serveGRPC(t, grpc_health_v1.UnimplementedHealthServer{}), nil, Failure, "does not implement the grpc health protocol"},
		"error":               {fixed(status.Error(codes.Internal, "broken")), nil, Failure, "desc = broken"},
		"slow":                {slow, nil, Failure, "timeout: health rpc did not complete within 1s"},
		"silent":              {local(t, silent(t)), nil, Failure, "timeout: failed to connect service"},
		"blackhole":           {local(t, blackhole(t)), nil, Failure, "timeout: failed to connect service"},
		"refused":             {local(t, refusing(t)), nil, Failure, "error: failed to connect service at"},
		"speaks HTTP":         {serve(t, false).target(t), nil, Failure, "error: health rpc failed"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			want(t, handlers(nil).Probe(t.Context(), c.target, grpcProbe(c.target, c.service)), c.state, c.message)
		})
	}
}

func TestWhatAGRPCServerSees(t *testing.T) {
	var md metadata.MD
	target := serveGRPC(t, healthServer{check: func(ctx context.Context, _ string) (*grpc_health_v1.HealthCheckResponse, error) {
		md, _ = metadata.FromIncomingContext(ctx)
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
	}})
	p := grpcProbe(target, nil)
	want(t, handlers(nil).Probe(t.Context(), target, p), Success, "")
	if agent := md.Get("user-agent"); len(agent) != 1 || agent[0] != "kube-probe/1.36 grpc-go/"+grpc.Version {
		t.Errorf("user-agent %q", agent)
	}
	target.PodIP = ""
	want(t, handlers(nil).Probe(t.Context(), target, p), Unknown, "no address yet")
	p.GRPC.Port = 0
	target.PodIP = "127.0.0.1"
	want(t, handlers(nil).Probe(t.Context(), target, p), Unknown, "isn't in the range")
}

func TestGRPCProbeIsCancelled(t *testing.T) {
	target := local(t, silent(t))
	p := grpcProbe(target, nil)
	p.TimeoutSeconds = 3600
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	want(t, handlers(nil).Probe(ctx, target, p), Unknown, "cancelled: context canceled")
}
