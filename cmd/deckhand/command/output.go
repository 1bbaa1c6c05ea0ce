package command

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

// outputFlag adds -o with these formats, besides the default table.
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
		known := slices.ContainsFunc(formats, func(f string) bool {
			return f == format || picks && strings.HasPrefix(f, kind+"=")
		})
		if kind == "go-template" && slices.Contains(formats, "jsonpath=TEMPLATE") {
			return usagef(cmd, "go-template isn't here: jsonpath=TEMPLATE and custom-columns=NAME:PATH,... pick "+
				"fields, and -o json prints all of them for jq")
		}
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
var dataFormats = []string{"json", "yaml", "jsonpath=TEMPLATE", "custom-columns=NAME:PATH,..."}

// selectorFlag adds -l.
func selectorFlag(cmd *cobra.Command) {
	cmd.Flags().StringP("selector", "l", "", "only pods with these labels, such as app=web,tier!=test")
}

// selector parses -l; nil if it wasn't given.
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

// fieldSelectorFlag adds --field-selector, which may name the known fields.
func fieldSelectorFlag(cmd *cobra.Command, known []string) {
	cmd.Flags().String("field-selector", "",
		"list only objects with these fields, such as "+known[0]+"=web-n1; also "+strings.Join(known[1:], ", "))
	complete := make([]string, len(known))
	for i, field := range known {
		complete[i] = field + "="
	}
	// It only fails for a flag that doesn't exist.
	_ = cmd.RegisterFlagCompletionFunc("field-selector",
		cobra.FixedCompletions(complete, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
}

// fieldSelector parses --field-selector; nil if it wasn't given.
func fieldSelector(cmd *cobra.Command, known []string) (fields.Selector, error) {
	text := flagValue(cmd, "field-selector")
	if text == "" {
		return nil, nil
	}
	s, err := fields.ParseSelector(text)
	if err != nil {
		return nil, usagef(cmd, "--field-selector: %w", err)
	}
	for _, r := range s.Requirements() {
		if !slices.Contains(known, r.Field) {
			return nil, usagef(cmd, "--field-selector: unknown field %q, it is one of %s", r.Field,
				strings.Join(known, ", "))
		}
	}
	return s, nil
}

// sortFlag adds --sort-by, with these paths for completion.
func sortFlag(cmd *cobra.Command, path *string, common ...string) {
	cmd.Flags().StringVar(path, "sort-by", "", "sort by the field at this `path`, such as "+common[0])
	// It only fails for a flag that doesn't exist.
	_ = cmd.RegisterFlagCompletionFunc("sort-by", cobra.FixedCompletions(common, cobra.ShellCompDirectiveNoFileComp))
}

// sinceFlags are --since and --since-time.
type sinceFlags struct {
	span time.Duration
	at   string
}

func (s *sinceFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&s.span, "since", 0, "show only entries newer than this, such as 5s, 2m or 3h")
	cmd.Flags().StringVar(&s.at, "since-time", "",
		"show only entries newer than this `TIME`, such as 2026-01-02T15:04:05Z (RFC 3339)")
	// It only fails for a flag that doesn't exist.
	_ = cmd.RegisterFlagCompletionFunc("since",
		cobra.FixedCompletions([]string{"5m", "1h", "12h", "24h"}, cobra.ShellCompDirectiveNoFileComp))
}

// time returns the start of the requested output; zero if neither flag was given.
func (s *sinceFlags) time(cmd *cobra.Command, now time.Time) (time.Time, error) {
	switch {
	case s.span < 0:
		return time.Time{}, usagef(cmd, "--since must be positive")
	case s.span > 0 && s.at != "":
		return time.Time{}, usagef(cmd, "--since and --since-time can't be combined")
	case s.span > 0:
		return now.Add(-s.span), nil
	case s.at == "":
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, s.at)
	if err != nil {
		return time.Time{}, usagef(cmd,
			"--since-time must be a time such as %s, not %q", now.UTC().Format(time.RFC3339), s.at)
	}
	return at, nil
}

// textTo returns a writer for text with untrusted parts: the standard output, with control sequences replaced if it
// is a terminal.
func textTo(cmd *cobra.Command) io.Writer {
	out := cmd.OutOrStdout()
	if terminalOf(out) != nil {
		return terminal.NewWriter(out)
	}
	return out
}

// terminalOf returns the file of a standard stream if it is a terminal, otherwise nil.
func terminalOf(stream any) *os.File {
	if f, ok := stream.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// terminalWidth is 0 if w isn't a terminal.
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
		return 80, 24 // a terminal that doesn't report its size, such as a serial line
	}
	return width, height
}

// none prints to standard error that there is nothing to list, as kubectl does.
func none(cmd *cobra.Command, what string) {
	if namespace := flagValue(cmd, "namespace"); namespace != "" {
		what += " in namespace " + namespace
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "No %s.\n", what)
}
