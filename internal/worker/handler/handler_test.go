package handler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// execer is a runtime that runs no command.
type execer func(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr string, code int, err error)

func (f execer) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) ([]byte, []byte, int, error) {
	stdout, stderr, code, err := f(ctx, id, cmd, timeout)
	return []byte(stdout), []byte(stderr), code, err
}

func handlers(f execer) *Handlers {
	return New(Config{Exec: f, Log: logr.Discard()})
}

// local is a container on this host's loopback whose port "web" is that of address.
func local(t *testing.T, address string) Target {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return Target{
		Container: &v1.Container{Name: "c", Ports: []v1.ContainerPort{{Name: "other", ContainerPort: 1}, {Name: "web", ContainerPort: int32(port)}}},
		ID:        "abc", PodIP: "127.0.0.1",
	}
}

func execProbe(cmd ...string) *v1.Probe {
	return &v1.Probe{TimeoutSeconds: 3, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: cmd}}}
}

// want compares an outcome, whose event has to contain part of a text.
func want(t *testing.T, o Outcome, state State, message string) {
	t.Helper()
	if said := cmp.Or(o.Output, o.Message); o.State != state || !strings.Contains(said, message) || (message == "") != (said == "") {
		t.Errorf("got %s %q, want %s with %q", o.State, said, state, message)
	}
}

func TestExecProbe(t *testing.T) {
	for name, c := range map[string]struct {
		stdout, stderr string
		code           int
		err            error
		state          State
		said, message  string
	}{
		"success":       {stdout: "fine", state: Success},
		"failure":       {stdout: "out\n", stderr: "err\n", code: 3, state: Failure, said: "out\nerr\n", message: `command "true $x" exited with 3`},
		"silent":        {code: 3, state: Failure, message: `command "true $x" exited with 3`},
		"runtime error": {err: errors.New("no such container"), state: Unknown, message: `run "true $x" in the container: no such container`},
		"no process": {err: errors.New("unable to spawn stage-1: Resource temporarily unavailable"), state: Unknown,
			message: `run "true $x" in the container: unable to spawn stage-1: Resource temporarily unavailable`},
		"too long": {err: fmt.Errorf("rpc: %w", ErrTimeout), state: Failure,
			message: `command timed out: "true $x" timed out after 3s`},
		"unanswered": {err: fmt.Errorf("rpc: %w", ErrNoAnswer), state: Unknown, message: `run "true $x" in the container: the container runtime doesn't answer`},
		"too much":   {err: fmt.Errorf("rpc: %w", ErrTooMuchOutput), state: Failure, message: "the command printed more than 16 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			h := handlers(func(_ context.Context, id string, cmd []string, timeout time.Duration) (string, string, int, error) {
				if id != "abc" || len(cmd) != 2 || timeout != 3*time.Second {
					t.Errorf("asked for %v in %s within %s", cmd, id, timeout)
				}
				return c.stdout, c.stderr, c.code, c.err
			})
			o := h.Probe(t.Context(), Target{ID: "abc"}, execProbe("true", "$x"))
			want(t, o, c.state, cmp.Or(c.said, c.message))
			if o.Message != c.message {
				t.Errorf("the message is %q, want %q", o.Message, c.message)
			}
		})
	}
}

func TestExecOutputIsBounded(t *testing.T) {
	for _, c := range []struct{ stdout, stderr string }{
		{strings.Repeat("é", 20<<10), "x"},
		{"x", strings.Repeat("é", 20<<10)},
		{"x\xff\xfe", strings.Repeat("y", 20<<10)},
	} {
		h := handlers(func(context.Context, string, []string, time.Duration) (string, string, int, error) {
			return c.stdout, c.stderr, 1, nil
		})
		o := h.Probe(t.Context(), Target{}, execProbe("x"))
		if n := len(o.Output); n > 10<<10 || n < 10<<10-4 || !utf8.ValidString(o.Output) {
			t.Errorf("output of %d bytes, valid: %v", n, utf8.ValidString(o.Output))
		}
	}
}

func TestVariablesInProbesCommand(t *testing.T) {
	var got []string
	h := handlers(func(_ context.Context, _ string, cmd []string, _ time.Duration) (string, string, int, error) {
		got = cmd
		return "", "", 0, nil
	})
	target := Target{Container: &v1.Container{Env: []v1.EnvVar{
		{Name: "A", Value: "first"}, {Name: "A", Value: "last"}, {Name: "SECRET", ValueFrom: &v1.EnvVarSource{}},
	}}}
	cmd := []string{"x", "$(A)", "$$(A)", "$(SECRET)", "$(NONE)"}
	h.Probe(t.Context(), target, execProbe(cmd...))
	if want := "[x last $(A) $(SECRET) $(NONE)]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := h.Hook(t.Context(), target, &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: cmd}}); err != nil || fmt.Sprint(got) != fmt.Sprint(cmd) {
		t.Errorf("hook: got %v, %v", got, err)
	}
	target.Container.Env[1].Value = strings.Repeat("x", 100<<10)
	o := h.Probe(t.Context(), target, execProbe("x", "$(A)$(A)"))
	want(t, o, Unknown, "argument 1 of the probe's command is longer")
}

