package command

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
)

func (a *app) eventsCommand() *cobra.Command {
	var watch bool
	var about string
	var kinds []string
	known := []string{v1.EventTypeNormal, v1.EventTypeWarning}
	cmd := &cobra.Command{
		Use:     "events",
		Aliases: []string{"event", "ev"},
		GroupID: groupLook,
		Short:   "List what happened lately",
		Long: `List what happened lately, the newest last.

What happens again is counted, what differs little is combined. The events of one
pod are limited: of very many in a short time some are left out.`,
		Example: `  deckhand events                      of all pods and manifests
  deckhand events --for web            of one pod, which may be gone by now
  deckhand events --types Warning -w   what goes wrong, now and from now on`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, kind := range kinds {
				if !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, kind) }) {
					return usagef(cmd, "unknown event type %q, it is one of %s", kind, strings.Join(known, ", "))
				}
			}
			return a.listEvents(cmd, about, kinds, watch)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&watch, "watch", "w", false, "go on and show what happens")
	flags.StringVar(&about, "for", "", "only about this `POD`")
	flags.StringSliceVar(&kinds, "types", nil, "only of these types: "+strings.Join(known, ", "))
	// These only fail for flags that don't exist.
	_ = cmd.RegisterFlagCompletionFunc("for", a.completePods)
	_ = cmd.RegisterFlagCompletionFunc("types", cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp))
	outputFlag(cmd, slices.Concat([]string{"wide"}, dataFormats)...)
	return cmd
}

func (a *app) listEvents(cmd *cobra.Command, about string, kinds []string, watch bool) error {
	ctx, client := cmd.Context(), a.client(cmd)
	opts := show.EventOptions{
		Format: flagValue(cmd, "output"), Namespace: flagValue(cmd, "namespace"), Types: kinds,
		Width: terminalWidth(cmd.OutOrStdout()), Now: a.deps.Now,
	}
	what := "events"
	if about != "" {
		snapshot, err := client.Snapshot(ctx)
		if err != nil {
			return err
		}
		events, err := client.Events(ctx)
		if err != nil {
			return err
		}
		if opts.Pod, err = show.FindEventPod(snapshot, events, opts.Namespace, about); err != nil {
			return err
		}
		what += " about pod " + opts.Pod.Name
	}
	list := show.NewEventList(opts)
	if watch {
		return list.Watch(textTo(cmd), client.WatchEvents(ctx))
	}
	events, err := client.Events(ctx)
	if err != nil {
		return err
	}
	events = list.Choose(events)
	if len(events) == 0 && (opts.Format == "" || opts.Format == "wide") {
		none(cmd, what)
		return nil
	}
	return list.Print(textTo(cmd), events)
}
