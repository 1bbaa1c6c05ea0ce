package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

func (a *app) imagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "images",
		Aliases: []string{"image"},
		GroupID: groupLook,
		Short:   "List images and which pods use them; pull, import, save, tag and remove images",
		Example: `  deckhand images                              images on this node, and the pods that use them
  deckhand images pull example.com/web:1       pull an image in advance
  deckhand images import web.tar               import an archive (docker save, OCI)
  deckhand images save web:1 -o web.tar        write an archive, for another machine
  deckhand images tag web:1 web:stable         give an image another name
  deckhand images prune --dry-run              list unused images`,
		Args: arguments(cobra.NoArgs),
		RunE: a.listImages,
	}
	outputFlag(cmd, dataFormats...)
	list := a.listImagesCommand()
	list.Hidden = true
	cmd.AddCommand(list, a.pullImageCommand(), a.importImageCommand(), a.saveImagesCommand(), a.tagImageCommand(),
		a.removeImageCommand(), a.pruneImagesCommand(), a.inspectImageCommand())
	return cmd
}

func (a *app) listImagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List images and which pods use them",
		Args:    arguments(cobra.NoArgs),
		RunE:    a.listImages,
	}
	outputFlag(cmd, dataFormats...)
	return cmd
}

func (a *app) listImages(cmd *cobra.Command, _ []string) error {
	images, err := a.client(cmd).Images(cmd.Context())
	if err != nil {
		return err
	}
	if done, err := show.As(textTo(cmd), flagValue(cmd, "output"), show.ImageList(images)); done {
		return err
	}
	if len(images) == 0 {
		none(cmd, "images")
		return nil
	}
	return writeTable(cmd, show.ImageRows(images, a.deps.Now()))
}

func writeTable(cmd *cobra.Command, rows [][]string) error {
	t := show.Table{MaxWidth: terminalWidth(cmd.OutOrStdout())}
	return t.Write(textTo(cmd), rows...)
}

func (a *app) pullImageCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Pull images, with the node's own credentials",
		Long: `Pull images with the node's own credentials (its docker configuration and credential
providers), as a pod without pull secrets would. Ctrl-C gives the pull up, unless a pod
waits for the same image.`,
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			var failed []error
			for _, name := range args {
				if err := a.pullImage(cmd, name); err != nil {
					failed = append(failed, err)
				}
				if cmd.Context().Err() != nil {
					return cmd.Context().Err()
				}
			}
			return errors.Join(failed...)
		},
	}
}

// pullImage prints the result of a pull and, on a terminal, its progress in place.
func (a *app) pullImage(cmd *cobra.Command, name string) error {
	const eraseLine = "\r\x1b[K"
	screen := terminalOf(cmd.ErrOrStderr())
	begun := a.deps.Now()
	if screen == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "pulling %s\n", terminal.Keep(name))
	}
	for update, err := range a.client(cmd).PullImage(cmd.Context(), name) {
		if screen != nil {
			fmt.Fprint(screen, eraseLine)
		}
		switch {
		case err != nil:
			return err
		case update.Image != nil:
			fmt.Fprintf(textTo(cmd), "pulled %s (%s, %s)\n", name, show.Bytes(update.Image.Size),
				a.deps.Now().Sub(begun).Round(time.Millisecond))
		case screen != nil && update.Progress != nil:
			line := fmt.Sprintf("pulling %s: %s", terminal.Keep(name), show.PullProgress(update.Progress, a.deps.Now()))
			fmt.Fprint(screen, show.CutLine(line, terminalWidth(screen)))
		}
	}
	return nil
}

func (a *app) importImageCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "import FILE...",
		Aliases: []string{"load"},
		Short:   "Import the images of archives (docker save, OCI)",
		Long: `Import the images of archives, as docker save and other tools write them. FILE may be - for
standard input. An archive in the images directory is imported automatically when it appears,
and when the agent starts and its images are gone.`,
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			var failed []error
			for _, name := range args {
				if err := a.importImages(cmd.Context(), cmd, name); err != nil {
					failed = append(failed, fmt.Errorf("import %s: %w", name, err))
				}
			}
			return errors.Join(failed...)
		},
	}
}

