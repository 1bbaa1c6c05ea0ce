package agent

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/handler"
	"github.com/deckhand-node/deckhand/internal/metrics"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/probe"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
)

// execer offers the runtime's exec to probes and hooks.
type execer struct{ conn *cri.Conn }

func (e execer) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int, err error) {
	r, err := e.conn.ExecSync(ctx, id, cmd, timeout)
	switch {
	case cri.IsExecTimeout(err):
		err = fmt.Errorf("%w: %w", handler.ErrTimeout, err)
	case cri.IsExecTooMuchOutput(err):
		err = fmt.Errorf("%w: %w", handler.ErrTooMuchOutput, err)
	}
	return r.Stdout, r.Stderr, r.ExitCode, err
}

// tries offers single tries to the probes' manager.
type tries struct{ handlers *handler.Handlers }

func (t tries) Probe(ctx context.Context, to probe.Target, p *v1.Probe) probe.Outcome {
	o := t.handlers.Probe(ctx, handler.Target{Pod: to.Pod, Container: to.Container, ID: to.ID, PodIP: to.PodIP}, p)
	out := probe.Outcome{State: probe.Unknown, Message: o.Message}
	switch o.State {
	case handler.Success:
		out.State = probe.Success
	case handler.Failure:
		out.State = probe.Failure
	case handler.Warning:
		out.State = probe.Warning
	}
	return out
}

// probeMeter offers the probes' metrics to their manager.
type probeMeter struct{ *metrics.Probes }

func (m probeMeter) Tried(p *v1.Pod, container string, kind pod.ProbeKind, state probe.State, took time.Duration) {
	result := metrics.ProbeSuccessful
	switch state {
	case probe.Failure:
		result = metrics.ProbeFailed
	case probe.Unknown:
		result = metrics.ProbeUnknown
	}
	m.Probes.Tried(p, container, kind, result, took)
}
