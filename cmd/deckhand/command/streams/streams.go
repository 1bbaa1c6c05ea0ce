// Package streams joins the streams of a command that a person runs with those of a process in a container, and
// connections on this machine with ports of a pod. It speaks what the CRI's streaming servers do.
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

// Protocol is what Join speaks.
const Protocol = remotecommand.StreamProtocolV4Name

// ErrLost is that a session ended before the process in it did.
var ErrLost = errors.New(
	"the connection to the container was lost: the agent or the container runtime has stopped, or nothing was said " +
		"on it for hours")

// ExitError is that the command in the container has ended with a code other than 0.
type ExitError struct{ Code int }

func (e *ExitError) Error() string {
	return fmt.Sprintf("command terminated with exit code %d", e.Code)
}

// FailedError is that the container runtime couldn't do what was asked for.
type FailedError struct{ Message string }

func (e *FailedError) Error() string { return e.Message }

// Ends are the near ends of a session's streams. Those that are nil it doesn't have.
type Ends struct {
	In       io.Reader
	Out, Err io.Writer
	// TTY says that the process has a terminal, which has no Err. Sizes, if set, tells how large it is.
	TTY   bool
	Sizes *Sizes
}

// Query says which streams a session is to have.
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

// Join carries what comes on the streams of a session, from its beginning until the process in the container has ended,
// or ctx has, which closes the connection. It returns an *ExitError for a command's exit code, a *FailedError where
// there was no command, and ErrLost where nobody tells what became of it. A read of In may be under way still.
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
			_, _ = io.Copy(in, e.In) // what can't be sent, the process doesn't want
			in.Close()
		}()
	}
	ended := make(chan struct{})
	var copies sync.WaitGroup
	if sizes != nil && e.Sizes != nil {
		copies.Go(func() { e.Sizes.tell(json.NewEncoder(sizes), ended) })
	}
	var told sync.WaitGroup
	var message []byte
	var lost error
	told.Go(func() { message, lost = io.ReadAll(io.LimitReader(outcome, maxOutcome)) })
	var failed [2]error
	for i, c := range []struct {
		from io.Reader
		to   io.Writer
	}{{out, e.Out}, {errs, e.Err}} {
		if c.to == nil || i == 1 && errs == nil {
			continue
		}
		told.Go(func() {
			if _, failed[i] = io.Copy(c.to, c.from); failed[i] != nil {
				conn.Close() // nobody reads: the session is of no use
			}
		})
	}
	told.Wait()
	close(ended)
	conn.Close() // or a size may wait to be taken
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

// maxOutcome bounds how a process is said to have ended, in bytes.
const maxOutcome = 64 << 10

// session opens streams until one can't be.
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

// decode reads what is told at the end of a session.
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
	// Its server says that of everything.
	why := strings.TrimPrefix(status.Message, "Internal error occurred: ")
	return &FailedError{strings.TrimPrefix(why, "error executing command in container: ")}
}