func (a *app) importImages(ctx context.Context, cmd *cobra.Command, name string) error {
	archive := io.NopCloser(cmd.InOrStdin())
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		archive = f
	}
	defer archive.Close()
	names, err := a.client(cmd).ImportImages(ctx, archive)
	if err != nil {
		return err
	}
	for _, image := range names {
		fmt.Fprintln(textTo(cmd), image)
	}
	return nil
}

func (a *app) saveImagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "save IMAGE... [-o FILE]",
		Short: "Write images into an archive (for images import, docker load, ctr import)",
		Long: `Write images into one archive, not compressed, which ` + "`deckhand images import`" + `, docker load and
ctr images import read. IMAGE is a name, or an ID for an image with all its names. The archive
has the images for this machine's platform. It is written to the standard output, unless that is a
terminal, or to FILE, which is created or replaced once the archive is complete.`,
		Example: `  deckhand images save web:1 db:2 -o images.tar
  deckhand images save web:1 | ssh other deckhand images import -`,
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			file := flagValue(cmd, "output")
			if file == "" {
				return usagef(cmd, "-o names no file")
			}
			if file == "-" && terminalOf(cmd.OutOrStdout()) != nil {
				return usagef(cmd, "an archive isn't written to a terminal: name a file with -o FILE, or redirect "+
					"the output")
			}
			err := a.saveImages(cmd, args, file)
			if err != nil && file != "-" {
				return fmt.Errorf("save into %s: %w", file, err)
			}
			return err
		},
	}
	cmd.Flags().StringP("output", "o", "-", "write the archive to this `file`; - is the standard output")
	_ = cmd.MarkFlagFilename("output", "tar") // the flag exists
	return cmd
}

// saveImages saves images to a file; "-" is the standard output.
func (a *app) saveImages(cmd *cobra.Command, images []string, file string) error {
	// A hangup cancels ctx instead of ending the program, so that the temporary file is removed.
	ctx, end := untilHangUp(cmd.Context())
	defer end()
	archive, err := a.client(cmd).SaveImages(ctx, images)
	if err != nil {
		return err
	}
	defer archive.Close()
	if file == "-" {
		_, err := io.Copy(cmd.OutOrStdout(), archive)
		return err
	}
	size, err := writeWhole(file, archive)
	if err != nil {
		return err
	}
	fmt.Fprintf(textTo(cmd), "saved %s to %s (%s)\n", strings.Join(images, ", "), file, show.Bytes(uint64(size)))
	return nil
}

// writeWhole writes content to a file, which is created or replaced only after all of it is on disk. It returns the
// size in bytes. If path isn't a regular file, but a pipe for example, it is written to directly.
func writeWhole(path string, content io.Reader) (size int64, err error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return 0, err
		}
		size, err := io.Copy(f, content)
		return size, errors.Join(err, f.Close())
	}
	// The new file would replace the symlink itself: for /dev/stdout, that would change /dev.
	if link, err := os.Lstat(path); err == nil && link.Mode().Type() == fs.ModeSymlink {
		return 0, errors.New("it is a symbolic link: name the file that it leads to, or - for the standard output")
	}
	f, err := atomicfile.Create(path, 0o600)
	if err != nil {
		return 0, err
	}
	if size, err = io.Copy(f, content); err != nil {
		return 0, errors.Join(err, f.Abandon())
	}
	return size, f.Commit()
}

func (a *app) tagImageCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "tag SOURCE TARGET",
		Short: "Give an image a further name",
		Long: `Give an image, by name, digest or ID, a further name. Without a tag that is NAME:latest, without a
registry docker.io's. Another image that has the name loses it, and pods that use it run on. Pods
may use the image by the further name as by the others. One that was pulled with a pull secret they
may use only by names of the repository that it was pulled from, and with the secret: by another
one it would have to be pulled.`,
		Example: `  deckhand images tag registry.example.com/web:1 web:stable
  deckhand images tag 0123456789ab web:2`,
		Args: arguments(cobra.ExactArgs(2)),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeImages(cmd, args, begin)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			tagged, err := a.client(cmd).TagImage(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			fmt.Fprintf(textTo(cmd), "tagged %s as %s\n", args[0], tagged.Name)
			if tagged.Before != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "image %s had that name before\n", terminal.Keep(tagged.Before))
			}
			return nil
		},
	}
}

