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

// ExecOutputLimit is how many bytes of each output stream ExecSync keeps.
// The kubelet keeps 10 KiB of a probe's output.
const ExecOutputLimit = 16 << 10

// execAnswerLimit is how large an answer may be: what containerd and CRI-O send at most.
const execAnswerLimit = 16 << 20

// execReceivers is how many answers may come in at once: each may take
// execAnswerLimit of memory, and milliseconds.
const execReceivers = 2

// execWindow is how much of an answer a runtime may send before it is its turn to
// come in (the least that gRPC takes).
const execWindow = 64 << 10

// execSlack is what starting the command and killing it may take beyond its
// timeout. containerd counts the timeout from the command's start, and then waits
// until nobody holds the output any more: a child that the command left behind,
// which isn't killed, would hold up the answer for as long as it lives.
const execSlack = 10 * time.Second

var (
	errExecTimeout    = errors.New("the command's time is over")
	errExecUnanswered = errors.New("the runtime doesn't answer")
	errExecOutput     = errors.New("the command printed more than 16 MiB")
)

// ExecResult is what a command in a container came to.
type ExecResult struct {
	// Stdout and Stderr are the beginnings, of at most ExecOutputLimit bytes.
	Stdout, Stderr []byte
	ExitCode       int
}

// ExecSync runs a command in a container and waits for it, and for everybody to
// whom it gave its output. A command that ends with a code other than 0 is a
// result, not an error; one that prints more than 16 MiB is an error, since
// neither side takes so large a message (IsExecTooMuchOutput). timeout counts in whole
// seconds, rounded up; 0 means none. See IsExecTimeout and IsExecUnanswered. Processes that the command
// started may outlive the call. However many calls there are, and whatever their
// commands print, they take little more memory than two of the largest answers.
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

// execError recognises what became of the command in the runtime's answer to a call. An answer that arrives as ctx
// ends is one.
func execError(ctx context.Context, err error, timeout, took time.Duration) error {
	if err != nil && ctx.Err() != nil && timeout > 0 && took > timeout {
		return fmt.Errorf("%w (the command may take %s)", errExecUnanswered, timeout)
	}
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		// Before that, it is the time of something else: the runtime's own calls have deadlines, too.
		if took >= timeout {
			return fmt.Errorf("%w (%s)", errExecTimeout, timeout)
		}
	case codes.ResourceExhausted:
		// gRPC has no other sign; the runtime itself may run out of other things.
		if strings.Contains(err.Error(), "message larger than max") {
			return errExecOutput
		}
	}
	return err
}

// execService is a connection for ExecSync alone. cri-client's call would take
// several times the memory of all that a command printed, for each call.
type execService struct{ conn *grpc.ClientConn }

// dialExec returns a connection that is made with the first call.
func dialExec(endpoint string, tracer trace.TracerProvider) func(context.Context) (*execService, error) {
	return func(context.Context) (*execService, error) {
		// A window of fixed size: it would grow by itself to where all answers fit in at once.
		conn, err := connect(endpoint, append(traced(tracer), grpc.WithStaticStreamWindowSize(execWindow))...)
		if err != nil {
			return nil, err
		}
		return &execService{conn}, nil
	}
}

// Close implements service.
func (s *execService) Close(context.Context) error { return s.conn.Close() }

// execSync makes the call as a stream of one message each way, which on the wire is
// the same: so it can wait for the command without taking in the answer, and for
// one of the slots of receivers before it does.
func (s *execService) execSync(ctx context.Context, request *runtimeapi.ExecSyncRequest,
	receivers chan struct{}) (out ExecResult, err error) {
	ctx, cancel := context.WithCancel(ctx) // gives the stream up wherever this returns
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
	// The answer's headers come with its beginning. If there are none, RecvMsg says why.
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
