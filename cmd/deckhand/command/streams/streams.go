// Package streams connects a command's standard streams with those of a process in a container, and local connections
// with ports of a pod. It implements the protocols of CRI streaming servers.
package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

// Protocol is the subprotocol of Join.
const Protocol = remotecommand.StreamProtocolV4Name

// ErrLost means that a session ended before its process.
var ErrLost = errors.New(
	"the connection to the container was lost: the agent or the container runtime has stopped, or the connection was " +
		"idle for hours")

// ExitError means that the command in the container has ended with a code other than 0.
type ExitError struct{ Code int }

func (e *ExitError) Error() string {
	return fmt.Sprintf("command terminated with exit code %d", e.Code)
}

// FailedError means that the container runtime couldn't run the command.
type FailedError struct{ Message string }

func (e *FailedError) Error() string { return e.Message }

// Ends are the local ends of a session's streams. A nil stream isn't opened.
type Ends struct {
	In       io.Reader
	Out, Err io.Writer
	// TTY means that the process has a terminal, and so no stream Err. Sizes sends the size of the local terminal; it
	// may be nil.
	TTY   bool
	Sizes *Sizes
}

// Query returns the URL parameters that select the streams.
func (e *Ends) Query() url.Values {
	q := url.Values{}
	for name, on := range map[string]bool{v1.ExecStdinParam: e.In != nil, v1.ExecStdoutParam: e.Out != nil,
		v1.ExecStderrParam: e.hasErr(), v1.ExecTTYParam: e.TTY} {
		if on {
			q.Set(name, "1")
		}
	}
	return q
}

func (e *Ends) hasErr() bool { return e.Err != nil && !e.TTY }

// Join copies the streams of a session until the process in the container has ended, or ctx, which closes the
// connection. It returns an *ExitError for an exit code, a *FailedError if the command couldn't run, and ErrLost if
// there was no result. A read of In may still be in progress when it returns.
func (e *Ends) Join(ctx context.Context, conn httpstream.Connection) error {
	defer conn.Close()
	s := &session{conn: conn}
	outcome, in := s.open(v1.StreamTypeError, true), s.open(v1.StreamTypeStdin, e.In != nil)
	out, errs := s.open(v1.StreamTypeStdout, e.Out != nil), s.open(v1.StreamTypeStderr, e.hasErr())
	sizes := s.open(v1.StreamTypeResize, e.TTY)
	if s.err != nil {
		return fmt.Errorf("open the streams of the session: %w", lostOr(ctx, s.err))
	}
	if in != nil {
		go func() {
			_, _ = io.Copy(in, e.In) // the process doesn't read data that can't be sent
			in.Close()
		}()
	}
	ended := make(chan struct{})
	var copies sync.WaitGroup
	if sizes != nil && e.Sizes != nil {
		copies.Go(func() { e.Sizes.send(json.NewEncoder(sizes), ended) })
	}
	var readers sync.WaitGroup
	var message []byte
	var lost error
	readers.Go(func() { message, lost = io.ReadAll(io.LimitReader(outcome, maxOutcome)) })
	var failed [2]error
	for i, c := range []struct {
		from io.Reader
		to   io.Writer
	}{{out, e.Out}, {errs, e.Err}} {
		if c.to == nil || i == 1 && errs == nil {
			continue
		}
		readers.Go(func() {
			if _, failed[i] = io.Copy(c.to, c.from); failed[i] != nil {
				conn.Close() // the output has no reader: end the session
			}
		})
	}
	readers.Wait()
	close(ended)
	conn.Close() // unblocks the sending of a size
	copies.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Join(failed[:]...) != nil:
		return errors.Join(failed[:]...)
	case lost != nil || len(message) == 0:
		return ErrLost
	}
	return decode(message)
}

// maxOutcome is the maximum size of a session's result in bytes.
const maxOutcome = 64 << 10

// session opens streams until one fails.
type session struct {
	conn httpstream.Connection
	err  error
}

func (s *session) open(kind string, wanted bool) httpstream.Stream {
	if !wanted || s.err != nil {
		return nil
	}
	var stream httpstream.Stream
	stream, s.err = s.conn.CreateStream(http.Header{v1.StreamType: {kind}})
	return stream
}

func lostOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// decode decodes the result at the end of a session.
func decode(message []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(message, &status); err != nil {
		return fmt.Errorf("the container runtime tells the end of the session as %q: %w", message, err)
	}
	if status.Status == metav1.StatusSuccess {
		return nil
	}
	if status.Reason == remotecommand.NonZeroExitCodeReason && status.Details != nil {
		for _, c := range status.Details.Causes {
			if code, err := strconv.ParseUint(c.Message, 10, 8); c.Type == remotecommand.ExitCodeCauseType &&
				err == nil {
				return &ExitError{int(code)}
			}
		}
	}
	// The runtime's streaming server begins every message with this text.
	why := strings.TrimPrefix(status.Message, "Internal error occurred: ")
	return &FailedError{strings.TrimPrefix(why, "error executing command in container: ")}
}
