package process

import (
	"regexp"

	"github.com/deckhand-node/deckhand/internal/kit/errtext"
)

// exhausted matches the errors of programs that could not create a process or a thread (EAGAIN of clone(2)): Go's
// "fork/exec PATH: resource temporarily unavailable" and "failed to create new OS thread", runc's "unable to spawn
// stage-1: Resource temporarily unavailable" and cgo's "pthread_create failed". EAGAIN of other calls doesn't match.
var exhausted = regexp.MustCompile(`(?i)(fork/exec \S+|\bv?fork|\bclone|spawn stage-\d|pthread_create failed): ` +
	`resource temporarily unavailable|failed to create new OS thread`)

// Exhausted reports whether the text of an error says that a process or a thread could not be created, because a limit
// was reached: pids.max of a control group, kernel.pid_max, kernel.threads-max or RLIMIT_NPROC. Texts are compared
// because errors of the container runtime arrive as texts. Strings that they quote are ignored.
func Exhausted(text string) bool { return exhausted.MatchString(errtext.Unquoted(text)) }