func (a *app) removeImageCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "rm IMAGE...",
		Aliases: []string{"remove"},
		Short:   "Remove images that nothing uses, by name, digest or ID",
		Long: `Remove images that nothing uses, by name, digest or ID. An image that has other names too
stays by those, and only loses the name that is given; by its ID it is removed as a whole.`,
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			var failed []error
			for _, name := range args {
				removed, err := a.client(cmd).RemoveImage(cmd.Context(), name)
				if err != nil {
					failed = append(failed, err)
					continue
				}
				if len(removed.Untagged) > 0 {
					fmt.Fprintf(textTo(cmd),
						"untagged %s; the image is still here as %s\n", strings.Join(removed.Untagged, ", "),
						show.ImageName(&removed.Image))
					continue
				}
				fmt.Fprintf(textTo(cmd), "removed %s (%s)\n", show.ImageName(&removed.Image),
					show.Bytes(removed.Image.Size))
			}
			return errors.Join(failed...)
		},
	}
}

func (a *app) inspectImageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "inspect IMAGE...",
		Short:             "Print all there is to know of images, by name, digest or ID",
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			images, err := a.client(cmd).Images(cmd.Context())
			if err != nil {
				return err
			}
			var found []image.Image
			var missing []error
			for _, name := range args {
				i := slices.IndexFunc(images, func(i image.Image) bool { return show.IsImage(&i, name) })
				if i < 0 {
					missing = append(missing,
						fmt.Errorf("image %q isn't here: `deckhand images` lists those that are", name))
					continue
				}
				found = append(found, images[i])
			}
			if len(found) > 0 {
				if _, err := show.As(textTo(cmd), flagValue(cmd, "output"), show.ImageList(found)); err != nil {
					return err
				}
			}
			return errors.Join(missing...)
		},
	}
	outputFlag(cmd, dataFormats...)
	output := cmd.Flags().Lookup("output")
	output.DefValue = "yaml"
	_ = output.Value.Set(output.DefValue) // any string is accepted
	return cmd
}

func (a *app) pruneImagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove all images that nothing uses",
		Long: `Remove all images that nothing uses. It lists them, and asks. Where nobody can answer it
needs --yes.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dryRun := flagValue(cmd, "dry-run") == "true"
			if !dryRun && flagValue(cmd, "yes") != "true" {
				if any, err := a.confirmPrune(cmd); err != nil || !any {
					return err
				}
			}
			list, err := a.client(cmd).PruneImages(cmd.Context(), dryRun)
			if err != nil {
				return err
			}
			if done, err := show.As(textTo(cmd), flagValue(cmd, "output"), show.RemovedImageList(list)); done {
				return err
			}
			if len(list) > 0 {
				if err := writeTable(cmd, show.RemovedImageRows(list, dryRun)); err != nil {
					return err
				}
			}
			fmt.Fprintln(cmd.ErrOrStderr(), show.Freed(list, dryRun))
			return nil
		},
	}
	cmd.Flags().Bool("dry-run", false, "only say what would be removed, and why the rest stays")
	yesFlag(cmd)
	outputFlag(cmd, "json", "yaml")
	return cmd
}

// confirmPrune lists the unused images on standard error, and asks whether to remove them. The result any reports
// whether there are unused images.
func (a *app) confirmPrune(cmd *cobra.Command) (any bool, err error) {
	list, err := a.client(cmd).PruneImages(cmd.Context(), true)
	if err != nil {
		return false, err
	}
	for i := range list {
		if list[i].Removed {
			any = true
			fmt.Fprintf(cmd.ErrOrStderr(), "  %s (%s)\n", terminal.Keep(show.ImageName(&list[i].Image)),
				show.Bytes(list[i].Image.Size))
		}
	}
	fmt.Fprintln(cmd.ErrOrStderr(), show.Freed(list, true))
	if !any {
		return false, nil
	}
	return true, a.confirm(cmd, "Remove these images?")
}

// completeImages completes the names of images.
func (a *app) completeImages(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	images, err := a.client(cmd).Images(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range images {
		names = append(names, show.ImageName(&images[i]))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
