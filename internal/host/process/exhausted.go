package process

import (
	"regexp"
	"strconv"
	"strings"
)

// exhausted matches the errors of programs that could not create a process or a thread (EAGAIN of clone(2)): Go's
// "fork/exec PATH: resource temporarily unavailable" and "failed to create new OS thread", runc's "unable to spawn
// stage-1: Resource temporarily unavailable" and cgo's "pthread_create failed". EAGAIN of other calls doesn't match.
var exhausted = regexp.MustCompile(`(?i)(fork/exec \S+|\bv?fork|\bclone|spawn stage-\d|pthread_create failed): ` +
	`resource temporarily unavailable|failed to create new OS thread`)

// Exhausted reports whether the text of an error says that a process or a thread could not be created, because a limit
// was reached: pids.max of a control group, kernel.pid_max, kernel.threads-max or RLIMIT_NPROC. Texts are compared
// because errors of the container runtime arrive as texts. Strings that they quote are ignored.
func Exhausted(text string) bool { return exhausted.MatchString(Unquoted(text)) }

// quoted matches a string that Go's %q has formatted.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// Unquoted returns the text of an error without the strings that it quotes. These come from pods: runc quotes the
// command that it can't start, and repeats its path: `exec: "/a b": stat /a b: no such file or directory`. Such
// repetitions are also removed, unless the string is a single word, which no message consists of.
func Unquoted(text string) string {
	for _, q := range quoted.FindAllString(text, -1) {
		text = strings.ReplaceAll(text, q, `""`)
		if s, err := strconv.Unquote(q); err == nil && strings.Contains(s, " ") {
			text = strings.ReplaceAll(text, s, "")
		}
	}
	return text
}
