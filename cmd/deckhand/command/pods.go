package command

import (
	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
)

func (a *app) podsCommand() *cobra.Command {
	var watch, containers bool
	cmd := &cobra.Command{
		Use:     "pods [NAME...]",
		Aliases: []string{"pod", "po", "ps"},
		GroupID: groupLook,
		Short:   "List pods, and why they aren't ready",
		Long: `List the pods that run or should run on this machine, the reason for any that isn't
ready, and what is wrong with manifests.`,
		Example: `  deckhand pods                       all pods
  deckhand pods web --containers      one pod and its containers
  deckhand pods -w                    go on and show changes
  deckhand pods -o yaml web           all there is to know of a pod`,
		ValidArgsFunction: a.completePods,
		RunE: func(cmd *cobra.Command, args []string) error {
			list := show.NewPodList(show.PodOptions{
				Format: flagValue(cmd, "output"), Namespace: flagValue(cmd, "namespace"), Names: args,
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
	outputFlag(cmd, "json", "yaml", "wide", "name")
	return cmd
}
