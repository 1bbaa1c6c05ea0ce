package localtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	"github.com/deckhand-node/deckhand/internal/server"
)

// Process is a process in a container that a test implements. Streams that it doesn't have are nil.
type Process struct {
	// Pod identifies the container, such as "default/web-node1/nginx".
	Pod string
	// Command is nil if the session is attached to the main process.
	Command  []string
	In       io.Reader
	Out, Err io.Writer
	TTY      bool
	Sizes    <-chan remotecommand.TerminalSize
}

// Sessions serves exec and attach like a runtime's streaming server: run returns the exit code, or an error if there
// is no process.
func Sessions(run func(p Process) (code int, err error)) http.Handler {
	return server.Stream(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, pod, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		options, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		protocols := remotecommand.SupportedStreamingProtocols
		if kind == "exec" {
			remotecommand.ServeExec(w, r, container{run}, "", "", pod, r.URL.Query()["command"], options, time.Hour,
				time.Minute, protocols)
		} else {
			remotecommand.ServeAttach(w, r, container{run}, "", "", pod, options, time.Hour, time.Minute, protocols)
		}
	}))
}

type container struct {
	run func(Process) (int, error)
}

// ExecInContainer implements remotecommand.Executor.
func (c container) ExecInContainer(ctx context.Context, _, _, pod string, command []string, in io.Reader, out,
	err io.WriteCloser, tty bool, sizes <-chan remotecommand.TerminalSize, _ time.Duration) error {
	code, failure := c.run(Process{Pod: pod, Command: command, In: in, Out: out, Err: err, TTY: tty, Sizes: sizes})
	if failure == nil && code != 0 {
		failure = exec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: code}
	}
	return failure
}

// AttachContainer implements remotecommand.Attacher.
func (c container) AttachContainer(ctx context.Context, name, uid, pod string, in io.Reader, out, err io.WriteCloser,
	tty bool, sizes <-chan remotecommand.TerminalSize) error {
	_, failure := c.run(Process{Pod: pod, In: in, Out: out, Err: err, TTY: tty, Sizes: sizes})
	return failure
}

// Forwards serves portForward like a runtime's streaming server: carry serves one connection to a port.
func Forwards(carry func(port int32, connection io.ReadWriteCloser) error) http.Handler {
	return server.Stream(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		portforward.ServePortForward(w, r, forwarder{carry}, "", "", nil, time.Hour, time.Minute,
			portforward.SupportedProtocols)
	}))
}

type forwarder struct {
	carry func(port int32, connection io.ReadWriteCloser) error
}

// PortForward implements portforward.PortForwarder.
func (f forwarder) PortForward(_ context.Context, _, _ string, port int32, connection io.ReadWriteCloser) error {
	return f.carry(port, connection)
}
