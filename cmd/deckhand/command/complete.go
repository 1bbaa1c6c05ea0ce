package command

import (
	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
)

// completePod completes the name of the one pod that a command takes.
func (a *app) completePod(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completePods(cmd, args, typed)
}

// completePods completes pod names, and for `logs` the container's after the pod's.
func (a *app) completePods(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	snapshot, err := a.client(cmd).Snapshot(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	if cmd.Name() == "logs" && len(args) > 0 {
		p, err := show.FindPod(snapshot, flagValue(cmd, "namespace"), args[0])
		if err != nil || len(args) > 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for i := range p.Spec.Containers {
			names = append(names, p.Spec.Containers[i].Name)
		}
		for i := range p.Spec.InitContainers {
			names = append(names, p.Spec.InitContainers[i].Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	for _, view := range snapshot.Pods {
		if namespace := flagValue(cmd, "namespace"); namespace == "" || namespace == view.Pod.Namespace {
			names = append(names, view.Pod.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
