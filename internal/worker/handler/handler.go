// Package handler carries out one try of a probe or one lifecycle hook: a command in the container, an HTTP GET
// request, a TCP connection, a gRPC health check, or a sleep. Its callers decide when to try and how to act on an
// outcome.
//
// Each connection serves one try. The HTTP client is written for that, and limits everything that a server can send.
package handler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// kubernetesVersion is the Kubernetes version that this package follows; servers see it in User-Agent.
const kubernetesVersion = "1.36"

// maxText limits every message, in bytes: output and responses come from containers.
const maxText = 10 << 10

// defaultTimeout is the default of v1.Probe.timeoutSeconds.
const defaultTimeout = time.Second

// ErrTimeout is wrapped by an Execer's error if the runtime aborted the command at its timeout.
var ErrTimeout = errors.New("the command's time is over")

// ErrNoAnswer is wrapped by an Execer's error if the runtime didn't answer until some seconds after the command's
// timeout. The command may have run.
var ErrNoAnswer = errors.New("the container runtime doesn't answer")

// ErrTooMuchOutput is wrapped by an Execer's error if the command printed more than the runtime returns, so that its
// exit code is unknown.
var ErrTooMuchOutput = errors.New("the command printed more than 16 MiB")

// Execer runs a command in container id and waits for it. An exit code other than 0 isn't an error. timeout 0 means
// none. An error wraps ErrTimeout if the command took longer, ErrTooMuchOutput if it printed too much, and
// ErrNoAnswer if the runtime is silent until some seconds after the timeout. ExecSync returns soon after ctx is done.
type Execer interface {
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int,
		err error)
}

// Target is the running container of a probe or hook.
type Target struct {
	// Pod is the pod, for the log only; nil if its spec is gone.
	Pod *v1.Pod
	// Container provides named ports, and variables for probes' commands. It is nil if the pod's spec is gone: then
	// Ports provide the named ports.
	Container *v1.Container
	Ports     []v1.ContainerPort
	// ID is the container ID in the runtime, without a prefix.
	ID string
	// PodIP is the default host of handlers: the pod's first address, which in the host network is the host's.
	PodIP string
}

// State is the kind of an Outcome.
type State string

const (
	Success State = "Success"
	Failure State = "Failure"
	// Warning counts as a success, with a ProbeWarning event that has Message.
	Warning State = "Warning"
	// Unknown says nothing about the container: the try wasn't possible, or was cancelled.
	Unknown State = "Unknown"
)

// Outcome is the outcome of one try of a probe.
type Outcome struct {
	State State
	// Message describes the outcome, without any output or response of the container; empty for Success. It is valid
	// UTF-8 of at most 10 KiB, as is Output.
	Message string
	// Output replaces Message in the event, unless it is empty. It includes the container's output or response, which
	// may be a secret, so it is used only in the event.
	Output string
}

// Config is the configuration of Handlers.
type Config struct {
	Exec Execer
	// Frozen reports whether the container's processes are frozen. It may be nil.
	Frozen func(context.Context, Target) bool
	// Answers checks whether the runtime and the container's shim respond. It may be nil.
	Answers func(ctx context.Context, id string) error
	// SleepCut is called when a hook's sleep is cut short; it may be nil.
	SleepCut func()
	Log      logr.Logger
}

// Handlers carries out probes and hooks. It is safe for concurrent use.
type Handlers struct {
	exec     Execer
	frozen   func(context.Context, Target) bool
	answers  func(ctx context.Context, id string) error
	sleepCut func()
	log      logr.Logger
	http     httpClient
}

// New returns the Handlers for a configuration.
func New(c Config) *Handlers {
	return &Handlers{exec: c.Exec, frozen: c.Frozen, answers: c.Answers, sleepCut: c.SleepCut, log: c.Log}
}

// Probe tries probe once. It returns within its timeoutSeconds, or with Unknown as soon as ctx is done. A command
// takes longer if the runtime is slow to start or to end it.
func (h *Handlers) Probe(ctx context.Context, t Target, probe *v1.Probe) Outcome {
	timeout := pod.Seconds(probe.TimeoutSeconds)
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	var o Outcome
	switch {
	case probe.Exec != nil:
		o = h.probeExec(ctx, t, probe.Exec, timeout)
	case probe.HTTPGet != nil:
		o = h.probeHTTP(ctx, t, probe.HTTPGet, timeout)
	case probe.TCPSocket != nil:
		o = probeTCP(ctx, t, probe.TCPSocket, timeout)
	case probe.GRPC != nil:
		o = probeGRPC(ctx, t, probe.GRPC, timeout)
	default:
		o = unknown(errors.New("the probe has no handler: give it exec, httpGet, tcpSocket or grpc"))
	}
	if o.State != Success && ctx.Err() != nil {
		return Outcome{State: Unknown, Message: "cancelled: " + ctx.Err().Error()}
	}
	return o
}

// Hook runs a lifecycle hook until it completes or ctx is done. The error's text is for the events
// FailedPostStartHook and FailedPreStopHook. It contains none of the hook's output, which may be a secret.
func (h *Handlers) Hook(ctx context.Context, t Target, hook *v1.LifecycleHandler) error {
	switch {
	case hook.Exec != nil:
		return h.hookExec(ctx, t, hook.Exec)
	case hook.HTTPGet != nil:
		return h.hookHTTP(ctx, t, hook.HTTPGet)
	case hook.Sleep != nil:
		err := sleep(ctx, hook.Sleep.Seconds)
		if err != nil && h.sleepCut != nil {
			h.sleepCut()
		}
		return err
	case hook.TCPSocket != nil:
		// API comment: "hooks will fail at runtime when it is specified".
		return errors.New("tcpSocket isn't supported as a lifecycle hook: use exec, httpGet or sleep")
	default:
		return errors.New("the hook has no handler: give it exec, httpGet or sleep")
	}
}

// sleep waits for this number of seconds (KEP-3960), which may be 0 (KEP-4818).
func sleep(ctx context.Context, seconds int64) error {
	if seconds <= 0 {
		return nil
	}
	if !wake.Sleep(ctx, pod.Seconds(seconds)) {
		return fmt.Errorf("sleep of %d s was cut short: %w", seconds, ctx.Err())
	}
	return nil
}

func failure(message string) Outcome { return Outcome{State: Failure, Message: text(message)} }

func unknown(err error) Outcome { return Outcome{State: Unknown, Message: text(err.Error())} }

// text limits the length of a string for events and status, and makes it valid UTF-8.
func text(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "")
}