// A probe whose command the runtime doesn't carry out says nothing of the container, unless that is frozen, or the
// runtime is alive: then the command is what hangs.
func TestExecProbeThatTheRuntimeDoesntCarryOut(t *testing.T) {
	away := errors.New("connection refused")
	silent := fmt.Errorf("rpc: %w", ErrNoAnswer)
	for name, c := range map[string]struct {
		err     error
		frozen  bool
		answers error
		state   State
		message string
	}{
		"away":               {away, false, nil, Unknown, "connection refused"},
		"hung":               {silent, false, away, Unknown, "the container runtime doesn't answer"},
		"hung while asked":   {silent, false, context.DeadlineExceeded, Unknown, "the container runtime doesn't answer"},
		"the command hangs":  {silent, false, nil, Failure, `command timed out: "x" timed out after 3s`},
		"frozen and refused": {errors.New("cannot exec in a paused container"), true, nil, Failure, `the container is frozen: its processes don't run, nor does "x"`},
		"frozen and silent":  {silent, true, away, Failure, "the container is frozen"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := New(Config{Log: logr.Discard(),
					Exec: execer(func(context.Context, string, []string, time.Duration) (string, string, int, error) {
						return "", "", 0, c.err
					}),
					Frozen: func(_ context.Context, t Target) bool { return c.frozen && t.ID == "abc" },
					Answers: func(ctx context.Context, id string) error {
						if errors.Is(c.answers, context.DeadlineExceeded) {
							<-ctx.Done()
							return ctx.Err()
						}
						return c.answers
					}})
				began := time.Now()
				want(t, h.Probe(t.Context(), Target{ID: "abc"}, execProbe("x")), c.state, c.message)
				if took := time.Since(began); took > answerWithin {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}

// A hook has no time of its own: it ends with its context.
func TestHookWhileTheRuntimeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handlers(func(ctx context.Context, _ string, _ []string, _ time.Duration) (string, string, int, error) {
			<-ctx.Done()
			return "", "", 0, ctx.Err()
		})
		began := time.Now()
		hook := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}
		hooked, gone := context.WithCancel(t.Context())
		time.AfterFunc(time.Hour, gone)
		if err := h.Hook(hooked, Target{}, hook); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Hour {
			t.Errorf("took %s", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		want(t, h.Probe(ctx, Target{}, execProbe("x")), Unknown, "cancelled: context canceled")
	})
}

func TestNoHandler(t *testing.T) {
	h := handlers(nil)
	want(t, h.Probe(t.Context(), Target{}, &v1.Probe{}), Unknown, "no handler")
	for _, c := range []struct {
		hook *v1.LifecycleHandler
		part string
	}{
		{&v1.LifecycleHandler{}, "no handler"},
		{&v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(1)}}, "tcpSocket isn't supported"},
	} {
		if err := h.Hook(t.Context(), Target{}, c.hook); err == nil || !strings.Contains(err.Error(), c.part) {
			t.Errorf("got %v, want %q", err, c.part)
		}
	}
}

func TestExecHook(t *testing.T) {
	for name, c := range map[string]struct {
		code int
		err  error
		want string
	}{
		"done":          {},
		"exits":         {code: 2, want: `command "x" exited with 2`},
		"runtime error": {err: errors.New("gone"), want: `run "x" in the container: gone`},
		"too much":      {err: fmt.Errorf("rpc: %w", ErrTooMuchOutput), want: `run "x" in the container: the command printed more than 16 MiB`},
	} {
		t.Run(name, func(t *testing.T) {
			h := handlers(func(_ context.Context, _ string, _ []string, timeout time.Duration) (string, string, int, error) {
				if timeout != 0 {
					t.Errorf("timeout %s", timeout)
				}
				return "SECRET-CANARY", "SECRET-CANARY", c.code, c.err
			})
			err := h.Hook(t.Context(), Target{ID: "abc"}, &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"x"}}})
			if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestSleep(t *testing.T) {
	for name, c := range map[string]struct {
		seconds     int64
		cancel, end time.Duration
		want        string
	}{
		"none":      {seconds: 0},
		"negative":  {seconds: -1},
		"some":      {seconds: 5, end: 5 * time.Second},
		"cancelled": {seconds: 5, cancel: time.Second, end: time.Second, want: "cut short: context canceled"},
		"for ever":  {seconds: 1 << 62, cancel: time.Hour, end: time.Hour, want: "cut short: context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				began := time.Now()
				err := handlers(nil).Hook(ctx, Target{}, &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: c.seconds}})
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if took := time.Since(began); took != c.end {
					t.Errorf("took %s, want %s", took, c.end)
				}
			})
		})
	}
}
