package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

func (a *app) volumesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "volumes",
		Aliases: []string{"volume"},
		GroupID: groupLook,
		Short:   "List volumes that CSI drivers hold; forget one without its driver",
		Long: `List the volumes of pods that CSI drivers hold on this node, and the reasons why a mount or a
release waits. A volume that is staged for all pods of the node has a line of its own.

"deckhand describe pod POD" shows all volumes of a pod.`,
		Example: `  deckhand volumes
  deckhand volumes forget UID/NAME        remove a volume whose driver was uninstalled`,
		Args: arguments(cobra.NoArgs),
		RunE: a.listVolumes,
	}
	outputFlag(cmd, dataFormats...)
	list := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: cmd.Short, Args: arguments(cobra.NoArgs),
		RunE: a.listVolumes, Hidden: true}
	outputFlag(list, dataFormats...)
	cmd.AddCommand(list, a.forgetVolumeCommand())
	return cmd
}

func (a *app) listVolumes(cmd *cobra.Command, _ []string) error {
	volumes, err := a.client(cmd).Volumes(cmd.Context())
	if err != nil {
		return err
	}
	if done, err := show.As(textTo(cmd), flagValue(cmd, "output"), show.VolumeList(volumes)); done {
		return err
	}
	if len(volumes) == 0 {
		none(cmd, "volumes of CSI drivers")
		return nil
	}
	return writeTable(cmd, show.VolumeRows(volumes))
}

// stillHeld is the risk of a volume that was removed without its driver.
const stillHeld = "the driver isn't called: the storage system may still think that this node holds the volume, and " +
	"refuse it to other nodes"

func (a *app) forgetVolumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget VOLUME",
		Short: "Unmount a volume and remove its record, without its CSI driver",
		Long: `Unmount a volume and remove its record, without its CSI driver. A pod that ends waits for the
driver of its volumes. If the driver was uninstalled, this is the way to end the wait.

VOLUME is UID/NAME, the pod's UID and the name of the volume's directory, or DRIVER^HANDLE for a
staged volume; "deckhand volumes" lists both. A staged volume is forgotten together with the last
volume that uses it. The pod must have been deleted, and its containers must have ended.

The storage system isn't asked: it may still think that this node holds the volume. Detach the
volume there before another node uses it. If the driver can come back, start it instead.`,
		Example: `  deckhand volumes forget 8e1f7a0c-4f0e-4a68-9f7b-6f3f5b2c9f10/data`,
		Args:    arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeVolumes(cmd)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			id := args[0]
			if err := a.confirm(cmd, fmt.Sprintf("Forget volume %s? Note that %s.", terminal.Line(id),
				stillHeld)); err != nil {
				return err
			}
			forgotten, err := a.client(cmd).ForgetVolume(cmd.Context(), id)
			if err != nil {
				return err
			}
			fmt.Fprintf(textTo(cmd), "forgot %s\n", id)
			if forgotten.Staged != "" {
				fmt.Fprintf(textTo(cmd), "forgot %s, which no other volume used\n", forgotten.Staged)
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "Nothing of it is mounted on this node any more. Note that "+stillHeld+".")
			return nil
		},
	}
	yesFlag(cmd)
	return cmd
}

// completeVolumes completes the volumes that no pod wants any more: others can't be forgotten.
func (a *app) completeVolumes(cmd *cobra.Command) ([]string, cobra.ShellCompDirective) {
	volumes, err := a.client(cmd).Volumes(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, v := range volumes {
		if v.State == local.VolumeReleasing {
			ids = append(ids, v.ID)
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
