package command

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
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
		format := flagValue(cmd, "output")
		kind, _, picks := strings.Cut(format, "=")
		known := slices.ContainsFunc(formats, func(f string) bool { return f == format || picks && strings.HasPrefix(f, kind+"=") })
		if format != "" && !known {
			return usagef(cmd, "unknown output format %q, it is one of %s", format, strings.Join(formats, ", "))
		}
		if err := show.CheckFormat(format); err != nil {
			return usagef(cmd, "--output: %w", err)
		}
		return nil
	}
}

// dataFormats are the formats for programs.
var dataFormats = []string{"json", "yaml", "jsonpath=TEMPLATE", "go-template=TEMPLATE", "custom-columns=NAME:PATH,..."}

// selectorFlag adds -l.
func selectorFlag(cmd *cobra.Command) {
	cmd.Flags().StringP("selector", "l", "", "only pods with these labels, such as app=web,tier!=test")
}

// selector is what -l says; nil if it wasn't given.
func selector(cmd *cobra.Command) (labels.Selector, error) {
	text := flagValue(cmd, "selector")
	if text == "" {
		return nil, nil
	}
	s, err := labels.Parse(text)
	if err != nil {
		return nil, usagef(cmd, "--selector: %w", err)
	}
	return s, nil
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
