package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

func (a *app) waitCommand() *cobra.Command {
	var condition string
	var timeout time.Duration
	var all bool
	cmd := &cobra.Command{
		Use:     "wait POD...",
		GroupID: groupLook,
		Short:   "Wait until pods are ready or gone, or a field has a value",
		Long: `Wait until each pod meets a condition, and print which does:

  condition=NAME[=VALUE]    a condition of its status; VALUE is True if left out
  jsonpath={PATH}[=VALUE]   a field has this value, or any
  create                    the pod is there
  delete                    the pod is gone, or stopped

` + exactNamesOfPods + `.

The exit code is 1 if that takes longer than --timeout.`,
		Example: `  deckhand wait web --for=condition=Ready --timeout=2m
  deckhand wait job --for=jsonpath='{.status.phase}'=Succeeded
  deckhand wait -l app=web --for=delete`,
		ValidArgsFunction: a.completePods,
		RunE: func(cmd *cobra.Command, args []string) error {
			selector, err := selector(cmd)
			if err != nil {
				return err
			}
			if len(args) > 0 && isPodKind(args[0]) {
				args = args[1:] // as in kubectl
			}
			switch {
			case condition == "":
				return usagef(cmd, "say what to wait for: --for=condition=Ready, --for=delete, "+
					"--for=jsonpath={.status.phase}=Running")
			case len(args) == 0 && selector == nil && !all:
				return usagef(cmd, "say which pods: by name, with -l, or --all")
			case len(args) > 0 && (selector != nil || all):
				return usagef(cmd, "pods are chosen by name (%s), or with -l or --all, not both", args[0])
			}
			for _, arg := range args {
				if kind, _, named := strings.Cut(arg, "/"); named && !isPodKind(kind) {
					if _, other := show.OtherKind(kind, a.inCluster(cmd)); other {
						return a.noSuchKind(cmd, kind)
					}
				}
			}
			met, err := show.ParseCondition(condition)
			if err != nil {
				return usagef(cmd, "--for: %w", err)
			}
			pods := show.PodOptions{Names: args, Exact: true, Selector: selector,
				Namespace: flagValue(cmd, "namespace"), Now: a.deps.Now}
			return a.wait(cmd, show.NewPodList(pods), met, timeout)
		},
	}
	cmd.Flags().StringVar(&condition, "for", "",
		"what to wait for: condition=NAME[=VALUE], jsonpath={PATH}[=VALUE], create or delete")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second,
		"how long to wait; 0 to look once, less than 0 for a week")
	cmd.Flags().BoolVar(&all, "all", false, "all pods")
	// It only fails for a flag that doesn't exist.
	_ = cmd.RegisterFlagCompletionFunc("for",
		cobra.FixedCompletions([]string{"condition=Ready", "condition=ContainersReady", "condition=Initialized",
			"jsonpath={.status.phase}=Running", "create", "delete"}, cobra.ShellCompDirectiveNoFileComp))
	selectorFlag(cmd)
	return cmd
}

// errTimedOut is the context's cause (context.Cause) when the time of --timeout is over.
var errTimedOut = errors.New("timed out")

func (a *app) wait(cmd *cobra.Command, list *show.PodList, condition *show.Condition, timeout time.Duration) error {
	ctx := cmd.Context()
	if timeout < 0 {
		timeout = 7 * 24 * time.Hour // as in kubectl
	}
	once := timeout == 0
	if !once {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errTimedOut)
		defer cancel()
	}
	w := &waiting{list: list, condition: condition, met: func(p *v1.Pod) {
		fmt.Fprintf(textTo(cmd), "pod/%s condition met\n", terminal.Line(p.Name))
	}}
	for s, err := range a.client(cmd).Watch(ctx) {
		if err != nil && context.Cause(ctx) == errTimedOut {
			return w.timedOut()
		}
		if err != nil {
			return err
		}
		if over, err := w.check(&s); over || err != nil {
			return err
		}
		if once {
			return w.timedOut()
		}
	}
	return nil
}

// waiting is the state of a wait for pods.
type waiting struct {
	list      *show.PodList
	condition *show.Condition
	// met is called once for each pod that meets the condition.
	met func(*v1.Pod)
	// awaited are the pods that don't meet the condition yet; nil before pods were selected.
	awaited []*v1.Pod
}

// check checks a snapshot and reports whether the wait is over.
func (w *waiting) check(s *local.Snapshot) (over bool, err error) {
	if w.awaited == nil {
		views, missing := w.list.Choose(*s)
		switch {
		case !s.Agent.Synced && (missing != nil || len(views) == 0):
			return false, nil
		case w.condition.Created() && (missing != nil || len(views) == 0):
			return false, nil
		case missing != nil && !w.condition.Deleted():
			return true, missing
		case len(views) == 0 && !w.condition.Deleted():
			return true, errors.New("no pods match")
		}
		w.awaited = []*v1.Pod{}
		for i := range views {
			w.awaited = append(w.awaited, views[i].Pod)
		}
	}
	for i, p := range slices.Backward(w.awaited) {
		at := slices.IndexFunc(s.Pods, func(v local.PodView) bool {
			return v.Pod.Namespace == p.Namespace && v.Pod.Name == p.Name &&
				(!w.condition.Deleted() || v.Pod.UID == p.UID)
		})
		var met bool
		switch {
		case at < 0 || s.Pods[at].Stopped && w.condition.Deleted():
			if met = w.condition.Deleted(); !met {
				return true, fmt.Errorf("pod %s/%s is gone", p.Namespace, p.Name)
			}
		default:
			if met, err = w.condition.Met(s.Pods[at].Pod); err != nil {
				return true, err
			}
		}
		if met {
			w.met(p)
			w.awaited = slices.Delete(w.awaited, i, i+1)
		}
	}
	return len(w.awaited) == 0, nil
}

func (w *waiting) timedOut() error {
	errs := []error{}
	for _, p := range w.awaited {
		errs = append(errs, fmt.Errorf(
			"timed out waiting for the condition on pod %s/%s: `deckhand why %[1]s/%[2]s` says what it waits for",
			p.Namespace, p.Name))
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New(
			"timed out waiting for the pods to appear: `deckhand pods` lists those there are"))
	}
	return errors.Join(errs...)
}
