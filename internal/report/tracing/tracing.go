// Package tracing sends traces to an OpenTelemetry collector, as a kubelet does (KEP-2831): of requests to the HTTPS
// server, of actions on pods, and of the calls to the container runtime that these come to.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// DefaultEndpoint is OTLP's over gRPC.
const DefaultEndpoint = "localhost:4317"

// lastWords is how long the agent waits at its end for the collector to take what is left.
const lastWords = time.Second

// Config says where traces go.
type Config struct {
	// Endpoint of the collector as gRPC names it; empty for OTLP's on this machine.
	Endpoint string
	// PerMillion is how many of a million traces are begun beside those that callers have begun.
	PerMillion int32
	// Node is the node's name.
	Node string
	Log  logr.Logger
}

// Tracing takes in spans, and sends them while it runs.
type Tracing struct {
	conf     Config
	provider *sdktrace.TracerProvider
}

// New returns a Tracing that forgets spans until Run.
func New(c Config) *Tracing {
	of := resource.NewSchemaless(attribute.String("service.name", "kubelet"), attribute.String("host.name", c.Node))
	// Without a rate that is never (TracingConfiguration samplingRatePerMillion).
	own := sdktrace.TraceIDRatioBased(float64(c.PerMillion) / 1_000_000)
	return &Tracing{conf: c,
		provider: sdktrace.NewTracerProvider(sdktrace.WithResource(of),
			sdktrace.WithSampler(sdktrace.ParentBased(own)))}
}

// Provider is where spans are begun.
func (t *Tracing) Provider() trace.TracerProvider { return t.provider }

// Run sends spans in batches until ctx ends, and then what is left. While the collector is away they are dropped, which
// is told once.
func (t *Tracing) Run(ctx context.Context) error {
	endpoint := t.conf.Endpoint
	if endpoint == "" {
		endpoint = DefaultEndpoint
	}
	exporter, err := otlptracegrpc.New(context.WithoutCancel(ctx), otlptracegrpc.WithEndpoint(endpoint),
		otlptracegrpc.WithInsecure(),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}), // spans are no worth to wait for
		otlptracegrpc.WithDialOption(
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, Jitter: 0.2,
					MaxDelay: 30 * time.Second}, MinConnectTimeout: 5 * time.Second})))
	if err != nil {
		return fmt.Errorf("send traces to %s: %w", endpoint, err)
	}
	t.provider.RegisterSpanProcessor(
		sdktrace.NewBatchSpanProcessor(&teller{SpanExporter: exporter, endpoint: endpoint, log: t.conf.Log}))
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	if err := t.provider.Shutdown(ending); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.conf.Log.V(2).Info("Traces are lost at the end", "err", err)
	}
	return nil
}

// teller tells once that spans can't be sent, and once that they can be again. Its caller would tell of each batch.
type teller struct {
	sdktrace.SpanExporter
	endpoint string
	log      logr.Logger
	away     atomic.Bool
}

// ExportSpans implements sdktrace.SpanExporter.
func (t *teller) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := t.SpanExporter.ExportSpans(ctx, spans)
	switch was := t.away.Swap(err != nil); {
	case err != nil && !was:
		t.log.Info("Traces can't be sent to the collector; they are dropped until they can be (tracing.endpoint)",
			"address", t.endpoint, "err", err)
	case err == nil && was:
		t.log.Info("Traces are sent to the collector again", "address", t.endpoint)
	}
	return nil
}
