package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command"
	"github.com/deckhand-node/deckhand/internal/host/room"
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

// TestFilesAreListed: the page's table has each file that the agent writes, with the packages that do.
func TestFilesAreListed(t *testing.T) {
	page, err := os.ReadFile("files.md")
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(page), "## When a file can't be written")
	by := map[string]string{} // the last column of each file
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		for i, path := range strings.Split(cells[1], "`") {
			if i%2 == 1 {
				if _, twice := by[path]; twice {
					t.Errorf("files.md has two rows for %s", path)
				}
				by[path] = strings.TrimSpace(cells[3])
			}
		}
	}
	packages := map[string][]string{}
	for _, u := range room.Uses() {
		if strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "-") {
			continue // elsewhere
		}
		for _, w := range u.Writers {
			name, _, _ := strings.Cut(w[strings.LastIndexByte(w, '/')+1:], ".")
			packages[u.Path] = append(packages[u.Path], w[:strings.LastIndexByte(w, '/')+1]+name)
		}
		if got := by[u.Path]; got != strings.Join(packages[u.Path], ", ") {
			t.Errorf("files.md: %s is written by %q, want %q", u.Path, got, packages[u.Path])
		}
	}
	for path, name := range by {
		if path == "pods/*/plugins/**" {
			continue // directories only
		}
		if _, err := os.Stat("../../internal/" + name); name != "" && err == nil && packages[path] == nil {
			t.Errorf("internal/host/room/uses.go has no row for %s, which package %s writes", path, name)
		}
	}
}
