package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/logs"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// selectedTail is the default of --tail when pods are given by a label selector, in lines, as in kubectl.
const selectedTail = 10

// logOptions are the flags of `deckhand logs`.
type logOptions struct {
	request                         local.LogRequest
	container, stream               string
	since                           sinceFlags
	restarts, allContainers, prefix bool
}

func (a *app) logsCommand() *cobra.Command {
	var o logOptions
	cmd := &cobra.Command{
		Use:     "logs [flags] POD [CONTAINER]",
		Aliases: []string{"log"},
		GroupID: groupLook,
		Short:   "Print containers' logs",
		Long: `Print the log of a container, or of several one after the other.

` + namesOfPods + `

With -f it goes on when the container is restarted, and says so on standard error; the lines of
several containers come as they are written.`,
		Example: `  deckhand logs web                  of the only container of a pod, or the first
  deckhand logs -f web nginx         of one of several containers, and go on
  deckhand logs -p web               of the container before the last restart
  deckhand logs --since 5m --timestamps web
  deckhand logs -l app=web --all-containers --prefix`,
		Args:              arguments(cobra.MaximumNArgs(2)),
		ValidArgsFunction: a.completePods,
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, err := o.check(cmd, args, a.deps.Now())
			if err != nil {
				return err
			}
			return o.print(cmd, a.client(cmd), args, chosen)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.request.Follow, "follow", "f", false, "go on as the log grows")
	flags.BoolVar(&o.restarts, "restarts", true, "with -f, go on after restarts; with =false, until the container ends")
	flags.BoolVarP(&o.request.Previous, "previous", "p", false, "of the instance before the last restart")
	flags.Int64Var(&o.request.Tail, "tail", -1,
		"begin with the last `N` lines; -1 for all, which is the default without -l; with it that is 10")
	o.since.addTo(cmd)
	flags.BoolVar(&o.request.Timestamps, "timestamps", false, "put the time before each line")
	flags.Int64Var(&o.request.LimitBytes, "limit-bytes", 0, "end after so many bytes; 0 for no limit")
	flags.StringVar(&o.stream, "stream", "all", "only this `OUTPUT`: stdout or stderr")
	flags.StringVarP(&o.container, "container", "c", "", "which container")
	flags.BoolVar(&o.allContainers, "all-containers", false, "of all containers of the pod, init containers first")
	flags.BoolVar(&o.prefix, "prefix", false, "put the pod and the container before each line")
	selectorFlag(cmd)
	a.completeContainers(cmd)
	return cmd
}

// check validates the options and returns the label selector of the pods; nil if the pod is given by name.
func (o *logOptions) check(cmd *cobra.Command, args []string, now time.Time) (labels.Selector, error) {
	chosen, err := selector(cmd)
	if err != nil {
		return nil, err
	}
	switch {
	case chosen == nil && len(args) == 0:
		return nil, usagef(cmd, "POD is missing: %s", cmd.UseLine())
	case chosen != nil && len(args) > 0:
		return nil, usagef(cmd, "pods are chosen by a name (%s) or by labels (-l %s), not by both", args[0],
			flagValue(cmd, "selector"))
	case len(args) == 2 && o.container != "":
		return nil, usagef(cmd, "name the container once: %s or -c %s", args[1], o.container)
	case len(args) == 2:
		o.container = args[1]
	}
	switch {
	case o.container != "" && o.allContainers:
		return nil, usagef(cmd, "--all-containers can't be combined with a container's name (%s)", o.container)
	case o.request.LimitBytes < 0:
		return nil, usagef(cmd, "--limit-bytes must be positive")
	}
	if o.request.Since, err = o.since.time(cmd, now); err != nil {
		return nil, err
	}
	if err := parseStream(cmd, o.stream, &o.request); err != nil {
		return nil, err
	}
	if chosen != nil && o.request.Stream == "" && !cmd.Flags().Changed("tail") {
		o.request.Tail = selectedTail
	}
	return chosen, nil
}

// source is a container with a log.
type source struct {
	pod       *v1.Pod
	container string
}

// sources returns the selected containers.
func (o *logOptions) sources(cmd *cobra.Command, s local.Snapshot, args []string,
	chosen labels.Selector) ([]source, error) {
	namespace := flagValue(cmd, "namespace")
	var pods []*v1.Pod
	if chosen == nil {
		p, err := show.FindPod(s, namespace, args[0])
		if err != nil {
			return nil, err
		}
		pods = append(pods, p)
	}
	for _, view := range s.Pods {
		if chosen != nil && (namespace == "" || namespace == view.Pod.Namespace) &&
			chosen.Matches(labels.Set(view.Pod.Labels)) {
			pods = append(pods, view.Pod)
		}
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("no pod has the labels %s (`deckhand pods -o yaml` shows which there are)", chosen)
	}
	var list []source
	for _, p := range pods {
		if o.allContainers {
			for name := range pod.ContainerNames(p) {
				list = append(list, source{p, name})
			}
			continue
		}
		name, remark, err := show.FindContainer(p, o.container)
		if err != nil {
			return nil, err
		}
		if remark != "" {
			cmd.PrintErrln(remark)
		}
		list = append(list, source{p, name})
	}
	return list, nil
}

func (o *logOptions) print(cmd *cobra.Command, client *local.Client, args []string, chosen labels.Selector) error {
	ctx := cmd.Context()
	snapshot, err := client.Snapshot(ctx)
	if err != nil {
		return err
	}
	sources, err := o.sources(cmd, snapshot, args, chosen)
	if err != nil {
		return err
	}
	if len(sources) == 1 && !o.prefix {
		err = o.copy(cmd, client, sources[0], cmd.OutOrStdout(), "container "+sources[0].container)
	} else {
		err = o.several(cmd, client, sources)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// several prints the logs of several containers: one after the other or, with -f, concurrently.
func (o *logOptions) several(cmd *cobra.Command, client *local.Client, sources []source) error {
	out := show.NewLines(cmd.OutOrStdout())
	errs := make([]error, len(sources))
	var growing sync.WaitGroup
	for i, s := range sources {
		name, prefix := fmt.Sprintf("pod/%s/%s", s.pod.Name, s.container), ""
		if o.prefix {
			prefix = "[" + name + "] "
		}
		read := func() {
			w := out.Behind(prefix)
			errs[i] = errors.Join(o.copy(cmd, client, s, w, name), w.Flush())
			if errs[i] != nil && o.request.Follow && cmd.Context().Err() == nil { // the other logs may continue
				cmd.PrintErrf("--- %s: %v ---\n", name, errs[i])
				errs[i] = fmt.Errorf("%s can't be followed", name)
			}
		}
		if o.request.Follow {
			growing.Go(read)
		} else {
			read()
		}
	}
	growing.Wait()
	return errors.Join(errs...)
}

// copy prints one container's log.
func (o *logOptions) copy(cmd *cobra.Command, client *local.Client, s source, out io.Writer, name string) error {
	request := o.request
	request.Namespace, request.Pod, request.Container = s.pod.Namespace, s.pod.Name, s.container
	if request.Follow && o.restarts {
		return client.FollowLogs(cmd.Context(), request, out, func(instance int) {
			cmd.PrintErrf("--- %s was restarted (restart count %d) ---\n", name, instance)
		})
	}
	return copyLog(cmd.Context(), client, request, out)
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

// parseStream sets the stream of the request: standard output, standard error or both. As in the API, a single stream
// can't be combined with --tail.
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
