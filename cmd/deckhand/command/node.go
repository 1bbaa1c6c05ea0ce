package command

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

func (a *app) nodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "node",
		Aliases: []string{"nodes", "no"},
		GroupID: groupLook,
		Short:   "Show the node's capacity, allocatable and the resources of each pod",
		Long: `Show the node's capacity, the reserved resources (systemReserved, kubeReserved and the
thresholds of evictionHard) and the allocatable ones, the resources of each pod and the devices
of each container, the node's conditions and taints, its problems, and its warning events of the
last hour. New pods are admitted by the same numbers. The thresholds for evictions
are listed while the node is short of a resource, and with -o wide.`,
		Example: `  deckhand node
  deckhand node -o wide
  deckhand node -o jsonpath={.allocatable.memory}
  deckhand node -o json`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := a.client(cmd).Node(cmd.Context())
			if err != nil {
				return err
			}
			if done, err := show.As(textTo(cmd), flagValue(cmd, "output"), show.NodeObject(n)); done {
				return err
			}
			events, err := a.client(cmd).Events(cmd.Context())
			if err != nil {
				return err
			}
			now := a.deps.Now()
			return show.Node(textTo(cmd), n, show.NodeWarnings(events, n.Name, now),
				flagValue(cmd, "output") == "wide", terminalWidth(cmd.OutOrStdout()), now)
		},
	}
	outputFlag(cmd, slices.Concat([]string{"wide"}, dataFormats)...)
	return cmd
}

// nodesCommand is `get nodes`: this node on one line.
func (a *app) nodesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "nodes [NAME]",
		Aliases: []string{"node", "no"},
		Short:   "List this node",
		Args:    arguments(cobra.MaximumNArgs(1)),
		RunE:    a.listNodes,
	}
	outputFlag(cmd, slices.Concat([]string{"wide", "name"}, dataFormats)...)
	return cmd
}

func (a *app) listNodes(cmd *cobra.Command, names []string) error {
	n, err := a.ownNode(cmd, names)
	if err != nil {
		return err
	}
	format := flagValue(cmd, "output")
	if format == "name" {
		fmt.Fprintln(textTo(cmd), "node/"+terminal.Line(n.Name))
		return nil
	}
	var data any = show.NodeObject(n)
	if len(names) == 0 {
		data = show.ListOf([]any{data})
	}
	if done, err := show.As(textTo(cmd), format, data); done {
		return err
	}
	snapshot, err := a.client(cmd).Snapshot(cmd.Context())
	if err != nil {
		return err
	}
	return writeTable(cmd, show.NodeListRows(&n, &snapshot.Agent, format == "wide", a.deps.Now()))
}

// ownNode returns the node; all names must be its name.
func (a *app) ownNode(cmd *cobra.Command, names []string) (local.Node, error) {
	n, err := a.client(cmd).Node(cmd.Context())
	if err != nil {
		return n, err
	}
	for _, name := range names {
		if name != n.Name {
			return n, fmt.Errorf("this node is called %s, not %s: an agent knows its own only", n.Name, name)
		}
	}
	return n, nil
}
