package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/streams"
	"github.com/deckhand-node/deckhand/cmd/deckhand/command/transfer"
	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

func (a *app) cpCommand() *cobra.Command {
	var container string
	var noPreserve bool
	cmd := &cobra.Command{
		Use:     "cp SOURCE TARGET",
		GroupID: groupReach,
		Short:   "Copy files to and from containers",
		Long: `Copy a file or a directory to a container (POD:PATH, or NAMESPACE/POD:PATH) or from one. It needs
the program tar in the container, and test to copy to it. In an existing directory, the copy keeps
its own name.

Existing files are replaced. Symbolic links are copied as links; links from a container that lead
out of the copied tree are omitted, with a message. A local name with a colon is written as
./NAME.

` + namesOfPods,
		Example: `  deckhand cp site/ web:/var/www                 a directory, as /var/www/site
  deckhand cp -c log web:/var/log/web.log .      a file, from one of several containers`,
		Args:              arguments(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeCopy,
		RunE: func(cmd *cobra.Command, args []string) error {
			from, there := remotePath(args[0])
			to, here := remotePath(args[1])
			switch {
			case there && here:
				return usagef(cmd, "one of SOURCE and TARGET has to be on this machine")
			case !there && !here:
				return usagef(cmd, "one of SOURCE and TARGET has to be in a container, as POD:PATH")
			case there && from.path == "" || here && to.path == "":
				return usagef(cmd, "the path in the container is missing behind the colon")
			}
			pod := from.pod + to.pod
			o := sessionOptions{container: container}
			return interruptible(cmd, func(ctx context.Context) error {
				client := a.client(cmd)
				p, name, err := o.find(ctx, cmd, client, pod)
				if err != nil {
					return err
				}
				c := &copier{cmd: cmd, client: client, pod: p, container: name}
				if there {
					return c.download(ctx, from.path, args[1])
				}
				return c.upload(ctx, args[0], to.path, noPreserve)
			})
		},
	}
	cmd.Flags().StringVarP(&container, "container", "c", "", "which container")
	cmd.Flags().BoolVar(&noPreserve, "no-preserve", false,
		"let files in the container have its user as their owner, and its default modes")
	_ = cmd.RegisterFlagCompletionFunc("container",
		func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			for _, arg := range args { // only fails for a flag that doesn't exist
				if r, there := remotePath(arg); there {
					return a.completeContainer(cmd, []string{r.pod}, typed)
				}
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		})
	return cmd
}

// completeCopy completes names of pods; the shell completes paths.
func (a *app) completeCopy(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 || strings.ContainsAny(typed, ":./") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	names, _ := a.completePods(cmd, nil, typed)
	var list []string
	for _, name := range names {
		if strings.HasPrefix(name, typed) {
			list = append(list, name+":")
		}
	}
	return list, cobra.ShellCompDirectiveNoSpace
}

// remote is a path in a container.
type remote struct{ pod, path string }

// remotePath parses POD:PATH; it returns false for a path on this machine.
func remotePath(arg string) (r remote, there bool) {
	if strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, ".") {
		return r, false
	}
	pod, p, there := strings.Cut(arg, ":")
	if !there || pod == "" {
		return r, false
	}
	return remote{pod, p}, true
}

// copier copies files to and from a container, with the program tar in the container.
type copier struct {
	cmd       *cobra.Command
	client    *local.Client
	pod       *v1.Pod
	container string
}

// run runs a command in the container.
func (c *copier) run(ctx context.Context, in io.Reader, out, errs io.Writer, command ...string) error {
	ends := streams.Ends{In: in, Out: out, Err: errs}
	query := ends.Query()
	query[v1.ExecCommandParam] = command
	conn, err := c.client.Exec(ctx, c.pod.Namespace, c.pod.Name, c.container, query, streams.Protocol)
	if err != nil {
		return err
	}
	return ends.Join(ctx, conn)
}

// tar runs tar in the container. Its errors go to the standard error of the command.
func (c *copier) tar(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
	errs := c.cmd.ErrOrStderr()
	if terminalOf(errs) != nil {
		errs = terminal.NewWriter(errs)
	}
	err := c.run(ctx, in, out, errs, append([]string{"tar"}, args...)...)
	if exit := (*streams.ExitError)(nil); errors.As(err, &exit) {
		return fmt.Errorf("tar in container %s ended with exit code %d", c.container, exit.Code)
	}
	return c.explain("tar", err)
}

// explain adds to err that the container can't run program, if that is the reason for the error.
func (c *copier) explain(program string, err error) error {
	if failed := (*streams.FailedError)(nil); errors.As(err, &failed) {
		return fmt.Errorf("container %s of pod %s can't run %s, which copying takes: %w", c.container, c.pod.Name,
			program, err)
	}
	return err
}

func (c *copier) remark(text string) { c.cmd.PrintErrln(terminal.Keep(text)) }

// split returns the directory and the base name of a path; the name is "." for a path such as / or "..".
func split(p string) (dir, name string) {
	p = filepath.Clean(p)
	if dir, name = filepath.Dir(p), filepath.Base(p); name == "/" || name == ".." {
		return p, "."
	}
	return dir, name
}

// download copies a file or directory in the container, the parameter from, to a local path, the parameter to.
func (c *copier) download(ctx context.Context, from, to string) error {
	dir, name := split(from)
	into, as := to, name
	if info, err := os.Stat(to); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		if err == nil && !info.Mode().IsRegular() {
			return fmt.Errorf("%s is neither a file nor a directory: nothing takes its place", to)
		}
		into, as = split(to)
		if err := os.MkdirAll(into, 0o777); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	root, err := os.OpenRoot(into)
	if err != nil {
		return err
	}
	defer root.Close()
	archive, packed := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		u := transfer.Unpacking{Into: root, To: as, From: name, Remark: c.remark}
		err := u.Read(archive)
		archive.CloseWithError(err) // an error ends the session
		unpacked <- err
	}()
	err = c.tar(ctx, nil, packed, "-cf", "-", "-C", dir, "./"+name)
	packed.CloseWithError(err)
	if bad := <-unpacked; bad != nil && (err == nil || !errors.Is(bad, err)) {
		return bad
	}
	return err
}

// upload copies a local file or directory, the parameter from, to a path in the container, the parameter to.
func (c *copier) upload(ctx context.Context, from, to string, noPreserve bool) error {
	dir, name := split(from)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err := root.Lstat(name); err != nil {
		return err
	}
	into, as := path.Clean(to), name
	if err := c.run(ctx, nil, io.Discard, io.Discard, "test", "-d", to); err != nil {
		if exit := (*streams.ExitError)(nil); !errors.As(err, &exit) {
			return c.explain("test", err)
		}
		into, as = split(to)
	}
	args := []string{"-xmf", "-", "-C", into}
	if noPreserve {
		args = append([]string{"--no-same-permissions", "--no-same-owner"}, args...)
	}
	archive, packed := io.Pipe()
	read := make(chan error, 1)
	go func() {
		err := transfer.Pack(packed, root, name, as, c.remark)
		packed.CloseWithError(err)
		read <- err
	}()
	err = c.tar(ctx, archive, io.Discard, args...)
	archive.Close() // tar may have ended before
	if bad := <-read; bad != nil && !errors.Is(bad, io.ErrClosedPipe) {
		return bad
	}
	return err
}
