// Package tracingtest is a collector of traces for tests.
package tracingtest

import (
	"context"
	"encoding/hex"
	"net"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// Span is a span that a program has sent to the collector.
type Span struct {
	// Service is who sent it.
	Service, Name string
	// Trace is the ID of the span's trace, in hexadecimal digits.
	Trace string
}

// Collector stores all spans that it receives.
type Collector struct {
	collector.UnimplementedTraceServiceServer
	// Endpoint is the address on which the collector listens, on loopback.
	Endpoint string

	mu    sync.Mutex
	spans []Span
}

// Collect serves a collector until the test ends.
func Collect(t testing.TB) *Collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, server := &Collector{Endpoint: listener.Addr().String()}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return c
}

// Export implements the collector's service.
func (c *Collector) Export(_ context.Context,
	r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.ResourceSpans {
		service := ""
		for _, a := range of.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, in := range of.ScopeSpans {
			for _, s := range in.Spans {
				c.spans = append(c.spans, Span{Service: service, Name: s.Name, Trace: hex.EncodeToString(s.TraceId)})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// Spans returns the received spans in the order of their arrival.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Traces returns the names of the received spans, each after the name of its service, by trace ID.
func (c *Collector) Traces() map[string][]string {
	traces := map[string][]string{}
	for _, s := range c.Spans() {
		traces[s.Trace] = append(traces[s.Trace], s.Service+" "+s.Name)
	}
	return traces
}
