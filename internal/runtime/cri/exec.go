package cri

import (
	"context"
	"errors"
	"time"

	utilexec "k8s.io/utils/exec"
)

// ExecResult is what a command in a container came to.
type ExecResult struct {
	Stdout, Stderr []byte
	ExitCode       int
}

// ExecSync runs a command in a container and waits for it. A command that ends
// with a code other than 0 is a result, not an error. timeout counts in whole
// seconds, rounded up; 0 means none. See IsExecTimeout.
func (c *Conn) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (out ExecResult, err error) {
	err = call(ctx, c, c.runtime, "exec_sync", id, func(ctx context.Context, s rt) error {
		var err error
		out.Stdout, out.Stderr, err = s.ExecSync(ctx, id, cmd, time.Duration(wholeSeconds(timeout))*time.Second)
		var exit utilexec.CodeExitError
		if errors.As(err, &exit) {
			out.ExitCode = exit.Code
			return nil
		}
		return err
	})
	return out, err
}
