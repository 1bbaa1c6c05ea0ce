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
	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/suggest"
	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/pod/explain"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// Exit codes of all commands; `deckhand run` also returns the exit code of its container.
const (
	exitOK      = 0
	exitFailure = 1
	// exitUsage is also the exit code of `deckhand replay` and `deckhand config check` for a file that can't be read.
	exitUsage = 2
	// exitNoAgent means that the command needs an agent and none answers.
	exitNoAgent = 3
	// exitAllStopped is the exit code of an agent that `deckhand down` has stopped: the service manager must not
	// restart it.
	exitAllStopped = 4
)

// usageError is an error in the command line, or in a file that it names.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef returns a usageError with a hint at --help.
func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{fmt.Errorf("%w (see `%s --help`)", fmt.Errorf(format, args...), cmd.CommandPath())}
}

// exitError is the error of a command that has printed its own messages. It carries only the exit code.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// Main runs the command line args, which doesn't include the program's name, argv0. It returns the exit code. ctx has
// to end at the first signal.
func Main(ctx context.Context, args []string, argv0 string, stdin io.Reader, stdout, stderr io.Writer, deps Deps) int {
	a := newApp(deps)
	root := a.command()
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	args = withCommand(argv0, args)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
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
		return exitOK // the user interrupted it
	}
	if flag := (*flagError)(nil); errors.As(err, &flag) {
		err = cmp.Or(a.flagMistakes(root, args), err)
	}
	fmt.Fprint(stderr, errorLines(a.withRoom(cmd, err)))
	switch {
	case errors.As(err, &usage), errors.As(err, &kind):
		return exitUsage
	case errors.As(err, &noAgent):
		return exitNoAgent
	}
	return exitFailure
}

// withRoom explains the error of a full disk: it adds which disk is full, and what the user can do, except for another
// disk than the agent's.
func (a *app) withRoom(cmd *cobra.Command, err error) error {
	if !atomicfile.DiskFull(err) {
		return err
	}
	root := a.rootDir(cmd)
	err = room.Explain(err, root)
	var full *room.FullError
	if on, failed := room.Measure(root); errors.As(err, &full) && failed == nil && full.On.Point != on.Point {
		return err
	}
	return fmt.Errorf("%w\n  you can: %s", err, explain.FreeDisk(a.inCluster(cmd)))
}

// errorLines returns the text of err with a prefix before each error. Joined errors have a line each; an indented line
// belongs to the error above it. Control sequences are replaced, because the text may come from untrusted sources.
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

// withCommand prepends "agent" to a command line without a command: one of a binary that is called kubelet, or one that
// begins with flags of the agent.
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

// unknownCommand returns an error if the root command has arguments.
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
	// A short word with two typing errors may be any other word.
	if like := suggest.Of(args[0], slices.Values(names), 1+min(1, len(args[0])/6)); like != "" {
		err = fmt.Errorf("%w, did you mean %s?", err, like)
	}
	return usagef(cmd, "%w", err)
}
