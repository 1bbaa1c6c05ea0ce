package command

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/cmd/deckhand/command/why"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

func (a *app) whyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "why [POD]",
		Aliases: []string{"status"},
		GroupID: groupLook,
		Short:   "Show why a pod isn't ready, the next step and how to fix it",
		Long: `Show why a pod waits, since when, the next try and its time, and how to fix it. Without POD,
list the pods that aren't fine and the manifests that can't be used.

` + namesOfPods + `

The exit code is 0 if the pod (or everything) is fine: ready as the newest version of its
manifest has it, completed, or stopped by "deckhand stop". It is 1 if not, and 2 for wrong usage.`,
		Example: `  deckhand why                     what isn't fine
  deckhand why web                 what a pod waits for
  deckhand why web -o json         the same and more, for programs`,
		ValidArgsFunction: a.completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef(cmd, "name one pod, not %d", len(args))
			}
			fine, err := a.why(cmd, args)
			if err == nil && !fine {
				err = &exitError{exitFailure}
			}
			return err
		},
	}
	outputFlag(cmd, dataFormats...)
	return cmd
}

func (a *app) why(cmd *cobra.Command, args []string) (fine bool, err error) {
	ctx, client, out, now := cmd.Context(), a.client(cmd), textTo(cmd), a.deps.Now()
	namespace, as := flagValue(cmd, "namespace"), flagValue(cmd, "output")
	snapshot, err := client.Snapshot(ctx)
	if err != nil {
		return false, err
	}
	if len(args) == 0 {
		events, err := client.Events(ctx)
		if err != nil {
			return false, err
		}
		return why.Overview(out, &snapshot, show.NodeWarnings(events, snapshot.Node, now), namespace, as, now)
	}
	p, err := show.FindPod(snapshot, namespace, args[0])
	if errors.Is(err, show.ErrNotFound) && as == "" {
		events, err := client.Events(ctx)
		if err != nil {
			return false, err
		}
		return false, why.Missing(out, &snapshot, events, namespace, args[0], now)
	}
	if err != nil {
		return false, err
	}
	explanation, err := client.Why(ctx, p.Namespace, p.Name)
	if err != nil {
		return false, err
	}
	last := map[string]string{}
	if as == "" {
		for _, request := range why.Crashes(&explanation) {
			if text := lastLines(ctx, client, request); text != "" {
				last[request.Container] = text
			}
		}
	}
	return why.Print(out, &explanation, last, as, now)
}

// lastLines returns the last lines of a log, or "" if the log can't be read: the `deckhand logs` command that why
// suggests reports the error.
func lastLines(ctx context.Context, client *local.Client, request local.LogRequest) string {
	log, err := client.Logs(ctx, request)
	if err != nil {
		return ""
	}
	defer log.Close()
	text, err := io.ReadAll(io.LimitReader(log, request.LimitBytes))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
