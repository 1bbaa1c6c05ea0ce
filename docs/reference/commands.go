package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command"
	"github.com/deckhand-node/deckhand/internal/config/flags"
)

const commandsTop = generated + `# Commands

As ` + "`deckhand COMMAND --help`" + ` shows them. Every command takes these flags:

`

const exitCodes = `## Exit codes

| code | what it says |
| --- | --- |
| 0 | it is as it should be, or was done |
| 1 | it isn't, or wasn't: standard error says why |
| 2 | wrong usage, or a file that can't be read; all mistakes of a command line are reported at once |
| 3 | no agent answers, for commands that need one |
| 4 | of ` + "`deckhand agent`" + `: ` + "`deckhand down`" + ` has ended it, so a service manager isn't to start it again |

` + "`deckhand run`" + ` of one container ends with the container's exit code. Tables go to standard output, errors and remarks to standard error.

`

// commandsPage describes all commands, and the flags of the agent in the groups that its help has.
func commandsPage() string {
	deps := command.Commands("deckhand")
	root := command.New(deps)
	var b strings.Builder
	b.WriteString(commandsTop)
	writeFlags(&b, root.PersistentFlags(), nil)
	b.WriteString(exitCodes)
	describe(&b, root, deps.AgentFlags)
	b.WriteString("## Flags of the agent\n\nThe kubelet's flags, and some of deckhand's own. " +
		"Flags with a field in the [configuration](configuration.md) are better set there.\n\n")
	for _, group := range deps.AgentFlags.Groups() {
		fmt.Fprintf(&b, "### %s\n\n", strings.TrimSuffix(group.Title, ":"))
		writeFlags(&b, group.Flags, nil)
	}
	return b.String()
}

// describe writes a section for each command below cmd, in the order of its help.
func describe(b *strings.Builder, cmd *cobra.Command, agent *flags.Set) {
	for _, c := range inOrder(cmd) {
		fmt.Fprintf(b, "## %s\n\n%s\n\n```text\n%s\n```\n\n", c.CommandPath(), paragraphs(c), c.UseLine())
		if len(c.Aliases) > 0 {
			fmt.Fprintf(b, "Also: %s.\n\n", "`"+strings.Join(c.Aliases, "`, `")+"`")
		}
		if c.Example != "" {
			fmt.Fprintf(b, "Examples:\n\n```text\n%s\n```\n\n", unindent(c.Example))
		}
		own := c.LocalFlags()
		isAgents := func(f *pflag.Flag) bool { return agent.Has(f.Name) && f.Name != "config" && f.Name != "config-dir" }
		if agent.Has("root-dir") && own.Lookup("pod-manifest-path") != nil {
			b.WriteString("It takes the [flags of the agent](#flags-of-the-agent), too.\n\n")
		}
		writeFlags(b, own, isAgents)
		describe(b, c, agent)
	}
}

// inOrder lists what help shows of a command, group by group.
func inOrder(cmd *cobra.Command) []*cobra.Command {
	var list []*cobra.Command
	add := func(group string) {
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() && c.GroupID == group {
				list = append(list, c)
			}
		}
	}
	for _, g := range cmd.Groups() {
		add(g.ID)
	}
	add("")
	return list
}

// paragraphs is a command's description without the line breaks that a terminal wants.
func paragraphs(c *cobra.Command) string {
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	parts := strings.Split(strings.TrimSpace(text), "\n\n")
	for i, p := range parts {
		parts[i] = strings.NewReplacer("\n", " ", "<", "&lt;", "*", `\*`).Replace(p)
	}
	return strings.Join(parts, "\n\n")
}

// unindent takes off what all lines of an example begin with.
func unindent(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}

// writeFlags writes a table of flags, without those that are hidden, or that leave is true for.
func writeFlags(b *strings.Builder, fs *pflag.FlagSet, leave func(*pflag.Flag) bool) {
	var rows []string
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || leave != nil && leave(f) {
			return
		}
		argument, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if argument != "" {
			name += " " + argument
		}
		usage += flags.DefaultText(f)
		rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", cell(name), cell(usage)))
	})
	if len(rows) > 0 {
		b.WriteString("| flag | what it does |\n| --- | --- |\n" + strings.Join(rows, "") + "\n")
	}
}
