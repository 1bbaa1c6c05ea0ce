package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
)

func TestPagesAreCurrent(t *testing.T) {
	if err := run(".", "../..", true); err != nil {
		t.Error(err)
	}
}

// TestExamples: what help gives as an example is a command line that the program takes.
func TestExamples(t *testing.T) {
	lines := 0
	var each func(*cobra.Command)
	each = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			for _, part := range strings.FieldsFunc(line, func(r rune) bool { return r == ';' || r == '|' }) {
				text, _, _ := strings.Cut(strings.TrimSpace(part), "  ") // what it does follows
				text, _, _ = strings.Cut(text, " >")
				words := strings.Fields(text)
				if len(words) == 0 || words[0] != "deckhand" {
					continue
				}
				lines++
				if err := takes(words[1:]); err != nil {
					t.Errorf("%s: example %q: %v", cmd.CommandPath(), text, err)
				}
			}
		}
		for _, c := range cmd.Commands() {
			each(c)
		}
	}
	each(command.New(command.Commands("deckhand")))
	if lines < 30 {
		t.Errorf("found %d examples only", lines)
	}
}

// takes reports what is wrong with a command line, without running it.
func takes(args []string) error {
	cmd, rest, err := command.New(command.Commands("deckhand")).Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// TestMetricsAreDescribed: nothing is missing that the table should say.
func TestMetricsAreDescribed(t *testing.T) {
	list := metrics.Described()
	if len(list) < 50 {
		t.Errorf("%d metrics only", len(list))
	}
	for _, d := range list {
		if d.Name == "" || d.Type == "" || d.Help == "" {
			t.Errorf("%+v isn't whole", d)
		}
	}
}
