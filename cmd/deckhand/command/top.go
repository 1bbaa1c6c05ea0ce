package command

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
)

// topEvery is the period of top -w.
const topEvery = 2 * time.Second

func (a *app) topCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "top",
		GroupID: groupLook,
		Short:   "Show how much CPU, memory, disk and network pods and the node use",
		Example: `  deckhand top pods                 those that use most CPU first
  deckhand top pods -w              go on, every two seconds
  deckhand top node`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef(cmd, "specify pods or node: %s pods, or %s node", cmd.CommandPath(), cmd.CommandPath())
		},
	}
	cmd.AddCommand(a.topPodsCommand(), a.topNodeCommand())
	return cmd
}

func (a *app) topPodsCommand() *cobra.Command {
	var containers bool
	sortBy := "cpu"
	cmd := &cobra.Command{
		Use:     "pods [NAME...]",
		Aliases: []string{"pod", "po"},
		Short:   "Show how much CPU, memory, disk and network pods use",
		Long: `Show how much pods use: CPU in thousandths, and memory (the working set, without files in the
page cache that weren't used lately), disk (containers' own files, emptyDirs and logs), the bytes
that the pod has received and sent since it has a network, and its processes. NAME may be the
beginning of names, NAMESPACE/NAME or pod/NAME.`,
		ValidArgsFunction: a.completePods,
	}
	cmd.Flags().BoolVar(&containers, "containers", false, "show each pod's containers")
	cmd.Flags().StringVar(&sortBy, "sort-by", sortBy,
		strings.Join(show.TopSorts, ", ")+": show what uses most of it first")
	// It only fails for a flag that doesn't exist.
	_ = cmd.RegisterFlagCompletionFunc("sort-by",
		cobra.FixedCompletions(show.TopSorts, cobra.ShellCompDirectiveNoFileComp))
	a.watched(cmd, func(names []string, s *statsapi.Summary) (any, [][]string, error) {
		if !slices.Contains(show.TopSorts, sortBy) {
			return nil, nil, usagef(cmd, "--sort-by is %q: it can be %s", sortBy, strings.Join(show.TopSorts, ", "))
		}
		o := show.TopOptions{Namespace: flagValue(cmd, "namespace"), Names: names, Containers: containers,
			SortBy: sortBy}
		pods, err := o.Choose(s.Pods)
		if err != nil {
			return nil, nil, err
		}
		if len(pods) == 0 {
			none(cmd, "pods that run")
			return show.ListOf(pods), nil, nil
		}
		return show.ListOf(pods), o.Rows(pods), nil
	})
	return cmd
}

func (a *app) topNodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "node",
		Aliases: []string{"nodes", "no"},
		Short:   "Show how much CPU, memory, disk and network the node, all its pods and groups of the host use",
		Args:    arguments(cobra.NoArgs),
	}
	a.watched(cmd, func(_ []string, s *statsapi.Summary) (any, [][]string, error) {
		return s.Node, show.NodeRows(&s.Node), nil
	})
	return cmd
}

// watched makes a command print the output of made for a summary, once or, with -w, periodically.
func (a *app) watched(cmd *cobra.Command,
	made func([]string, *statsapi.Summary) (data any, rows [][]string, err error)) {
	var watch bool
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on, every two seconds")
	outputFlag(cmd, dataFormats...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		const home = "\x1b[H\x1b[J" // moves the cursor home and clears the screen
		ctx, client, screen := cmd.Context(), a.client(cmd), terminalOf(cmd.OutOrStdout())
		for first := true; ; first = false {
			summary, err := client.Summary(ctx)
			if err != nil {
				return err
			}
			data, rows, err := made(args, &summary)
			if err != nil {
				return err
			}
			switch {
			case watch && screen != nil:
				fmt.Fprint(screen, home)
			case !first && flagValue(cmd, "output") == "":
				fmt.Fprintln(textTo(cmd))
			}
			if done, err := show.As(textTo(cmd), flagValue(cmd, "output"), data); err != nil {
				return err
			} else if !done && len(rows) > 0 {
				if err := writeTable(cmd, rows); err != nil {
					return err
				}
			}
			if !watch {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(topEvery):
			}
		}
	}
}
