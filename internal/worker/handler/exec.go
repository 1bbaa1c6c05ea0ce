package handler

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// answerWithin limits the check whether the runtime is alive, after it didn't answer a command.
const answerWithin = 5 * time.Second

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
		// The exit code is unknown. Failure is the safer outcome: otherwise a probe whose command prints too much could
		// never fail.
		return failure(ErrTooMuchOutput.Error())
	case err != nil:
		return h.notRun(ctx, t, cmd, timeout, err)
	case code != 0:
		return Outcome{State: Failure, Message: text(exited(cmd, code)), Output: text(output)}
	}
	return Outcome{State: Success}
}

// notRun is the outcome of a probe command that the runtime didn't run. If the runtime hangs or is away, that says
// nothing about the container (kubernetes/kubernetes#45419). A frozen container is a failure: its processes don't run,
// although the error only says that the runtime refused to run a command in it. If the runtime is alive and the
// command's timeout has passed, the command itself can't be ended, which is a failure, too.
func (h *Handlers) notRun(ctx context.Context, t Target, cmd command, timeout time.Duration, err error) Outcome {
	if h.frozen != nil && h.frozen(ctx, t) {
		return failure(fmt.Sprintf("the container is frozen: its processes don't run, nor does %s", cmd))
	}
	if !errors.Is(err, ErrNoAnswer) {
		return unknown(err)
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if h.answers == nil || h.answers(ctx, t.ID) != nil {
		return unknown(err)
	}
	return failure(timedOut(cmd, timeout))
}

// hookExec sets no timeout: the runtime would kill a command that may run until its container is killed.
func (h *Handlers) hookExec(ctx context.Context, t Target, action *v1.ExecAction) error {
	cmd := plain(action.Command)
	_, code, err := h.run(ctx, t.ID, cmd, 0)
	if err == nil && code != 0 {
		return errors.New(text(exited(cmd, code)))
	}
	return err
}

// run runs cmd and returns its output if it failed. The error wraps ErrTimeout if the command took too long,
// ErrNoAnswer if the runtime doesn't answer, and ErrTooMuchOutput if the command printed too much. No error contains
// the values of variables.
func (h *Handlers) run(ctx context.Context, id string, cmd command,
	timeout time.Duration) (output string, code int, err error) {
	stdout, stderr, code, err := h.exec.ExecSync(ctx, id, cmd.args, timeout)
	if err == nil {
		if code == 0 {
			return "", 0, nil
		}
		return combined(stdout, stderr), code, nil
	}
	for _, known := range []error{ErrTimeout, ErrNoAnswer, ErrTooMuchOutput} {
		if errors.Is(err, known) {
			return "", 0, fmt.Errorf("run %s in the container: %w", cmd, known)
		}
	}
	if concealed := cmd.conceal(err.Error()); concealed != err.Error() {
		err = errors.New(concealed)
	}
	return "", 0, fmt.Errorf("run %s in the container: %w", cmd, err)
}

// combined is the output for messages: standard output, then standard error.
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
