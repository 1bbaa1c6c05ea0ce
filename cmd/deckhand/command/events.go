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
	var about, sortBy string
	var since sinceFlags
	var kinds []string
	known := []string{v1.EventTypeNormal, v1.EventTypeWarning}
	cmd := &cobra.Command{
		Use:     "events",
		Aliases: []string{"event", "ev"},
		GroupID: groupLook,
		Short:   "List recent events",
		Long: `List recent events, the newest last, also those before the agent was started: events of at
least a day are kept on disk, 1 MiB of them at most. If they need more, events of the object
with the most events are dropped first.

Repeated events are counted, similar ones are combined. The events of a pod are rate limited:
of very many in a short time some are dropped.`,
		Example: `  deckhand events                      of all pods and manifests
  deckhand events --for web            of one pod, which may be gone by now
  deckhand events --since 12h          of the last 12 hours
  deckhand events --types Warning -w   warnings, now and from now on
  deckhand events --sort-by .count     the most frequent last`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, kind := range kinds {
				if !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, kind) }) {
					return usagef(cmd, "unknown event type %q, it is one of %s", kind, strings.Join(known, ", "))
				}
			}
			opts := show.EventOptions{Types: kinds, SortBy: sortBy}
			var err error
			if opts.Since, err = since.time(cmd, a.deps.Now()); err != nil {
				return err
			}
			if err := show.CheckPath(sortBy); err != nil {
				return usagef(cmd, "--sort-by: %w", err)
			}
			if opts.Fields, err = fieldSelector(cmd, show.EventFields); err != nil {
				return err
			}
			return a.listEvents(cmd, about, opts, watch)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&watch, "watch", "w", false, "go on and show what happens")
	flags.StringVar(&about, "for", "", "only about this `POD`")
	since.addTo(cmd)
	fieldSelectorFlag(cmd, show.EventFields)
	sortFlag(cmd, &sortBy, ".lastTimestamp", ".firstTimestamp", ".count", ".reason", ".involvedObject.name")
	flags.StringSliceVar(&kinds, "types", nil, "only of these types: "+strings.Join(known, ", "))
	// These only fail for flags that don't exist.
	_ = cmd.RegisterFlagCompletionFunc("for", a.completePods)
	_ = cmd.RegisterFlagCompletionFunc("types", cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp))
	outputFlag(cmd, slices.Concat([]string{"wide"}, dataFormats)...)
	return cmd
}

func (a *app) listEvents(cmd *cobra.Command, about string, opts show.EventOptions, watch bool) error {
	ctx, client := cmd.Context(), a.client(cmd)
	opts.Format, opts.Namespace = flagValue(cmd, "output"), flagValue(cmd, "namespace")
	opts.Width, opts.Now = terminalWidth(cmd.OutOrStdout()), a.deps.Now
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
	if events, err = list.Choose(events); err != nil {
		return err
	}
	if len(events) == 0 && (opts.Format == "" || opts.Format == "wide") {
		none(cmd, what)
		return nil
	}
	return list.Print(textTo(cmd), events)
}
