package agent

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
)

// execer adapts the runtime's ExecSync to the interface of probes and hooks.
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

// Answers requests the container's statistics to check whether its shim still responds: containerd forwards this
// request to the shim, and needs none of the container's processes for it. Any answer counts, also an error of the
// runtime itself, such as missing statistics.
func (e execer) Answers(ctx context.Context, id string) error {
	_, err := e.conn.ContainerStats(ctx, id)
	if cri.IsAnswer(err) {
		return nil
	}
	return err
}

// frozen returns a function that reports whether a container's processes are frozen, unless the runtime has frozen
// them for a checkpoint. A checkpoint ends by itself; killing the container during it would spoil both.
func frozen(groups *tree.Tree, runtime *cri.Conn) func(context.Context, handler.Target) bool {
	return func(ctx context.Context, t handler.Target) bool {
		return t.Pod != nil && !runtime.Checkpointing(t.ID) && groups.Frozen(ctx, t.Pod.UID, t.ID)
	}
}

// probeMeter adapts the metrics to the interface of the probe manager.
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
