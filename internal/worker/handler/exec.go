package handler

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// execSlack is how much longer than a command's time the runtime is waited for: it
// ends the command and says so.
const execSlack = time.Second

func (h *Handlers) probeExec(ctx context.Context, t Target, action *v1.ExecAction, timeout time.Duration) Outcome {
	cmd, err := expand(action.Command, t.Container)
	if err != nil {
		return unknown(err)
	}
	output, code, err := h.run(ctx, t.ID, cmd, timeout)
	switch {
	case errors.Is(err, ErrTimeout):
		return failure(timedOut(cmd, timeout))
	case errors.Is(err, ErrTooMuchOutput):
		// How it ended isn't known: a probe that nobody could ever fail is worse than one that fails.
		return failure(ErrTooMuchOutput.Error())
	case err != nil:
		return unknown(err)
	case code != 0:
		return Outcome{State: Failure, Message: text(exited(cmd, code)), Output: text(output)}
	}
	return Outcome{State: Success}
}

// hookExec sets no time: the runtime would kill a command that may go on until its container is killed.
func (h *Handlers) hookExec(ctx context.Context, t Target, action *v1.ExecAction) error {
	cmd := plain(action.Command)
	_, code, err := h.run(ctx, t.ID, cmd, 0)
	if err == nil && code != 0 {
		return errors.New(text(exited(cmd, code)))
	}
	return err
}

// run runs cmd and returns what it wrote. The error of a command that took too long
// wraps ErrTimeout, also where the runtime doesn't answer in time, and that of one
// that printed too much ErrTooMuchOutput. No error contains the values of variables.
func (h *Handlers) run(ctx context.Context, id string, cmd command, timeout time.Duration) (output string, code int, err error) {
	within := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, timeout+execSlack)
		defer cancel()
	}
	stdout, stderr, code, err := h.exec.ExecSync(within, id, cmd.args, timeout)
	switch {
	case err == nil && code == 0:
		return "", 0, nil
	case err == nil:
		return combined(stdout, stderr), code, nil
	case within.Err() != nil && ctx.Err() == nil, errors.Is(err, ErrTimeout):
		err = ErrTimeout
	case errors.Is(err, ErrTooMuchOutput):
		err = ErrTooMuchOutput
	default:
		if said := cmd.conceal(err.Error()); said != err.Error() {
			err = errors.New(said)
		}
	}
	return "", 0, fmt.Errorf("run %s in the container: %w", cmd, err)
}

// combined is the output as messages show it: standard output, then errors.
func combined(stdout, stderr []byte) string {
	if len(stdout) > maxText {
		stdout = stdout[:maxText]
	}
	if left := maxText - len(stdout); len(stderr) > left {
		stderr = stderr[:left]
	}
	return string(stdout) + string(stderr)
}

func exited(cmd command, code int) string { return fmt.Sprintf("command %s exited with %d", cmd, code) }

func timedOut(cmd command, timeout time.Duration) string {
	return fmt.Sprintf("command timed out: %s timed out after %s", cmd, timeout)
}
