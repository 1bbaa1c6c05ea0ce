package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// namesOfPods is the help for the argument POD.
const namesOfPods = exactNamesOfPods + `,
or enough of the name's beginning to distinguish it from others.`

// exactNamesOfPods is the help for the argument POD of commands that accept no prefix of a name: if the named pod
// doesn't exist, a prefix could match another pod.
const exactNamesOfPods = `POD is the pod's name with or without the node's name at its end, NAMESPACE/NAME, pod/NAME`

func (a *app) stopCommand() *cobra.Command {
	return a.steeringCommand(&cobra.Command{
		Use:   "stop POD...",
		Short: "Stop pods, and keep them stopped",
		Long: `Stop pods, and keep them stopped until "deckhand start", also when the agent or the machine
is restarted. Each gets its grace period: preStop hooks run, and sidecars end after the
main containers. The command waits for that.

Their manifests stay, and may be edited. The files in their emptyDir volumes and their logs
are removed, as when a pod is deleted. Pods of an API server are refused: the agent would start
them again (use "kubectl delete pod").

` + namesOfPods,
		Example: `  deckhand stop web`,
	}, "stopped", func(ctx context.Context, client *local.Client, names ...types.NamespacedName) error {
		return client.StopPods(ctx, false, names...)
	})
}

func (a *app) startCommand() *cobra.Command {
	return a.steeringCommand(&cobra.Command{
		Use:   "start POD...",
		Short: "Run pods again that were stopped",
		Long: `Run pods again that "deckhand stop" has stopped. "deckhand pods" shows how they come up.

` + namesOfPods,
		Example: `  deckhand start web`,
	}, "started", func(ctx context.Context, client *local.Client, names ...types.NamespacedName) error {
		return client.StartPods(ctx, names...)
	})
}

func (a *app) restartCommand() *cobra.Command {
	return a.steeringCommand(&cobra.Command{
		Use:   "restart POD...",
		Short: "Stop pods, and start them again",
		Long: `Stop pods as "deckhand stop" does, and start them again once nothing of them is left: with
empty emptyDir volumes, and no restarts counted.

` + namesOfPods,
		Example: `  deckhand restart web`,
	}, "restarted", func(ctx context.Context, client *local.Client, names ...types.NamespacedName) error {
		return client.StopPods(ctx, true, names...)
	})
}

// steeringCommand completes the definition of cmd, and returns cmd. The command calls the function do for the named
// pods, and then prints the text done for each pod.
func (a *app) steeringCommand(cmd *cobra.Command, done string,
	do func(context.Context, *local.Client, ...types.NamespacedName) error) *cobra.Command {
	cmd.GroupID = groupRun
	cmd.Args = arguments(cobra.MinimumNArgs(1))
	cmd.ValidArgsFunction = a.completePods
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client := a.client(cmd)
		snapshot, err := client.Snapshot(cmd.Context())
		if err != nil {
			return err
		}
		var names []types.NamespacedName
		var unknown []error
		for _, arg := range args {
			p, err := show.FindPod(snapshot, flagValue(cmd, "namespace"), arg)
			if err != nil {
				unknown = append(unknown, err)
				continue
			}
			names = append(names, types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
		}
		if err := errors.Join(unknown...); err != nil {
			return err // if one name may be wrong, no pod is changed
		}
		if err := do(cmd.Context(), client, names...); err != nil {
			return err
		}
		for _, name := range names {
			if _, err := fmt.Fprintf(textTo(cmd), "%s: %s\n", name, done); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}
