package handler

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// answerWithin is how long a runtime that gave no answer to a command may take to say that it is alive.
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
		// How it ended isn't known: a probe that nobody could ever fail is worse than one that fails.
		return failure(ErrTooMuchOutput.Error())
	case err != nil:
		return h.notRun(ctx, t, cmd, timeout, err)
	case code != 0:
		return Outcome{State: Failure, Message: text(exited(cmd, code)), Output: text(output)}
	}
	return Outcome{State: Success}
}

// notRun is the outcome of a probe whose command the runtime didn't carry out. A runtime that is hung or away says
// nothing of the container (kubernetes/kubernetes#45419). A container that is frozen does: it answers nobody, though
// runtimes refuse to run a command in it. And where the runtime is alive and the command had all its time, it is the
// command that can't be ended.
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

// hookExec sets no time: the runtime would kill a command that may go on until its container is killed.
func (h *Handlers) hookExec(ctx context.Context, t Target, action *v1.ExecAction) error {
	cmd := plain(action.Command)
	_, code, err := h.run(ctx, t.ID, cmd, 0)
	if err == nil && code != 0 {
		return errors.New(text(exited(cmd, code)))
	}
	return err
}

// run runs cmd and returns what it wrote. The error of a command that took too long wraps ErrTimeout, that of one
// that the runtime doesn't answer ErrNoAnswer, and that of one that printed too much ErrTooMuchOutput. No error
// contains the values of variables.
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
	if said := cmd.conceal(err.Error()); said != err.Error() {
		err = errors.New(said)
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
