package handler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/translate/env"
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
	case err != nil:
		return unknown(err)
	case code != 0:
		return failure(output)
	}
	return Outcome{State: Success}
}

func (h *Handlers) hookExec(ctx context.Context, t Target, action *v1.ExecAction, timeout time.Duration) error {
	output, code, err := h.run(ctx, t.ID, action.Command, timeout)
	switch {
	case errors.Is(err, ErrTimeout):
		return errors.New(text(timedOut(action.Command, timeout)))
	case err != nil:
		return err
	case code != 0:
		return errors.New(text(fmt.Sprintf("command %s exited with %d: %s", quoted(action.Command), code, output)))
	}
	return nil
}

// run runs cmd and returns what it wrote. The error of a command that took too long
// wraps ErrTimeout, also where the runtime doesn't answer in time.
func (h *Handlers) run(ctx context.Context, id string, cmd []string, timeout time.Duration) (output string, code int, err error) {
	limit := timeout
	if limit > 0 {
		limit += execSlack
	}
	within, cancel := limited(ctx, limit)
	defer cancel()
	stdout, stderr, code, err := h.exec.ExecSync(within, id, cmd, timeout)
	if err != nil {
		if within.Err() != nil && ctx.Err() == nil {
			err = ErrTimeout
		}
		return "", 0, fmt.Errorf("run %s in the container: %w", quoted(cmd), err)
	}
	if code == 0 {
		return "", 0, nil
	}
	return combined(stdout, stderr), code, nil
}

// combined is the output as far as it is told: standard output, then errors.
func combined(stdout, stderr []byte) string {
	if len(stdout) > maxText {
		stdout = stdout[:maxText]
	}
	if room := maxText - len(stdout); len(stderr) > room {
		stderr = stderr[:room]
	}
	return string(stdout) + string(stderr)
}

// expand replaces references to the container's variables in a probe's command. Only
// those with a literal value are known here, and hooks have none replaced at all
// (kubernetes/kubernetes#42273, #129502).
func expand(cmd []string, c *v1.Container) ([]string, error) {
	if c == nil || !strings.Contains(strings.Join(cmd, ""), "$") {
		return cmd, nil
	}
	lookup := func(name string) (string, bool) {
		for i := len(c.Env) - 1; i >= 0; i-- { // of two with a name the last one counts
			if c.Env[i].Name == name {
				return c.Env[i].Value, c.Env[i].ValueFrom == nil
			}
		}
		return "", false
	}
	out := make([]string, len(cmd))
	for i, arg := range cmd {
		var ok bool
		if out[i], ok = env.Expand(arg, lookup); !ok {
			return nil, fmt.Errorf("argument %d of the probe's command is longer than Linux takes, with its references replaced: make it shorter", i)
		}
	}
	return out, nil
}

func timedOut(cmd []string, timeout time.Duration) string {
	return fmt.Sprintf("command timed out: %s timed out after %s", quoted(cmd), timeout)
}

func quoted(cmd []string) string { return fmt.Sprintf("%q", strings.Join(cmd, " ")) }
