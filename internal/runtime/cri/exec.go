package cri

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// ExecOutputLimit is the maximum number of bytes of each output stream that ExecSync returns. The kubelet keeps 10
// KiB of a probe's output.
const ExecOutputLimit = 16 << 10

// execAnswerLimit is the maximum size of an answer; containerd and CRI-O send no more.
const execAnswerLimit = 16 << 20

// execReceivers is the number of answers that are received at the same time. Each takes up to execAnswerLimit of
// memory, and some milliseconds.
const execReceivers = 2

// execWindow is the number of bytes of an answer that the runtime may send before the call has a slot of receivers.
// It is the smallest flow-control window that gRPC supports.
const execWindow = 64 << 10

// execSlack is how much longer than its timeout a call may take, because starting and killing the command also take
// time. containerd's timeout starts with the command. After it, containerd waits until no process has the output
// open: a child process that the command left behind isn't killed, and would delay the answer until it exits.
const execSlack = 10 * time.Second

var (
	errExecTimeout    = errors.New("the command's time is over")
	errExecUnanswered = errors.New("the runtime doesn't answer")
	errExecOutput     = errors.New("the command printed more than 16 MiB")
)

// ExecResult is the result of a command in a container.
type ExecResult struct {
	// Stdout and Stderr are the first bytes of the output, at most ExecOutputLimit.
	Stdout, Stderr []byte
	ExitCode       int
}

// ExecSync runs a command in a container and waits until it and all processes that inherited its output have ended.
// An exit code other than 0 is a result, not an error; more than 16 MiB of output is an error, because neither side
// supports larger messages (IsExecTooMuchOutput). timeout is rounded up to seconds; 0 means none. See IsExecTimeout
// and IsExecUnanswered. Processes that the command started may outlive the call. Concurrent calls together take
// little more memory than two of the largest answers.
func (c *Conn) ExecSync(ctx context.Context, id string, cmd []string,
	timeout time.Duration) (out ExecResult, err error) {
	seconds := wholeSeconds(timeout)
	timeout = pod.Seconds(seconds)
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout+execSlack)
		defer cancel()
	}
	request := &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: seconds}
	begun := time.Now()
	err = call(ctx, c, c.exec, "exec_sync", id, func(ctx context.Context, s *execService) error {
		out, err = s.execSync(ctx, request, c.receivers)
		return execError(ctx, err, timeout, time.Since(begun))
	})
	return out, err
}

// execError classifies the error of an ExecSync call; took is the duration of the call. A successful answer counts
// even if ctx has ended meanwhile.
func execError(ctx context.Context, err error, timeout, took time.Duration) error {
	if err != nil && ctx.Err() != nil && timeout > 0 && took > timeout {
		return fmt.Errorf("%w (the command may take %s)", errExecUnanswered, timeout)
	}
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		// A DeadlineExceeded before the timeout isn't due to the command: calls that the runtime itself makes have
		// deadlines, too.
		if took >= timeout {
			return fmt.Errorf("%w (%s)", errExecTimeout, timeout)
		}
	case codes.ResourceExhausted:
		// gRPC uses ResourceExhausted for an answer that is too large, but the runtime may return that code for
		// other reasons.
		if strings.Contains(err.Error(), "message larger than max") {
			return errExecOutput
		}
	}
	return err
}

// execService is a separate connection for ExecSync calls and streamed lists. They don't use cri-client, because it
// takes several times the memory of a command's whole output, and collects whole lists.
type execService struct{ conn *grpc.ClientConn }

// dialExec returns a connection that is established by the first call.
func dialExec(endpoint string, tracer trace.TracerProvider) func(context.Context) (*execService, error) {
	return func(context.Context) (*execService, error) {
		// The window is fixed because gRPC would enlarge it until all answers are received at once.
		conn, err := connect(endpoint, append(traced(tracer), grpc.WithStaticStreamWindowSize(execWindow))...)
		if err != nil {
			return nil, err
		}
		return &execService{conn}, nil
	}
}

// Close implements service.
func (s *execService) Close(context.Context) error { return s.conn.Close() }

// execSync makes the unary call as a stream with one message in each direction, which is the same on the wire. A
// stream can wait for the end of the command, and then for a slot of receivers, before it receives the answer.
func (s *execService) execSync(ctx context.Context, request *runtimeapi.ExecSyncRequest,
	receivers chan struct{}) (out ExecResult, err error) {
	ctx, cancel := context.WithCancel(ctx) // cancels the stream on every return
	defer cancel()
	stream, err := s.conn.NewStream(ctx, &grpc.StreamDesc{StreamName: "ExecSync"},
		runtimeapi.RuntimeService_ExecSync_FullMethodName,
		grpc.ForceCodecV2(newExecCodec()), grpc.MaxCallRecvMsgSize(execAnswerLimit))
	if err != nil {
		return out, err
	}
	if err := stream.SendMsg(request); err != nil {
		return out, err
	}
	// The answer's headers arrive with its first bytes. If there are none, RecvMsg returns the error.
	if _, err := stream.Header(); err != nil {
		return out, err
	}
	select {
	case receivers <- struct{}{}:
		defer func() { <-receivers }()
	case <-ctx.Done():
		return out, status.FromContextError(ctx.Err()).Err()
	}
	err = stream.RecvMsg(&out)
	return out, err
}
