package command

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// completePod completes the name of a command's only pod.
func (a *app) completePod(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completePods(cmd, args, typed)
}

// completePods completes pod names, and for `logs` the container's name after the pod's.
func (a *app) completePods(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if cmd.Name() == "logs" && len(args) > 0 {
		if len(args) > 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.completeContainer(cmd, args, typed)
	}
	snapshot, err := a.client(cmd).Snapshot(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, view := range snapshot.Pods {
		if namespace := flagValue(cmd, "namespace"); namespace == "" || namespace == view.Pod.Namespace {
			names = append(names, view.Pod.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeContainers completes -c with the containers of the command's pod.
func (a *app) completeContainers(cmd *cobra.Command) {
	// It only fails for a flag that doesn't exist.
	_ = cmd.RegisterFlagCompletionFunc("container", a.completeContainer)
}

func (a *app) completeContainer(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	snapshot, err := a.client(cmd).Snapshot(cmd.Context())
	if err != nil || len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	p, err := show.FindPod(snapshot, flagValue(cmd, "namespace"), args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Collect(pod.ContainerNames(p)), cobra.ShellCompDirectiveNoFileComp
}

// completeNamespaces completes -n with the namespaces of the node's pods.
func (a *app) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	snapshot, err := a.client(cmd).Snapshot(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, view := range snapshot.Pods {
		names = append(names, view.Pod.Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

// completeLabels completes -L with the labels of the node's pods.
func (a *app) completeLabels(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	snapshot, err := a.client(cmd).Snapshot(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	keys := map[string]bool{}
	for _, view := range snapshot.Pods {
		for key := range view.Pod.Labels {
			keys[key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys)), cobra.ShellCompDirectiveNoFileComp
}
