package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	agentpreflight "github.com/deckhand-node/deckhand/internal/agent/preflight"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/document"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

func (a *app) checkConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [FILE...]",
		Short: "Check configuration files before an agent uses them",
		Long: `Check KubeletConfiguration files, each on its own, and print all errors, as
FILE:LINE: FIELD: the error and the valid values. Valid settings that have no effect in
this build are printed, too. No running agent is needed. FILE may be - for the standard input.

Once all values are valid, the files that they and the flags name are opened, as an agent does at
start: kubeconfigs, certificates and keys, manifests, credential providers, resolvConf. A note
names files that only root can read. --skip-files doesn't open them, for example for another
machine's configuration.

Flags of the agent apply to each file as they do at start: --feature-gates sets gates,
--config-dir merges drop-ins over it, --kubeconfig names a file that is opened. Without FILE, the
configuration that the flags make is checked: --config, --config-dir and all others. Use this for
drop-ins, which are only parts of a configuration.

The exit code is 0 if an agent can use the whole configuration, 1 if not, and 2 for a FILE that can't be
read, or wrong usage.`,
		Example: `  deckhand config check new.yaml
  deckhand config check --skip-files of-another-machine.yaml
  deckhand config check --config /etc/deckhand/config.yaml --config-dir new.conf.d
  deckhand config check -o json *.yaml`,
		Args: arguments(cobra.ArbitraryArgs),
	}
	set := a.agentFlags(cmd)
	cmd.Flags().Bool("skip-files", false, "don't open the files that the configuration names")
	outputFlag(cmd, "json")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		switch {
		case len(files) == 0 && !agentFlagsGiven(cmd):
			return usagef(cmd, "no file to check: name some, or --config or --config-dir")
		case len(files) > 0 && set.Given("config"):
			return usagef(cmd, "the file is given by --config and by %s: one of them is enough (drop-ins to --config "+
				"are given by --config-dir)", files[0])
		}
		return reportResults(cmd, a.configResults(cmd, set, files))
	}
	return cmd
}

// configResult is the result of `deckhand config check` for one configuration. Its JSON is an API for programs.
type configResult struct {
	// File is the name of the file as it was given; "<stdin>" for the standard input.
	File  string `json:"file"`
	Valid bool   `json:"valid"`
	// Unread is the error of reading the file; empty if it could be read.
	Unread   string           `json:"error,omitempty"`
	Problems []config.Problem `json:"problems,omitempty"`
	Notes    []string         `json:"notes,omitempty"`
}

// configResults checks the files or, if there are none, the configuration that the flags produce.
func (a *app) configResults(cmd *cobra.Command, set *flags.Set, files []string) []configResult {
	open := func(c *config.Config) ([]config.Problem, []string) {
		if flagValue(cmd, "skip-files") == "true" {
			return nil, nil
		}
		return agentpreflight.Files(cmd.Context(), c, a.deps.Now())
	}
	if len(files) == 0 {
		v := set.Values()
		given := slices.DeleteFunc([]string{v.ConfigFile, v.ConfigDir}, func(name string) bool { return name == "" })
		name := strings.Join(given, " with ")
		if name == "" {
			name = "the flags"
		}
		return []configResult{resultOf(name, func() (*config.Config, []string, error) {
			return config.Check(cmd.Context(), set)
		}, open)}
	}
	results := make([]configResult, 0, len(files))
	for _, file := range files {
		name, read := file, func() ([]byte, error) { return document.ReadFile(file) }
		if file == "-" {
			name, read = "<stdin>", func() ([]byte, error) { return document.Read(cmd.InOrStdin()) }
		}
		results = append(results, resultOf(name, func() (*config.Config, []string, error) {
			data, err := read()
			if err != nil {
				return nil, nil, err
			}
			return config.CheckFile(cmd.Context(), set, name, data)
		}, open))
	}
	return results
}

// resultOf checks a configuration and, if it is valid, the files that it names.
func resultOf(
	name string, check func() (*config.Config, []string, error),
	open func(*config.Config) ([]config.Problem, []string),
) configResult {
	c, notes, err := check()
	v := configResult{File: name, Valid: err == nil, Notes: notes}
	var invalid *config.InvalidError
	switch {
	case err == nil:
		problems, notes := open(c)
		v.Valid, v.Problems, v.Notes = len(problems) == 0, problems, append(v.Notes, notes...)
	case errors.As(err, &invalid):
		v.Problems = invalid.Problems
	case errors.Is(err, unix.EISDIR):
		v.Unread = err.Error() + "; name the files in it, or give a directory of drop-ins by --config-dir"
	default:
		v.Unread = err.Error()
	}
	return v
}

// reportResults prints the results, and returns an error with the exit code if there are problems.
func reportResults(cmd *cobra.Command, results []configResult) error {
	code := exitOK
	for _, v := range results {
		switch {
		case v.Unread != "":
			code = exitUsage
		case !v.Valid:
			code = max(code, exitFailure)
		}
	}
	if flagValue(cmd, "output") == "json" {
		if err := writeResults(cmd.OutOrStdout(), results); err != nil {
			return err
		}
	} else {
		for _, v := range results {
			v.print(cmd.OutOrStdout(), cmd.ErrOrStderr())
		}
	}
	if code == exitOK {
		return nil
	}
	return &exitError{code}
}

func writeResults(out io.Writer, results []configResult) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(results); err != nil {
		return err
	}
	_, err := out.Write(terminal.JSON(text.Bytes()))
	return err
}

// print prints a line for each problem, in the format that editors parse as a position, and a summary. If the file
// can't be read, it prints that error to errs.
func (v *configResult) print(out, errs io.Writer) {
	if v.Unread != "" {
		fmt.Fprint(errs, errorLines(errors.New(v.Unread)))
		return
	}
	line := func(parts ...string) { fmt.Fprintln(out, terminal.Keep(strings.Join(parts, ": "))) }
	for _, p := range v.Problems {
		line(p.String())
	}
	for _, note := range v.Notes {
		line(v.File, "note", note)
	}
	switch {
	case !v.Valid:
		line(v.File, count(len(v.Problems), "problem"))
	case len(v.Notes) > 0:
		line(v.File, "fine, with "+count(len(v.Notes), "note"))
	default:
		line(v.File, "fine")
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
