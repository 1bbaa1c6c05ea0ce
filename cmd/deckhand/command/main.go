package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/kit/suggest"
	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// Exit codes of all commands; `deckhand run` also passes on that of its container.
const (
	exitOK      = 0
	exitFailure = 1
	// exitUsage is also that of `deckhand replay` and `deckhand config check` for a file that can't be read.
	exitUsage = 2
	// exitNoAgent says that no agent answers, for commands that need one.
	exitNoAgent = 3
	// exitAllStopped is that of an agent that `deckhand down` has ended: the service manager isn't to start it again.
	exitAllStopped = 4
)

// usageError is a mistake in the command line, or in what it names.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef returns a usageError that says where to read more.
func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{fmt.Errorf("%w (see `%s --help`)", fmt.Errorf(format, args...), cmd.CommandPath())}
}

// exitError carries the exit code of something that was run, which has printed its own messages.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// Main runs the command line args, without the program's name, which is argv0. It
// returns the exit code. ctx is to end at the first signal.
func Main(ctx context.Context, args []string, argv0 string, stdin io.Reader, stdout, stderr io.Writer, deps Deps) int {
	a := newApp(deps)
	root := a.command()
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	args = withCommand(argv0, args)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var exit *exitError
	var usage *usageError
	var kind *show.KindError
	var noAgent *local.NoAgentError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return exitOK // somebody wanted it to end
	}
	if flag := (*flagError)(nil); errors.As(err, &flag) {
		err = cmp.Or(a.flagMistakes(root, args), err)
	}
	fmt.Fprint(stderr, errorLines(err))
	switch {
	case errors.As(err, &usage), errors.As(err, &kind):
		return exitUsage
	case errors.As(err, &noAgent):
		return exitNoAgent
	}
	return exitFailure
}

// errorLines marks each error in a text: joined errors take a line each, and
// indented lines go on with the error above. The text of an error may come
// from elsewhere.
func errorLines(err error) string {
	var text strings.Builder
	for line := range strings.Lines(strings.TrimSpace(err.Error())) {
		if !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") {
			text.WriteString("error: ")
		}
		text.WriteString(terminal.Keep(strings.TrimRight(line, "\n")) + "\n")
	}
	return text.String()
}

// withCommand puts the "agent" that is meant before a command line that names no
// command: that of a binary called kubelet, or one that begins with the agent's flags.
func withCommand(argv0 string, args []string) []string {
	agent := append([]string{"agent"}, args...)
	if filepath.Base(argv0) == "kubelet" {
		return agent
	}
	if len(args) == 0 {
		return args
	}
	for i := 0; i < len(args); i++ {
		name, _, hasValue := strings.Cut(args[i], "=")
		switch {
		case slices.Contains([]string{"-h", "--help", "--version"}, name) || !strings.HasPrefix(name, "-"):
			return args
		case name == "-A" || name == "--all-namespaces":
		case name == "--root-dir" || name == "--namespace" || name == "-n":
			if !hasValue {
				i++
			}
		default:
			return agent
		}
	}
	return agent
}

// unknownCommand is what the root command says of arguments.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q", args[0])
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	// Two slips off a short word is any other.
	if like := suggest.Of(args[0], slices.Values(names), 1+min(1, len(args[0])/6)); like != "" {
		err = fmt.Errorf("%w, did you mean %s?", err, like)
	}
	return usagef(cmd, "%w", err)
}
