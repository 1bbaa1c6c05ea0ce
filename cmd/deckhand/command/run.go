package command

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/foreground"
)

func (a *app) runCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "run FILE",
		GroupID: groupRun,
		Short:   "Run a manifest's pods in the foreground, with their logs",
		Long: `Run the pods of a manifest in the foreground and print their logs. Ctrl-C stops and
removes them. When all have ended by themselves (restartPolicy Never or OnFailure), they
are removed and the command ends; with a single container, it ends with its exit code.

FILE may be - for standard input.`,
		Example: `  deckhand run job.yaml
  generate-pod | deckhand run -`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			manifest, origin, err := readManifest(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			code, err := foreground.Run(cmd.Context(), a.client(cmd), origin, manifest, cmd.OutOrStdout(),
				cmd.ErrOrStderr())
			if err == nil && code != exitOK {
				return &exitError{code}
			}
			return err
		},
	}
}

func readManifest(stdin io.Reader, name string) (manifest []byte, origin string, err error) {
	if name == "-" {
		manifest, err = io.ReadAll(stdin)
		if err != nil {
			return nil, "", fmt.Errorf("read the manifest from standard input: %w", err)
		}
		return manifest, "stdin", nil
	}
	if manifest, err = os.ReadFile(name); err != nil {
		return nil, "", fmt.Errorf("read the manifest: %w", err)
	}
	origin, err = filepath.Abs(name)
	return manifest, origin, err
}
