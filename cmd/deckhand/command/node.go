package command

import (
	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
)

func (a *app) nodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "node",
		Aliases: []string{"nodes", "no"},
		GroupID: groupLook,
		Short:   "Show what this node has, what of it is for pods, and which pod holds what",
		Long: `Show what this node has, what of it is reserved (systemReserved, kubeReserved, and what
evictionHard keeps free) and what is left for pods, which pod holds what of that and which
container which devices, the node's conditions and taints, and what is wrong. New pods are admitted by the same numbers.`,
		Example: `  deckhand node
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
			return show.Node(textTo(cmd), n, terminalWidth(cmd.OutOrStdout()), a.deps.Now())
		},
	}
	outputFlag(cmd, dataFormats...)
	return cmd
}
