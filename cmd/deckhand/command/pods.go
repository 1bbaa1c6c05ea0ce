package command

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
)

func (a *app) podsCommand() *cobra.Command {
	var watch, containers, noHeaders, showLabels bool
	var labelColumns []string
	var sortBy string
	cmd := &cobra.Command{
		Use:     "pods [NAME...]",
		Aliases: []string{"pod", "po", "ps"},
		GroupID: groupLook,
		Short:   "List pods, and why they aren't ready",
		Long: `List the pods that run or should run on this machine, the reason for any that isn't
ready, and errors in manifests (on standard error). NAME may be the beginning of names,
NAMESPACE/NAME or pod/NAME.`,
		Example: `  deckhand pods                       all pods
  deckhand pods web --containers      one pod and its containers
  deckhand pods -w                    go on and show changes
  deckhand pods -o yaml web           a pod with spec and status
  deckhand pods -l app=web --sort-by .metadata.creationTimestamp
  deckhand pods -o jsonpath='{.items[*].status.podIP}'`,
		ValidArgsFunction: a.completePods,
		RunE: func(cmd *cobra.Command, args []string) error {
			selector, err := selector(cmd)
			if err != nil {
				return err
			}
			chosen, err := fieldSelector(cmd, show.PodFields)
			if err != nil {
				return err
			}
			if cmd.CalledAs() == "pod" && len(args) > 0 && (args[0] == "ps" || args[0] == "ls") {
				args = args[1:] // as in podman
			}
			if err := show.CheckPath(sortBy); err != nil {
				return usagef(cmd, "--sort-by: %w", err)
			}
			list := show.NewPodList(show.PodOptions{
				Selector: selector, Fields: chosen, LabelColumns: labelColumns, ShowLabels: showLabels, SortBy: sortBy,
				NoHeaders: noHeaders,
				Format:    flagValue(cmd, "output"), Namespace: flagValue(cmd, "namespace"), Names: args,
				Containers: containers, Width: terminalWidth(cmd.OutOrStdout()), Now: a.deps.Now,
			})
			client := a.client(cmd)
			if watch {
				return list.Watch(textTo(cmd), client.Watch(cmd.Context()))
			}
			snapshot, err := client.Snapshot(cmd.Context())
			if err != nil {
				return err
			}
			return list.Print(textTo(cmd), cmd.ErrOrStderr(), snapshot)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on and show changes")
	cmd.Flags().BoolVar(&containers, "containers", false, "show each pod's containers, too")
	cmd.Flags().BoolVar(&noHeaders, "no-headers", false, "without the line of headings")
	cmd.Flags().BoolVar(&showLabels, "show-labels", false, "show all labels, in the last column")
	cmd.Flags().StringSliceVarP(&labelColumns, "label-columns", "L", nil, "show these `labels`, each in a column")
	// It only fails for a flag that doesn't exist.
	_ = cmd.RegisterFlagCompletionFunc("label-columns", a.completeLabels)
	fieldSelectorFlag(cmd, show.PodFields)
	sortFlag(cmd, &sortBy, ".status.startTime", ".metadata.name", ".metadata.creationTimestamp",
		".status.containerStatuses[0].restartCount")
	cmd.Flags().BoolP("all", "a", true, "all pods, which is the default")
	_ = cmd.Flags().MarkHidden("all") // for users of podman ps -a; only fails for a flag that doesn't exist
	selectorFlag(cmd)
	outputFlag(cmd, slices.Concat([]string{"wide", "name"}, dataFormats)...)
	return cmd
}
