// Package handler carries out one try of a probe or one lifecycle hook: a command in the
// container, an HTTP GET request, a TCP connection, a gRPC health check, or a sleep. When to
// try, and what follows from an outcome, is decided elsewhere.
//
// Connections serve one try each. The HTTP client is written for that: it bounds all that a
// server can send.
package handler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// kubernetesVersion is the one whose behaviour this follows; servers get it in User-Agent.
const kubernetesVersion = "1.36"

// maxText bounds every message, in bytes: output and answers come from containers.
const maxText = 10 << 10

// defaultTimeout is that of a probe without one (v1.Probe.timeoutSeconds).
const defaultTimeout = time.Second

// ErrTimeout is what an Execer's error wraps if the runtime aborted the command
// at its timeout.
var ErrTimeout = errors.New("the command's time is over")

// ErrNoAnswer is what an Execer's error wraps if the runtime said nothing in the command's time, and some seconds more.
// Whether the command ran isn't known.
var ErrNoAnswer = errors.New("the container runtime doesn't answer")

// ErrTooMuchOutput is what an Execer's error wraps if the command printed more than
// the runtime returns, so that its exit code isn't known.
var ErrTooMuchOutput = errors.New("the command printed more than 16 MiB")

// Execer runs a command in container id and waits for it. A command that ends with
// a code other than 0 is no error. timeout 0 means none; an error for a command that
// took longer wraps ErrTimeout, for one that printed too much ErrTooMuchOutput, and ErrNoAnswer where the runtime
// is silent some seconds after the timeout. It returns soon after ctx ends.
type Execer interface {
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int,
		err error)
}

// Target is the running container that a probe or hook is about.
type Target struct {
	// Pod is named in the log only; nil if it isn't known.
	Pod *v1.Pod
	// Container gives named ports and variables for probes' commands; nil for a pod
	// whose spec is gone: then Ports give the named ports.
	Container *v1.Container
	Ports     []v1.ContainerPort
	// ID is the runtime's, without a prefix.
	ID string
	// PodIP is where to connect to unless a handler names another host: the pod's
	// first address, which on the host's network is the host's.
	PodIP string
}

// State is the kind of a try's outcome.
type State string

const (
	Success State = "Success"
	Failure State = "Failure"
	// Warning counts as a success, with a ProbeWarning event that has Message.
	Warning State = "Warning"
	// Unknown says nothing about the container: the try couldn't be made, or was cancelled.
	Unknown State = "Unknown"
)

// Outcome is that of one try of a probe.
type Outcome struct {
	State State
	// Message says what happened, without anything that the container printed or answered; empty
	// for Success. It is valid UTF-8 of at most 10 KiB, as is Output.
	Message string
	// Output is what the event says in place of Message, if it isn't empty: it has what the container printed or
	// answered. That may be a secret, so nothing else has it.
	Output string
}

// Config is what Handlers need.
type Config struct {
	Exec Execer
	// Frozen reports whether the container's processes are frozen. It may be nil.
	Frozen func(context.Context, Target) bool
	// Answers asks the runtime, and its part that looks after the container, something that both have to answer. It may
	// be nil.
	Answers func(ctx context.Context, id string) error
	// SleepCut is called when a hook's sleep is cut short; it may be nil.
	SleepCut func()
	Log      logr.Logger
}

// Handlers carries out probes and hooks. It may be used by any number of goroutines.
type Handlers struct {
	exec     Execer
	frozen   func(context.Context, Target) bool
	answers  func(ctx context.Context, id string) error
	sleepCut func()
	log      logr.Logger
	http     httpClient
}

// New returns Handlers.
func New(c Config) *Handlers {
	return &Handlers{exec: c.Exec, frozen: c.Frozen, answers: c.Answers, sleepCut: c.SleepCut, log: c.Log}
}

// Probe tries probe once and returns within its timeoutSeconds, or as soon as ctx ends, with Unknown. A command takes
// longer where the runtime is slow to start or to end it.
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

// Hook runs a lifecycle hook until it is done or ctx ends. The error's text is for the events
// FailedPostStartHook and FailedPreStopHook. It has nothing of what the hook printed, which may be a secret.
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
		// The API's comment: "hooks will fail at runtime when it is specified".
		return errors.New("tcpSocket isn't supported as a lifecycle hook: use exec, httpGet or sleep")
	default:
		return errors.New("the hook has no handler: give it exec, httpGet or sleep")
	}
}

// sleep waits for so many seconds (KEP-3960; 0 by KEP-4818).
func sleep(ctx context.Context, seconds int64) error {
	if seconds <= 0 {
		return nil
	}
	timer := time.NewTimer(pod.Seconds(seconds))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sleep of %d s was cut short: %w", seconds, ctx.Err())
	}
}

func failure(message string) Outcome { return Outcome{State: Failure, Message: text(message)} }

func unknown(err error) Outcome { return Outcome{State: Unknown, Message: text(err.Error())} }

// text bounds what goes into events and status, and makes it valid UTF-8.
func text(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "")
}

// podName is for the log.
