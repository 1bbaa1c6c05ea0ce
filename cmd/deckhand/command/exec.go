package command

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/cmd/deckhand/command/streams"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// exitInterrupted is the exit code of a session that was ended by a signal.
const exitInterrupted = 130

// sessionOptions are the flags of commands with a session in a container.
type sessionOptions struct {
	container         string
	stdin, tty, quiet bool
}

func (o *sessionOptions) add(a *app, cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.container, "container", "c", "", "which container")
	o.addStreams(cmd)
	a.completeContainers(cmd)
}

func (o *sessionOptions) addStreams(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVarP(&o.stdin, "stdin", "i", false, "pass standard input on to it")
	flags.BoolVarP(&o.tty, "tty", "t", false, "standard input is a terminal, and so it is to the process")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print only the container's output")
}

func (a *app) execCommand() *cobra.Command {
	var o sessionOptions
	cmd := &cobra.Command{
		Use:     "exec [flags] POD -- COMMAND [ARGUMENT...]",
		GroupID: groupReach,
		Short:   "Run a command in a container",
		Long: `Run a command in a container that runs, and end with its exit code.

` + namesOfPods + `

With -it the command gets this terminal: each key, Ctrl-C too, goes to it. Without -t, Ctrl-C ends
this command only, with exit code 130; the process in the container gets no signal. COMMAND isn't
run by a shell: use -- sh -c "..." for one.`,
		Example: `  deckhand exec -it web -- sh                     a shell
  deckhand exec web -c nginx -- nginx -t          in one of several containers
  deckhand exec -i db -- psql < dump.sql          with input from a file`,
		ValidArgsFunction: a.completePod,
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case len(args) == 0 || dash == 0:
				return usagef(cmd, "POD is missing: %s", cmd.UseLine())
			case dash < 0 && len(args) > 1:
				return usagef(cmd, "the command has to stand behind --: deckhand exec %s -- %s", args[0], args[1])
			case dash < 0 || len(args) == dash:
				return usagef(cmd, "COMMAND is missing: %s", cmd.UseLine())
			case dash > 1:
				return usagef(cmd, "%q is one argument too many: %s", args[1], cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return interruptible(cmd, func(ctx context.Context) error {
				client := a.client(cmd)
				p, container, err := o.find(ctx, cmd, client, args[0])
				if err != nil {
					return err
				}
				err = o.join(ctx, cmd, func(query url.Values) (httpstream.Connection, error) {
					query[v1.ExecCommandParam] = args[1:]
					return client.Exec(ctx, p.Namespace, p.Name, container, query, streams.Protocol)
				}, false)
				if failed := (*streams.FailedError)(nil); errors.As(err, &failed) {
					err = fmt.Errorf("%w (`deckhand debug -it %s/%s --target %s --image IMAGE` starts one of another "+
						"image beside it, where this image has no such program)", err, p.Namespace, p.Name, container)
				}
				return err
			})
		},
	}
	o.add(a, cmd)
	return cmd
}

func (a *app) attachCommand() *cobra.Command {
	var o sessionOptions
	cmd := &cobra.Command{
		Use:     "attach [flags] POD",
		GroupID: groupReach,
		Short:   "Attach to the main process of a container",
		Long: `Print what the main process of a container prints from now on, until it ends. With -i it
gets standard input as well, if its spec says stdin: true, and with -it this terminal, if that says
tty: true. Ctrl-C goes to the process then, and otherwise ends this command only, with exit code 130.

` + namesOfPods,
		Example: `  deckhand attach web
  deckhand attach -it console`,
		ValidArgsFunction: a.completePod,
		Args:              arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return interruptible(cmd, func(ctx context.Context) error {
				client := a.client(cmd)
				p, container, err := o.find(ctx, cmd, client, args[0])
				if err != nil {
					return err
				}
				o.fit(cmd, p, container)
				return o.join(ctx, cmd, func(query url.Values) (httpstream.Connection, error) {
					return client.Attach(ctx, p.Namespace, p.Name, container, query, streams.Protocol)
				}, true)
			})
		},
	}
	o.add(a, cmd)
	return cmd
}

