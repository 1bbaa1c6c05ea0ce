package node

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// maxMessage is the largest message that containerd sends.
const maxMessage = 16 << 20

// ExecFunc returns the result of a command in a container.
type ExecFunc func(container *runtimeapi.ContainerStatus, command []string) ExecResult

// ExecResult is the result of a command in a container.
type ExecResult struct {
	Stdout, Stderr string
	Code           int32
	// Takes is how long the command runs; it is killed at the call's timeout, or when its container ends.
	Takes time.Duration
	// Err is the error of the call itself.
	Err error
}

// ExecSync runs a command in a running container with the function of SetExec. Without one, the command behaves as
// if it were a container's own. Output that exceeds the maximum message size is an error after the command has run.
func (n *Node) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	n.mu.Lock()
	c, err := n.find(r.GetContainerId())
	if err != nil {
		n.mu.Unlock()
		return nil, err
	}
	exec, st, stopped := n.exec, c.status, c.stopped
	n.mu.Unlock()
	if st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, status.Errorf(codes.Unknown, "failed to exec in container: container is in %s state", st.State)
	}
	if exec == nil {
		exec = n.execProgram
	}
	res := exec(st, r.GetCmd())
	if r.GetTimeout() > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, pod.Seconds(r.GetTimeout()))
		defer cancel()
	}
	if res.Takes > 0 {
		select {
		case <-ctx.Done():
			return nil, execTimeout(ctx)
		case <-stopped: // commands end with their container
			return &runtimeapi.ExecSyncResponse{ExitCode: exitKilled}, nil
		case <-time.After(res.Takes):
		}
	}
	if res.Err != nil {
		return nil, res.Err
	}
	if len(res.Stdout)+len(res.Stderr) > maxMessage {
		return nil, status.Errorf(codes.ResourceExhausted,
			"grpc: trying to send message larger than max (%d vs. %d)", len(res.Stdout)+len(res.Stderr), maxMessage)
	}
	return &runtimeapi.ExecSyncResponse{Stdout: []byte(res.Stdout), Stderr: []byte(res.Stderr), ExitCode: res.Code}, nil
}

// execProgram returns the result according to the command's Behaviour.
func (n *Node) execProgram(_ *runtimeapi.ContainerStatus, command []string) ExecResult {
	n.mu.Lock()
	b := n.behaviourOf(&runtimeapi.ContainerConfig{Command: command})
	n.mu.Unlock()
	if b.StartError != "" {
		return ExecResult{Err: status.Errorf(codes.Unknown,
			"failed to exec in container: failed to start exec: %s", b.StartError)}
	}
	var stdout, stderr strings.Builder
	for _, line := range b.Output {
		to := &stdout
		if line.Stderr {
			to = &stderr
		}
		to.WriteString(line.Text + "\n")
	}
	res := ExecResult{Code: b.ExitCode, Takes: b.ExitAfter, Stdout: stdout.String(), Stderr: stderr.String()}
	if !b.Exits {
		res.Takes = Forever
	}
	return res
}

func execTimeout(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return status.Error(codes.DeadlineExceeded,
			"failed to exec in container: timeout exceeded: context deadline exceeded")
	}
	return status.FromContextError(ctx.Err()).Err()
}
