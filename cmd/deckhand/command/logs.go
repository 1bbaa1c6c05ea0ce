package command

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/runtime/logs"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

func (a *app) logsCommand() *cobra.Command {
	var request local.LogRequest
	var container string
	var since time.Duration
	var stream string
	var restarts bool
	cmd := &cobra.Command{
		Use:     "logs [flags] POD [CONTAINER]",
		Aliases: []string{"log"},
		GroupID: groupLook,
		Short:   "Print a container's log",
		Long: `Print the log of a container.

` + namesOfPods + `

With -f it goes on when the container is restarted, and says so on standard error.`,
		Example: `  deckhand logs web                  of the only container of a pod
  deckhand logs -f web nginx         of one of several containers, and go on
  deckhand logs -p web               of the container before the last restart
  deckhand logs --since 5m --timestamps web`,
		Args:              arguments(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: a.completePods,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				if container != "" {
					return usagef(cmd, "name the container once: %s or -c %s", args[1], container)
				}
				container = args[1]
			}
			if request.LimitBytes < 0 {
				return usagef(cmd, "--limit-bytes must be positive")
			}
			if since < 0 {
				return usagef(cmd, "--since must be positive")
			}
			if err := parseStream(cmd, stream, &request); err != nil {
				return err
			}
			if since > 0 {
				request.Since = a.deps.Now().Add(-since)
			}
			return printLog(cmd, a.client(cmd), request, args[0], container, restarts)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&request.Follow, "follow", "f", false, "go on as the log grows")
	flags.BoolVar(&restarts, "restarts", true, "with -f, go on after restarts; with =false, until the container ends")
	flags.BoolVarP(&request.Previous, "previous", "p", false, "of the instance before the last restart")
	flags.Int64Var(&request.Tail, "tail", -1, "begin with the last `N` lines; -1 for all")
	flags.DurationVar(&since, "since", 0, "only what is newer than this, such as 5s, 2m or 3h")
	flags.BoolVar(&request.Timestamps, "timestamps", false, "put the time before each line")
	flags.Int64Var(&request.LimitBytes, "limit-bytes", 0, "end after so many bytes; 0 for no limit")
	flags.StringVar(&stream, "stream", "all", "only this `OUTPUT`: stdout or stderr")
	flags.StringVarP(&container, "container", "c", "", "which container")
	return cmd
}

func printLog(cmd *cobra.Command, client *local.Client, request local.LogRequest, name, container string, restarts bool) error {
	ctx := cmd.Context()
	snapshot, err := client.Snapshot(ctx)
	if err != nil {
		return err
	}
	p, err := show.FindPod(snapshot, flagValue(cmd, "namespace"), name)
	if err != nil {
		return err
	}
	if container, err = show.FindContainer(p, container); err != nil {
		return err
	}
	request.Namespace, request.Pod, request.Container = p.Namespace, p.Name, container
	if request.Follow && restarts {
		err = client.FollowLogs(ctx, request, cmd.OutOrStdout(), func(instance int) {
			cmd.PrintErrf("--- container %s was restarted (restart count %d) ---\n", container, instance)
		})
	} else {
		err = copyLog(ctx, client, request, cmd.OutOrStdout())
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func copyLog(ctx context.Context, client *local.Client, request local.LogRequest, out io.Writer) error {
	text, err := client.Logs(ctx, request)
	if err != nil {
		return err
	}
	defer text.Close()
	if _, err := io.Copy(out, text); err != nil {
		return fmt.Errorf("read the log of %s in %s/%s: %w", request.Container, request.Namespace, request.Pod, err)
	}
	return nil
}

// parseStream reads which of the streams is asked for. As the API has it, an end of one alone
// can't be.
func parseStream(cmd *cobra.Command, stream string, request *local.LogRequest) error {
	switch stream {
	case "all":
		return nil
	case "stdout":
		request.Stream = logs.Stdout
	case "stderr":
		request.Stream = logs.Stderr
	default:
		return usagef(cmd, "--stream must be all, stdout or stderr, not %q", stream)
	}
	if request.Tail >= 0 {
		return usagef(cmd, "--tail can't be combined with --stream %s", stream)
	}
	return nil
}
