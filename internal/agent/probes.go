package agent

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
)

// execer offers the runtime's exec to probes and hooks.
type execer struct{ conn *cri.Conn }

func (e execer) ExecSync(ctx context.Context, id string, cmd []string,
	timeout time.Duration) (stdout, stderr []byte, exitCode int, err error) {
	r, err := e.conn.ExecSync(ctx, id, cmd, timeout)
	switch {
	case cri.IsExecTimeout(err):
		err = fmt.Errorf("%w: %w", handler.ErrTimeout, err)
	case cri.IsExecUnanswered(err):
		err = fmt.Errorf("%w: %w", handler.ErrNoAnswer, err)
	case cri.IsExecTooMuchOutput(err):
		err = fmt.Errorf("%w: %w", handler.ErrTooMuchOutput, err)
	}
	return r.Stdout, r.Stderr, r.ExitCode, err
}

// Answers asks for what the container uses: containerd asks the container's shim for that, which another question to it
// wouldn't reach, and reading it needs nothing of the container's processes. The runtime need not know the figures: any
// error of its own is an answer.
func (e execer) Answers(ctx context.Context, id string) error {
	_, err := e.conn.ContainerStats(ctx, id)
	if cri.IsAnswer(err) {
		return nil
	}
	return err
}

// frozen returns what reports whether a container's processes are frozen, and not by the runtime for a checkpoint: that
// ends, and killing the container meanwhile would spoil both.
func frozen(groups *cgroup.Manager, runtime *cri.Conn) func(context.Context, handler.Target) bool {
	return func(ctx context.Context, t handler.Target) bool {
		return t.Pod != nil && !runtime.Checkpointing(t.ID) && groups.Frozen(ctx, t.Pod.UID, t.ID)
	}
}

// probeMeter offers the probes' metrics to their manager.
type probeMeter struct{ *metrics.Probes }

func (m probeMeter) Tried(p *v1.Pod, container string, kind pod.ProbeKind, state handler.State, took time.Duration) {
	result := metrics.ProbeSuccessful
	switch state {
	case handler.Failure:
		result = metrics.ProbeFailed
	case handler.Unknown:
		result = metrics.ProbeUnknown
	}
	m.Probes.Tried(p, container, kind, result, took)
}
