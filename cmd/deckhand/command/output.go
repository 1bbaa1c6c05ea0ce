package command

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

// outputFlag adds -o for a command that knows these formats beside its table.
func outputFlag(cmd *cobra.Command, formats ...string) {
	cmd.Flags().StringP("output", "o", "", "format: "+strings.Join(formats, ", "))
	complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return formats, cobra.ShellCompDirectiveNoFileComp
	}
	// It only fails for a flag that doesn't exist.
	_ = cmd.RegisterFlagCompletionFunc("output", complete)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if format := flagValue(cmd, "output"); format != "" && !slices.Contains(formats, format) {
			return usagef(cmd, "unknown output format %q, it is one of %s", format, strings.Join(formats, ", "))
		}
		return nil
	}
}

// textTo returns where a command writes text that may hold what somebody else has
// written: the standard output, filtered if that is a terminal, which would obey it.
func textTo(cmd *cobra.Command) io.Writer {
	out := cmd.OutOrStdout()
	if terminalOf(out) != nil {
		return terminal.NewWriter(out)
	}
	return out
}

// terminalOf returns the file behind w if that is a terminal, else nil.
func terminalOf(w io.Writer) *os.File {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// terminalWidth is 0 where w is no terminal.
func terminalWidth(w io.Writer) int {
	width, _ := terminalSize(terminalOf(w))
	return width
}

func terminalSize(f *os.File) (width, height int) {
	if f == nil {
		return 0, 0
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24 // a terminal without a known size, such as a serial line
	}
	return width, height
}

// none says on stderr that there is nothing to list, as kubectl does.
func none(cmd *cobra.Command, what string) {
	if namespace := flagValue(cmd, "namespace"); namespace != "" {
		what += " in namespace " + namespace
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "No %s.\n", what)
}
