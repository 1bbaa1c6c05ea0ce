package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/cmd/deckhand/command/streams"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/logs"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// debugOptions are the flags of `deckhand debug`, which are kubectl's. They describe the container to add.
type debugOptions struct {
	sessionOptions
	image, pullPolicy, target, profile string
	env                                []string
	attach, arguments                  bool
}

// profiles are the security contexts of debugging profiles (KEP-1441, "Debugging Profiles").
var profiles = map[string]func() *v1.SecurityContext{
	"general":  func() *v1.SecurityContext { return capabilities("SYS_PTRACE") },
	"baseline": func() *v1.SecurityContext { return nil },
	"restricted": func() *v1.SecurityContext {
		return &v1.SecurityContext{RunAsNonRoot: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false),
			Capabilities:   &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
			SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}}
	},
	"netadmin": func() *v1.SecurityContext { return capabilities("NET_ADMIN", "NET_RAW") },
	"sysadmin": func() *v1.SecurityContext { return &v1.SecurityContext{Privileged: ptr.To(true)} },
}

func capabilities(list ...v1.Capability) *v1.SecurityContext {
	return &v1.SecurityContext{Capabilities: &v1.Capabilities{Add: list}}
}

func (a *app) debugCommand() *cobra.Command {
	var o debugOptions
	cmd := &cobra.Command{
		Use:     "debug [flags] POD --image IMAGE [-- COMMAND [ARGUMENT...]]",
		GroupID: groupReach,
		Short:   "Add a container to a running pod, to look into it",
		Long: `Add an ephemeral container to a running pod, with programs that its other containers don't have,
without restarting them. It shares the pod's network, and with --target the processes of one
container. -i attaches to it; --attach prints its output until it ends. The command ends with its
exit code then.

It is started once, and stays in the pod's spec until the pod is removed: it can't be restarted,
changed or removed, and it survives a restart of the agent. For pods of an API server use
kubectl debug.

` + namesOfPods,
		Example: `  deckhand debug -it web --image busybox --target nginx       a shell that sees the processes of nginx
  deckhand debug -it web --image tools --profile netadmin     that may change the pod's network
  deckhand debug web --image tools --attach -- ss -tlnp       what a command prints`,
		ValidArgsFunction: a.completePod,
		Args: func(cmd *cobra.Command, args []string) error {
			named := len(args)
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				named = dash
			} else if named > 1 {
				return usagef(cmd, "the command has to stand behind --: deckhand debug %s -- %s", args[0], args[1])
			}
			switch {
			case named == 0:
				return usagef(cmd, "POD is missing: %s", cmd.UseLine())
			case named > 1:
				return usagef(cmd, "%q is one argument too many: %s", args[1], cmd.UseLine())
			}
			return o.check(cmd)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return interruptible(cmd, func(ctx context.Context) error {
				client := a.client(cmd)
				snapshot, err := client.Snapshot(ctx)
				if err != nil {
					return err
				}
				p, err := show.FindPod(snapshot, flagValue(cmd, "namespace"), args[0])
				if err != nil {
					return err
				}
				if o.tty && terminalOf(cmd.InOrStdin()) == nil {
					o.tty = false
					o.remark(cmd, "standard input isn't a terminal: the container gets none")
				}
				c := o.describe(args[1:])
				if o.container == "" {
					o.container = c.Name
					o.remark(cmd, "Defaulting debug container name to %s.", c.Name)
				}
				if err := client.AddContainer(ctx, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, p.UID,
					c); err != nil || !o.attach {
					return err
				}
				return o.join(ctx, cmd, client, p)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.image, "image", "", "the container's image")
	flags.StringVar(&o.pullPolicy, "image-pull-policy", "",
		"Always, IfNotPresent or Never; if not given, it follows from the image as in a pod's spec")
	flags.StringVar(&o.target, "target", "", "see the processes of this `CONTAINER`")
	flags.StringVar(&o.profile, "profile", "general",
		"the privileges of the container: "+strings.Join(slices.Sorted(maps.Keys(profiles)), ", "))
	flags.StringArrayVar(&o.env, "env", nil, "set an environment variable, `NAME=VALUE`; may be repeated")
	flags.BoolVar(&o.attach, "attach", false, "wait until the container runs, and attach to it; the default with -i")
	flags.BoolVar(&o.arguments, "arguments-only", false, "pass the words after -- as arguments to the image's "+
		"entrypoint")
	flags.StringVarP(&o.container, "container", "c", "", "how the container is called; if not given, debugger-XXXXX")
	o.addStreams(cmd)
	// They only fail for flags that don't exist.
	_ = cmd.RegisterFlagCompletionFunc("target", a.completeContainer)
	_ = cmd.RegisterFlagCompletionFunc("profile",
		cobra.FixedCompletions(slices.Sorted(maps.Keys(profiles)), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// check validates the options and sets defaults.
func (o *debugOptions) check(cmd *cobra.Command) error {
	switch {
	case o.image == "":
		return usagef(cmd, "--image is missing: which image has the programs?")
	case profiles[o.profile] == nil:
		return usagef(cmd, "--profile must be one of %s, not %q",
			strings.Join(slices.Sorted(maps.Keys(profiles)), ", "), o.profile)
	case o.tty && !o.stdin:
		return usagef(cmd, "-t needs -i: nobody could type")
	}
	for _, e := range o.env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			return usagef(cmd, "--env must be NAME=VALUE, not %q", e)
		}
	}
	if !cmd.Flags().Changed("attach") {
		o.attach = o.stdin
	}
	return nil
}

// describe returns the container to add, with the command after --.
func (o *debugOptions) describe(command []string) v1.EphemeralContainer {
	c := v1.EphemeralContainer{TargetContainerName: o.target}
	if c.Name = o.container; c.Name == "" {
		c.Name = "debugger-" + rand.String(5)
	}
	c.Image, c.ImagePullPolicy = o.image, v1.PullPolicy(o.pullPolicy)
	c.Stdin, c.TTY = o.stdin, o.tty
	// A pipe ends, and nothing attaches after it. A user at a terminal may attach again.
	c.StdinOnce = o.attach && o.stdin && !o.tty
	c.SecurityContext = profiles[o.profile]()
	if o.arguments {
		c.Args = command
	} else {
		c.Command = command
	}
	for _, e := range o.env {
		name, value, _ := strings.Cut(e, "=")
		c.Env = append(c.Env, v1.EnvVar{Name: name, Value: value})
	}
	return c
}

// join attaches to the added container once it runs, and returns when it has ended, with its exit code as an error.
func (o *debugOptions) join(ctx context.Context, cmd *cobra.Command, client *local.Client, p *v1.Pod) error {
	status, err := o.await(ctx, cmd, client, p, func(s v1.ContainerState) bool { return s.Running != nil })
	if err != nil {
		return err
	}
	var gone *local.StatusError
	switch {
	case status.State.Terminated == nil && o.stdin:
		err = o.sessionOptions.join(ctx, cmd, func(query url.Values) (httpstream.Connection, error) {
			return client.Attach(ctx, p.Namespace, p.Name, o.container, query, streams.Protocol)
		}, true)
		if !errors.As(err, &gone) {
			break
		}
		fallthrough // the container ended before attaching
	default:
		err = o.output(ctx, cmd, client, p)
	}
	if err != nil {
		o.remark(cmd, "container %s isn't removed: while it runs, `deckhand attach -c %s %s` attaches to it",
			o.container, o.container, p.Name)
		return err
	}
	if status, err = o.await(ctx, cmd, client, p, func(v1.ContainerState) bool { return false }); err != nil {
		return err
	}
	if code := int(status.State.Terminated.ExitCode); code != 0 {
		o.remark(cmd, "%v", &streams.ExitError{Code: code})
		return &exitError{code}
	}
	return nil
}

// await waits until wanted accepts the container's state or the container has ended. Meanwhile it prints the reasons
// for waiting.
func (o *debugOptions) await(ctx context.Context, cmd *cobra.Command, client *local.Client, p *v1.Pod,
	wanted func(v1.ContainerState) bool) (*v1.ContainerStatus, error) {
	printed := ""
	for snapshot, err := range client.Watch(ctx) {
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(snapshot.Pods, func(v local.PodView) bool { return v.Pod.UID == p.UID })
		if i < 0 {
			return nil, fmt.Errorf("pod %s is gone, and container %s with it", p.Name, o.container)
		}
		view := &snapshot.Pods[i]
		status := pod.StatusNamed(&view.Pod.Status, o.container)
		if status != nil && (wanted(status.State) || status.State.Terminated != nil) {
			return status, nil
		}
		if phase := pod.Terminal(view.Pod.Status.Phase); phase != "" || view.Stopped {
			return nil, fmt.Errorf("pod %s has ended (%s) before container %s", p.Name, view.Word(), o.container)
		}
		for _, w := range view.Waits {
			if w.Container == o.container && w.Code == pod.WaitRetry {
				return nil, fmt.Errorf("container %s can't be started: %s\n%s\nIt is tried again as long as the pod "+
					"is there: once it runs, `deckhand attach -c %s %s` attaches to it. With the right name or "+
					"command, start another one",
					o.container, w.Text, w.Advice, o.container, p.Name)
			}
			if w.Container == o.container && w.Text != printed {
				printed = w.Text
				o.remark(cmd, "container %s: %s", o.container, printed)
			}
		}
	}
	return nil, ctx.Err()
}

// output prints the container's log until the container ends.
func (o *debugOptions) output(ctx context.Context, cmd *cobra.Command, client *local.Client, p *v1.Pod) error {
	request := local.LogRequest{Namespace: p.Namespace, Pod: p.Name, Container: o.container}
	request.Tail = -1
	var errs [2]error
	var copies sync.WaitGroup
	for i, stream := range []logs.Stream{logs.Stdout, logs.Stderr} {
		to := cmd.OutOrStdout()
		if i == 1 {
			to = cmd.ErrOrStderr()
		}
		copies.Go(func() {
			of := request
			of.Stream = stream
			errs[i] = client.FollowLogs(ctx, of, to, func(int) {})
		})
	}
	copies.Wait()
	return errors.Join(errs[:]...)
}
