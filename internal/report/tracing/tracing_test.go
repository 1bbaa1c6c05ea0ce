package tracing

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel/trace"

	"github.com/deckhand-node/deckhand/internal/report/tracing/tracingtest"
)

// run runs a Tracing; stop ends it and waits.
func run(t *testing.T, c Config) (tracing *Tracing, stop func()) {
	t.Helper()
	tracing = New(c)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tracing.Run(ctx) }()
	return tracing, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// span makes spans until one is recorded, which is so once Run has begun.
func span(ctx context.Context, t *Tracing, name string) {
	_, s := t.Provider().Tracer("test").Start(ctx, name)
	s.End()
}

// traced is a context with a caller's trace.
func traced(sampled bool) context.Context {
	flags := trace.TraceFlags(0).WithSampled(sampled)
	return trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: flags, Remote: true}))
}

// TestRates: what callers trace is traced, and else as many of a million as are asked for; at the end nothing is kept.
func TestRates(t *testing.T) {
	for rate, want := range map[int32]string{0: "kubelet theirs", 1_000_000: "kubelet own kubelet theirs"} {
		collector := tracingtest.Collect(t)
		tracing, stop := run(t, Config{Endpoint: collector.Endpoint, PerMillion: rate, Node: "n", Log: logr.Discard()})
		for len(collector.Spans()) == 0 { // until Run has begun
			span(traced(true), tracing, "begun")
			_ = tracing.provider.ForceFlush(t.Context())
		}
		span(context.Background(), tracing, "own")
		span(traced(false), tracing, "not theirs")
		span(traced(true), tracing, "theirs")
		stop()
		var got []string
		for _, s := range collector.Spans() {
			if s.Name != "begun" {
				got = append(got, s.Service+" "+s.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("rate %d: %q, want %q", rate, got, want)
		}
	}
}

// TestCollectorAway: nobody waits for one that isn't there, and that is told once.
func TestCollectorAway(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := listener.Addr().String()
	listener.Close()
	told := make(chan string, 100)
	tracing, stop := run(t, Config{Endpoint: endpoint, PerMillion: 1_000_000, Log: funcr.New(func(_, args string) { told <- args }, funcr.Options{})})
	first := ""
	for first == "" {
		span(context.Background(), tracing, "lost")
		_ = tracing.provider.ForceFlush(t.Context())
		select {
		case first = <-told:
		case <-time.After(time.Millisecond):
		}
	}
	if !strings.Contains(first, "Traces can't be sent to the collector") || !strings.Contains(first, endpoint) {
		t.Errorf("told %s", first)
	}
	for range 10 {
		span(context.Background(), tracing, "lost")
		_ = tracing.provider.ForceFlush(t.Context())
	}
	stop()
	if len(told) > 0 {
		t.Errorf("told again: %s", <-told)
	}
}
