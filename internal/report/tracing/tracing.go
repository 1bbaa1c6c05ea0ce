// Package tracing exports traces to an OpenTelemetry collector, as the kubelet does (KEP-2831). It traces requests to
// the HTTPS server, pod syncs, and the calls to the container runtime during both.
package tracing

import (
	"cmp"
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

// DefaultEndpoint is the default address of a collector for OTLP over gRPC.
const DefaultEndpoint = "localhost:4317"

// lastWords is the timeout for the export of the remaining spans when the agent ends.
const lastWords = time.Second

// Config configures a Tracing.
type Config struct {
	// Endpoint is the collector's address in gRPC's syntax; empty for DefaultEndpoint.
	Endpoint string
	// PerMillion is the sampling rate of traces that no caller has started: traces per million.
	PerMillion int32
	// Node is the node's name.
	Node string
	Log  logr.Logger
}

// Tracing collects spans, and exports them while it runs.
type Tracing struct {
	conf     Config
	provider *sdktrace.TracerProvider
}

// New returns a Tracing that drops spans until Run.
func New(c Config) *Tracing {
	of := resource.NewSchemaless(attribute.String("service.name", "kubelet"), attribute.String("host.name", c.Node))
	// With a rate of 0 the agent starts no traces of its own (TracingConfiguration.samplingRatePerMillion).
	own := sdktrace.TraceIDRatioBased(float64(c.PerMillion) / 1_000_000)
	return &Tracing{conf: c,
		provider: sdktrace.NewTracerProvider(sdktrace.WithResource(of),
			sdktrace.WithSampler(sdktrace.ParentBased(own)))}
}

// Provider returns the provider of tracers.
func (t *Tracing) Provider() trace.TracerProvider { return t.provider }

// Run exports spans in batches until ctx ends, and then the remaining ones. While the collector is unreachable, spans
// are dropped, which is logged once.
func (t *Tracing) Run(ctx context.Context) error {
	endpoint := cmp.Or(t.conf.Endpoint, DefaultEndpoint)
	exporter, err := otlptracegrpc.New(context.WithoutCancel(ctx), otlptracegrpc.WithEndpoint(endpoint),
		otlptracegrpc.WithInsecure(),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}), // failed spans are dropped, not retried
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

// teller logs once that the export fails, and once that it works again. Without it, the SDK would log each failed
// batch.
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
