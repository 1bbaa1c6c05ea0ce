package agent

import (
	"context"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/tracing"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// traces are the agent's traces; Tracing is nil unless the configuration enables them.
type traces struct{ *tracing.Tracing }

func newTracing(cfg *config.Config, log logr.Logger) traces {
	c := cfg.Kubelet.Tracing
	if c == nil {
		return traces{}
	}
	return traces{tracing.New(
		tracing.Config{Endpoint: ptr.Deref(c.Endpoint, ""), PerMillion: ptr.Deref(c.SamplingRatePerMillion, 0),
			Node: cfg.NodeName, Log: log.WithName("tracing")})}
}

// provider returns the provider of tracers; nil if tracing is off.
func (t traces) provider() trace.TracerProvider {
	if t.Tracing == nil {
		return nil
	}
	return t.Provider()
}

// actions wraps the executor so that each action on a pod has a span.
func (t traces) actions(to worker.Executor) worker.Executor {
	if t.Tracing == nil {
		return to
	}
	return tracedActions{to, t.Provider().Tracer("github.com/deckhand-node/deckhand/internal/worker")}
}

type tracedActions struct {
	worker.Executor
	spans trace.Tracer
}

// Do implements worker.Executor.
func (t tracedActions) Do(ctx context.Context, d *pod.Desired, o *pod.Observed, uid types.UID,
	a pod.Action) pod.Result {
	about := []attribute.KeyValue{attribute.String("k8s.pod.uid", string(uid)),
		attribute.String("action", string(a.Kind))}
	if d != nil {
		about = append(about, attribute.String("k8s.pod.name", d.Pod.Name),
			attribute.String("k8s.namespace.name", d.Pod.Namespace))
	}
	if a.Container != "" {
		about = append(about, attribute.String("k8s.container.name", a.Container))
	}
	ctx, span := t.spans.Start(ctx, "syncPod", trace.WithAttributes(about...))
	defer span.End()
	r := t.Executor.Do(ctx, d, o, uid, a)
	if r.Failure != nil {
		span.SetStatus(codes.Error, string(r.Failure.Reason)) // the message is only logged
	}
	return r
}
