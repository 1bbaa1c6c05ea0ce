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
	var previous bool
	cmd := &cobra.Command{
		Use:     "journal [flags] POD",
		GroupID: groupLook,
		Short:   "Print what was decided about a pod, from what and why",
		Long: `Print the transcript of what was decided about a pod lately, from what and why. Lines
that begin with ">" are what happened, the others what was decided.

"deckhand replay" decides all of it again. A transcript is what to attach to a report:
values of environment variables and of HTTP headers are left out of it.

How much is kept of each pod is set by the agent's flag --journal-bytes.`,
		Example: `  deckhand journal web
  deckhand journal web > web.txtar; deckhand replay web.txtar
  deckhand journal --previous web    what the agent before this one decided`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.printJournal(cmd, args[0], previous)
			var none *local.NoAgentError
			if errors.As(err, &none) {
				return fmt.Errorf("%w; what the last one left is in %s", err,
					filepath.Join(flagValue(cmd, "root-dir"), "journal"))
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&previous, "previous", "p", false, "of the agent before this one")
	return cmd
}

func (a *app) printJournal(cmd *cobra.Command, name string, previous bool) error {
	ctx, client := cmd.Context(), a.client(cmd)
	snapshot, err := client.Snapshot(ctx)
	if err != nil {
		return err
	}
	p, err := show.FindPod(snapshot, flagValue(cmd, "namespace"), name)
	if err != nil {
		return err
	}
	text, err := client.Journal(ctx, p.Namespace, p.Name, previous)
	if err != nil {
		return err
	}
	defer text.Close()
	if _, err := io.Copy(textTo(cmd), text); err != nil {
		return fmt.Errorf("read the journal of %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

func (a *app) replayCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "replay FILE...",
		GroupID: groupMore,
		Short:   "Decide again what a journal records, and show what differs",
		Long: `Run journals (see "deckhand journal") through this version's decisions, and show where
those differ from what is recorded. No agent is needed, and nothing is done. FILE may
be - for the standard input.

The exit code is 0 if everything is decided as it was, 1 if something differs, and 2 for
a file that can't be read, or wrong usage.`,
		Example: `  deckhand replay web.txtar
  deckhand journal web | deckhand replay -`,
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: replayFiles,
	}
}

func replayFiles(cmd *cobra.Command, paths []string) error {
	var broken []error
	differs := false
	for _, path := range paths {
		t, err := readTranscript(path, cmd.InOrStdin())
		if err != nil {
			broken = append(broken, err)
			continue
		}
		same, err := printReplay(textTo(cmd), transcriptName(path), t)
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
