package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
)

func (a *app) describeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "describe pod|node [NAME...]",
		GroupID: groupLook,
		Short:   "Show details of pods or the node, with their events",
		Long: `Show details of pods (images, commands, ports, variables without values of Secrets, mounts,
limits, state, conditions, volumes) or of the node, with their events, in kubectl's layout.
"deckhand why" is the short answer: why a pod waits, and how to fix it.

` + namesOfPods + ` Without NAME all pods are shown. The word
"pod" may be left out before a name.`,
		Example: `  deckhand describe pod web
  deckhand describe pods -l app=web
  deckhand describe node`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				pods, _ := a.completePods(cmd, args, typed)
				return append([]string{"pod", "node"}, pods...), cobra.ShellCompDirectiveNoFileComp
			}
			return a.completePods(cmd, args, typed)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef(cmd, "say what: pod or node")
			}
			kind, name, named := strings.Cut(args[0], "/")
			switch {
			case isNodeKind(kind):
				if named {
					args = append([]string{name}, args[1:]...)
				} else {
					args = args[1:]
				}
				return a.describeNode(cmd, args)
			case !named && isPodKind(kind):
				args = args[1:]
			case named && isPodKind(kind):
			default:
				// A single word may be a pod's name.
				if _, other := show.OtherKind(kind, a.inCluster(cmd)); other && (named || len(args) > 1) {
					return a.noSuchKind(cmd, kind)
				}
			}
			return a.describePods(cmd, args)
		},
	}
	selectorFlag(cmd)
	return cmd
}

func (a *app) describePods(cmd *cobra.Command, names []string) error {
	ctx, client := cmd.Context(), a.client(cmd)
	selector, err := selector(cmd)
	if err != nil {
		return err
	}
	snapshot, err := client.Snapshot(ctx)
	if err != nil {
		return err
	}
	list := show.NewPodList(
		show.PodOptions{Selector: selector, Namespace: flagValue(cmd, "namespace"), Names: names, Now: a.deps.Now})
	views, missing := list.Choose(snapshot)
	if len(views) == 0 && missing == nil {
		none(cmd, "pods")
	}
	for i := range views {
		if i > 0 {
			fmt.Fprint(textTo(cmd), "\n\n")
		}
		explanation, err := client.Why(ctx, views[i].Pod.Namespace, views[i].Pod.Name)
		if err != nil {
			return err
		}
		if err := show.DescribePod(textTo(cmd), &explanation, a.deps.Now()); err != nil {
			return err
		}
	}
	return missing
}

func (a *app) describeNode(cmd *cobra.Command, names []string) error {
	ctx, client := cmd.Context(), a.client(cmd)
	n, err := a.ownNode(cmd, names)
	if err != nil {
		return err
	}
	events, err := client.Events(ctx)
	if err != nil {
		return err
	}
	return show.DescribeNode(textTo(cmd), n, events, a.deps.Now(), terminalWidth(cmd.OutOrStdout()))
}
