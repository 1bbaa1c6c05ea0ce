package cri

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error is a failed call to the runtime, with the runtime's own message.
type Error struct {
	// Operation is named as in kubelet_runtime_operations_* ("run_podsandbox").
	Operation string
	// Subject is what it worked on: an ID, an image, a pod's name; may be empty.
	Subject string
	err     error
}

func (e *Error) Error() string {
	text := e.err.Error()
	if st, ok := status.FromError(e.err); ok {
		text = st.Message()
	}
	what := strings.ReplaceAll(e.Operation, "_", " ")
	if e.Subject != "" {
		what += " " + e.Subject
	}
	return fmt.Sprintf("container runtime: %s: %s", what, text)
}

// Unwrap gives the gRPC status below.
func (e *Error) Unwrap() error { return e.err }

// IsNotFound reports whether the runtime doesn't know what a call was about.
func IsNotFound(err error) bool { return code(err) == codes.NotFound }

// IsUnimplemented reports whether the runtime doesn't offer a call.
func IsUnimplemented(err error) bool { return code(err) == codes.Unimplemented }

// IsUnavailable reports whether the runtime can't be reached, or isn't ready yet.
func IsUnavailable(err error) bool {
	// containerd's CRI service answers so until it has started up, with no code of its own.
	return code(err) == codes.Unavailable || err != nil &&
		strings.Contains(err.Error(), "server is not initialized yet")
}

// IsAnswer reports whether a call with this error was answered by the runtime: a refusal shows that it is alive as
// success does.
func IsAnswer(err error) bool {
	if err == nil {
		return true
	}
	st, ok := status.FromError(err)
	return ok && st.Code() != codes.DeadlineExceeded && st.Code() != codes.Canceled && !IsUnavailable(err)
}

// IsExecTimeout reports whether the runtime ended a command because its time was over.
func IsExecTimeout(err error) bool { return errors.Is(err, errExecTimeout) }

// IsExecUnanswered reports whether the runtime said nothing of a command that should have ended long ago.
func IsExecUnanswered(err error) bool { return errors.Is(err, errExecUnanswered) }

// IsExecTooMuchOutput reports whether a command printed more than can be returned, 16 MiB.
// How it ended isn't known then.
func IsExecTooMuchOutput(err error) bool { return errors.Is(err, errExecOutput) }

func code(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	return status.Code(err)
}
