package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/internal/cli/format"
	"github.com/deckhand-node/deckhand/internal/cli/table"
	"github.com/deckhand-node/deckhand/internal/local"
)

func (a *app) imagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "images",
		Aliases: []string{"image"},
		GroupID: groupLook,
		Short:   "List images, and which pods use them",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			images, err := a.client(cmd).Images(cmd.Context())
			if err != nil {
				return err
			}
			if done, err := format.As(textTo(cmd), flagValue(cmd, "output"), images); done {
				return err
			}
			if len(images) == 0 {
				none(cmd, "images")
				return nil
			}
			t := table.Table{MaxWidth: terminalWidth(cmd.OutOrStdout())}
			return t.Write(textTo(cmd), imageRows(images)...)
		},
	}
	outputFlag(cmd, "json", "yaml")
	return cmd
}

func imageRows(images []local.Image) [][]string {
	rows := [][]string{}
	for _, image := range images {
		id := strings.TrimPrefix(image.ID, "sha256:")
		id = id[:min(len(id), 12)]
		names := image.Refs
		if len(names) == 0 && len(image.Digests) > 0 {
			names = image.Digests[:1]
		}
		if len(names) == 0 {
			names = []string{"<none>"}
		}
		for _, name := range names {
			rows = append(rows, []string{name, id, humanSize(image.Size), strings.Join(image.UsedBy, ",")})
		}
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return append([][]string{{"IMAGE", "ID", "SIZE", "USED BY"}}, rows...)
}

// humanSize is a size in decimal units, as image tools print it.
func humanSize(bytes uint64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	size, unit := float64(bytes), 0
	for size >= 999.5 && unit < len(units)-1 {
		size /= 1000
		unit++
	}
	if unit == 0 || size >= 99.95 {
		return fmt.Sprintf("%.0f%s", size, units[unit])
	}
	return fmt.Sprintf("%.1f%s", size, units[unit])
}
