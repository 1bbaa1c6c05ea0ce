package agent_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// spans is a collector.
type spans struct {
	collector.UnimplementedTraceServiceServer
	mu  sync.Mutex
	all []*otlp.Span
}

// Export implements the collector's service.
func (s *spans) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range r.ResourceSpans {
		for _, in := range of.ScopeSpans {
			s.all = append(s.all, in.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// TestTraces: actions on pods and the calls to the runtime that they come to are one trace.
func TestTraces(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got, server := &spans{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, got)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		<-served
	}()
	r := prepareRig(t, fmt.Sprintf("tracing: {endpoint: %q, samplingRatePerMillion: 1000000}\n", listener.Addr()))
	if err := r.Start(r.path("cri.sock")); err != nil {
		t.Fatal(err)
	}
	r.up()
	r.want("a", "  containers: [{name: main, image: \"IMAGE\"}]\n")
	r.await("the pod runs", r.running("a/main"))
	r.stop() // which sends what is left
	got.mu.Lock()
	defer got.mu.Unlock()
	traces := map[string]string{}
	for _, s := range got.all {
		traces[hex.EncodeToString(s.TraceId)] += s.Name + " "
	}
	for _, call := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		found := false
		for _, names := range traces {
			found = found || strings.Contains(names, "runtime.v1.RuntimeService/"+call) && strings.Contains(names, "syncPod")
		}
		if !found {
			t.Errorf("no action is traced with %s: %v", call, traces)
		}
	}
}