// interruptible runs a session in a container. If a signal or a hangup of the terminal ends it, the exit code is
// exitInterrupted: unlike the exit code of read-only commands, it must not look like success.
func interruptible(cmd *cobra.Command, run func(context.Context) error) error {
	ctx, end := untilHangUp(cmd.Context())
	defer end()
	err := run(ctx)
	if err != nil && ctx.Err() != nil {
		return &exitError{exitInterrupted}
	}
	return err
}

// find returns the selected pod and container. It returns an error if the container doesn't run.
func (o *sessionOptions) find(ctx context.Context, cmd *cobra.Command, client *local.Client,
	name string) (*v1.Pod, string, error) {
	snapshot, err := client.Snapshot(ctx)
	if err != nil {
		return nil, "", err
	}
	p, err := show.FindPod(snapshot, flagValue(cmd, "namespace"), name)
	if err != nil {
		return nil, "", err
	}
	container, remark, err := show.FindContainer(p, o.container)
	if err != nil {
		return nil, "", err
	}
	if remark != "" && !o.quiet {
		cmd.PrintErrln(remark)
	}
	return p, container, show.CheckRuns(snapshot, p, container)
}

// fit adapts the options to the streams that the container's process has.
func (o *sessionOptions) fit(cmd *cobra.Command, p *v1.Pod, container string) {
	c := pod.ContainerNamed(p, container)
	if o.stdin && !c.Stdin {
		o.stdin = false
		o.remark(cmd, "container %s has no standard input (stdin: true in its spec): nothing is passed on", container)
	}
	if o.tty && !c.TTY {
		o.remark(cmd, "container %s has no terminal (tty: true in its spec)", container)
	}
	o.tty = c.TTY // a process with a terminal has no separate standard error
}

func (o *sessionOptions) remark(cmd *cobra.Command, format string, args ...any) {
	if !o.quiet {
		cmd.PrintErrf(format+"\n", args...)
	}
}

// join starts a session and connects it to the standard streams until it ends. running means that the process was
// started before.
func (o *sessionOptions) join(ctx context.Context, cmd *cobra.Command,
	begin func(url.Values) (httpstream.Connection, error), running bool) error {
	ends := streams.Ends{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(), TTY: o.tty}
	if o.stdin {
		ends.In = cmd.InOrStdin()
	}
	screen := terminalOf(ends.In)
	if o.tty && screen == nil && !running {
		ends.TTY = false
		o.remark(cmd, "standard input isn't a terminal (or -i is missing): the command gets none")
	}
	if ends.TTY && screen != nil {
		sizes, stop := streams.NewSizes(screen)
		defer stop()
		sizes.Redraw = running
		ends.Sizes = sizes
	}
	conn, err := begin(ends.Query())
	if err != nil {
		return err
	}
	if ends.Sizes == nil {
		err = ends.Join(ctx, conn)
	} else {
		err = joinRaw(ctx, cmd, &ends, conn, screen, func() {
			if running {
				// Further input goes to the process. A terminal in raw mode needs \r\n at the end of a line.
				o.remark(cmd, "If you don't see a command prompt, try pressing enter.\r")
			}
		})
	}
	if exit := (*streams.ExitError)(nil); errors.As(err, &exit) {
		o.remark(cmd, "%v", exit)
		err = &exitError{exit.Code}
	}
	return err
}

// joinRaw joins a session whose process gets each key press, and restores the terminal at the end. begun is called
// once the terminal is in raw mode.
func joinRaw(ctx context.Context, cmd *cobra.Command, ends *streams.Ends, conn httpstream.Connection, screen *os.File,
	begun func()) error {
	defer outliveReaders()() // SIGPIPE would leave the terminal in raw mode if the reader of standard output exits
	restore, err := streams.Raw(screen)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	restore = sync.OnceValue(restore)
	// Restore at once when a signal ends the session: the process may not end soon, and a second signal ends the
	// program immediately.
	context.AfterFunc(ctx, func() { _ = restore() }) // the deferred call reports the error
	defer func() {
		if err := restore(); err != nil {
			cmd.PrintErrln("error:", err)
		}
	}()
	begun()
	return ends.Join(ctx, conn)
}
