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
	// Subject is the object of the call: an ID, an image or a pod's name; may be empty.
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

// Unwrap returns the underlying error, which carries the gRPC status.
func (e *Error) Unwrap() error { return e.err }

// IsNotFound reports whether the object of a call doesn't exist in the runtime.
func IsNotFound(err error) bool { return code(err) == codes.NotFound }

// IsUnimplemented reports whether the runtime doesn't implement a call.
func IsUnimplemented(err error) bool { return code(err) == codes.Unimplemented }

// IsUnavailable reports whether the runtime can't be reached, or isn't ready yet.
func IsUnavailable(err error) bool {
	// containerd's CRI service returns this message during its startup, without a specific code.
	return code(err) == codes.Unavailable || err != nil &&
		strings.Contains(err.Error(), "server is not initialized yet")
}

// IsAnswer reports whether an error is nil or an answer of the runtime: a refusal also shows that the runtime is
// alive.
func IsAnswer(err error) bool {
	if err == nil {
		return true
	}
	st, ok := status.FromError(err)
	return ok && st.Code() != codes.DeadlineExceeded && st.Code() != codes.Canceled && !IsUnavailable(err)
}

// IsExecTimeout reports whether the runtime killed a command because of its timeout.
func IsExecTimeout(err error) bool { return errors.Is(err, errExecTimeout) }

// IsExecUnanswered reports whether the runtime hasn't answered although the command's timeout passed long ago.
func IsExecUnanswered(err error) bool { return errors.Is(err, errExecUnanswered) }

// IsExecTooMuchOutput reports whether a command printed more than the 16 MiB that can be returned. Its exit code
// isn't available then.
func IsExecTooMuchOutput(err error) bool { return errors.Is(err, errExecOutput) }

func code(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	return status.Code(err)
}
