package cri

import (
	"bytes"
	"context"
	"errors"
	"time"

	utilexec "k8s.io/utils/exec"
)

// ExecOutputLimit is how many bytes of each output stream ExecSync keeps.
// The kubelet keeps 10 KiB of a probe's output.
const ExecOutputLimit = 16 << 10

// execSlack is what starting the command and killing it may take beyond its
// timeout. containerd counts the timeout from the command's start, and then waits
// until nobody holds the output any more: a child that the command left behind,
// which isn't killed, would hold up the answer for as long as it lives.
const execSlack = 10 * time.Second

// ExecResult is what a command in a container came to.
type ExecResult struct {
	// Stdout and Stderr are the beginnings, of at most ExecOutputLimit bytes.
	Stdout, Stderr []byte
	ExitCode       int
}

// ExecSync runs a command in a container and waits for it, and for everybody to
// whom it gave its output. A command that ends with a code other than 0 is a
// result, not an error; one that prints more than 16 MiB is an error, since
// neither side takes so large a message. timeout counts in whole seconds, rounded up;
// 0 means none. See IsExecTimeout. Processes that the command started may outlive the call.
func (c *Conn) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (out ExecResult, err error) {
	timeout = time.Duration(wholeSeconds(timeout)) * time.Second
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout+execSlack)
		defer cancel()
	}
	err = call(ctx, c, c.runtime, "exec_sync", id, func(ctx context.Context, s rt) error {
		stdout, stderr, err := s.ExecSync(ctx, id, cmd, timeout)
		out.Stdout, out.Stderr = beginning(stdout), beginning(stderr)
		var exit utilexec.CodeExitError
		if errors.As(err, &exit) {
			out.ExitCode = exit.Code
			return nil
		}
		return err
	})
	return out, err
}

// beginning doesn't keep the rest in memory either.
func beginning(output []byte) []byte {
	if len(output) <= ExecOutputLimit {
		return output
	}
	return bytes.Clone(output[:ExecOutputLimit])
}
