package command

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

func (a *app) journalCommand() *cobra.Command {
	var previous, node bool
	cmd := &cobra.Command{
		Use:     "journal [flags] {POD|--node}",
		GroupID: groupLook,
		Short:   "Print the decisions about a pod, their inputs and reasons",
		Long: `Print the transcript of the latest decisions about a pod, their inputs and reasons. Lines
that begin with ">" are inputs, the others are decisions.

"deckhand replay" repeats the decisions. Attach a transcript to a bug report: values of
environment variables and of HTTP headers are left out of it.

The agent's flag --journal-bytes sets the size that is kept of each pod.

With --node, print the latest decisions of this agent about evictions by node pressure: a line
of JSON for each one that differs from the one before it.`,
		Example: `  deckhand journal web
  deckhand journal web > web.txtar; deckhand replay web.txtar
  deckhand journal --previous web    what the agent before this one decided
  deckhand journal --node | jq .outcome`,
		Args: arguments(func(cmd *cobra.Command, args []string) error {
			if node {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		}),
		ValidArgsFunction: a.completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			if node {
				text, err := a.client(cmd).NodeJournal(cmd.Context())
				return printJournal(cmd, text, err, "the node")
			}
			return a.printPodJournal(cmd, args[0], previous)
		},
	}
	cmd.Flags().BoolVarP(&previous, "previous", "p", false, "of the agent before this one")
	cmd.Flags().BoolVar(&node, "node", false, "of evictions by node pressure")
	cmd.MarkFlagsMutuallyExclusive("previous", "node")
	return cmd
}

func (a *app) printPodJournal(cmd *cobra.Command, name string, previous bool) error {
	ctx, client := cmd.Context(), a.client(cmd)
	snapshot, err := client.Snapshot(ctx)
	if _, ok := errors.AsType[*local.NoAgentError](err); ok {
		return fmt.Errorf("%w; the last agent's journals are in %s", err,
			filepath.Join(flagValue(cmd, "root-dir"), "journal"))
	}
	if err != nil {
		return err
	}
	p, err := show.FindPod(snapshot, flagValue(cmd, "namespace"), name)
	if err != nil {
		return err
	}
	text, err := client.Journal(ctx, p.Namespace, p.Name, previous)
	return printJournal(cmd, text, err, p.Namespace+"/"+p.Name)
}

// printJournal prints a journal, unless there is an error.
func printJournal(cmd *cobra.Command, text io.ReadCloser, err error, of string) error {
	if err != nil {
		return err
	}
	defer text.Close()
	if _, err := io.Copy(textTo(cmd), text); err != nil {
		return fmt.Errorf("read the journal of %s: %w", of, err)
	}
	return nil
}

func (a *app) replayCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "replay FILE...",
		GroupID: groupMore,
		Short:   "Repeat the decisions in a journal, and show differences",
		Long: `Repeat the decisions in journals (see "deckhand journal") with this version, and show
where they differ from the recorded ones. No agent is needed, and nothing on the node is
changed. FILE may be - for the standard input.

The exit code is 0 if all decisions are the same, 1 if one differs, and 2 for a file that
can't be read, or wrong usage.`,
		Example: `  deckhand replay web.txtar
  deckhand journal web | deckhand replay -
  deckhand journal --node | deckhand replay -`,
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: replayFiles,
	}
}

func replayFiles(cmd *cobra.Command, paths []string) error {
	var broken []error
	differs := false
	for _, path := range paths {
		result, err := replay(path, cmd.InOrStdin())
		if err != nil {
			broken = append(broken, err)
			continue
		}
		same, err := result.print(textTo(cmd), transcriptName(path))
		if err != nil {
			return err
		}
		differs = differs || !same
	}
	switch {
	case len(broken) > 0:
		return &usageError{errors.Join(broken...)}
	case differs:
		return &exitError{exitFailure}
	}
	return nil
}
