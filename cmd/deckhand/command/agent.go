package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/version"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/foreground"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

func (a *app) agentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "agent",
		GroupID: groupRun,
		Short:   "Run the agent in the foreground",
		Long: `Run the agent in the foreground. Its flags are the kubelet's.

Without --container-runtime-endpoint the agent runs a containerd of its own, and without
--kubeconfig it needs no API server. SIGHUP reloads its configuration.

Without an API server, and with another manifest directory than the last agent's, it asks
before it stops the pods of that directory; without a terminal it needs --yes.`,
		Example: `  deckhand agent --pod-manifest-path /etc/deckhand/manifests
  deckhand agent --config /etc/deckhand/config.yaml -v 4`,
		Args: arguments(cobra.NoArgs),
		RunE: a.orVersion(func(cmd *cobra.Command, _ []string) error {
			return a.deps.Agent(cmd.Context(), cmd.OutOrStdout(), func(question string) error {
				return a.confirm(cmd, question)
			})
		}),
	}
	yesFlag(cmd)
	if a.deps.AgentFlags != nil {
		a.deps.AgentFlags.AddTo(cmd.Flags())
		cmd.SetHelpFunc(a.agentHelp)
	}
	return cmd
}

// agentHelp prints the flags in groups: there are too many for one list.
func (a *app) agentHelp(cmd *cobra.Command, _ []string) {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s\n\nUsage:\n  %s\n\nExamples:\n%s\n\n", cmd.Long, cmd.UseLine(), cmd.Example)
	_ = flags.PrintHelp(out, a.deps.AgentFlags.Groups(), cmp.Or(terminalWidth(out), 100)) // the reader is gone
}

// orVersion handles the agent's flag --version: it prints the version instead of running the command.
func (a *app) orVersion(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if a.deps.AgentFlags != nil {
			if v := a.deps.AgentFlags.Values().Version; v.Print != flags.PrintNothing {
				return a.printVersion(cmd.OutOrStdout(), v)
			}
		}
		return run(cmd, args)
	}
}

// printVersion prints the version for --version. Called as the kubelet, it prints the version of the kubelet that
// this build replaces, in the format that tools parse.
func (a *app) printVersion(out io.Writer, v flags.Version) error {
	build, kubernetes := buildinfo.Get(), cmp.Or(v.Reported, buildinfo.Kubernetes)
	var err error
	switch {
	case v.Print == flags.PrintRaw:
		_, err = fmt.Fprintf(out,
			"%#v\n", version.Info{GitVersion: kubernetes, GitCommit: build.Commit, GoVersion: build.Go,
				Compiler: runtime.Compiler, Platform: build.Platform})
	case a.deps.Kubelet:
		_, err = fmt.Fprintln(out, "Kubernetes", kubernetes)
	default:
		_, err = fmt.Fprintln(out, "deckhand", build.Version)
	}
	return err
}

func (a *app) upCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "up [MANIFESTS]",
		GroupID: groupRun,
		Short:   "Run the agent on a directory of manifests, and show how the pods come up",
		Long: `Run the agent in the foreground, standalone and with a containerd of its own, on a
directory of pod manifests (or one file), and show how the pods come up.

Ctrl-C stops the agent and leaves the pods running; "up" again adopts them. "deckhand
down" stops them. With another directory than the last time "up" asks before it stops
the pods of that; where nobody can answer it needs --yes.`,
		Example: `  deckhand up ./examples
  deckhand up --root-dir /tmp/deckhand web.yaml`,
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: a.orVersion(a.up),
	}
	yesFlag(cmd)
	cmd.Flags().Bool("wait", false, "Start also if MANIFESTS doesn't exist, and run its pods once it does.")
	if a.deps.UpFlags != nil {
		a.deps.UpFlags(cmd.Flags())
		cmd.SetHelpFunc(a.upHelp)
	}
	return cmd
}

// upHelp prints only the flags that `deckhand agent` doesn't have.
func (a *app) upHelp(cmd *cobra.Command, _ []string) {
	own := pflag.NewFlagSet("up", pflag.ContinueOnError)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "root-dir" || a.deps.AgentFlags == nil || !a.deps.AgentFlags.Has(f.Name) {
			own.AddFlag(f)
		}
	})
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s\n\nUsage:\n  %s\n\nExamples:\n%s\n\n", cmd.Long, cmd.UseLine(), cmd.Example)
	groups := []flags.Group{{Title: "Flags, beside those of `deckhand agent`", Flags: own}}
	_ = flags.PrintHelp(out, groups, cmp.Or(terminalWidth(out), 100)) // the reader is gone
}

func (a *app) up(cmd *cobra.Command, args []string) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	terminal, stopTerminal := a.terminal(cmd.OutOrStdout())
	defer stopTerminal()
	started := make(chan struct{})
	request := UpRequest{
		RootDir: flagValue(cmd, "root-dir"), Flags: cmd.Flags(),
		Terminal: terminal != nil, Started: func() { close(started) },
		Confirm: func(question string) error { return a.confirm(cmd, question) },
	}
	if len(args) > 0 {
		path, err := filepath.Abs(args[0])
		if err != nil {
			return err
		}
		// If the user has mistyped the path, the agent would stop the pods that run.
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && flagValue(cmd, "wait") != "true" {
			return usagef(cmd, "%s doesn't exist; with --wait its pods run once it does", path)
		}
		request.Manifests = path
	}
	agent := make(chan error, 1)
	go func() { agent <- a.deps.Up(ctx, request) }()
	select {
	case err := <-agent:
		return err
	case <-started:
	}
	if a.deps.Self != "" {
		fmt.Fprintf(cmd.OutOrStdout(),
			"The agent's log is %s. From another terminal, %s shows the pods, and %s why one isn't ready.\n\n",
			filepath.Join(flagValue(cmd, "root-dir"), logFile), a.called(cmd, "pods"), a.called(cmd, "why"))
	}
	showErr := a.showComingUp(ctx, cmd, terminal)
	if showErr != nil && !errors.Is(showErr, local.ErrStopped) && ctx.Err() == nil {
		// The agent works without its progress display, too.
		fmt.Fprintln(cmd.ErrOrStderr(), "error: show progress:", showErr)
	}
	if err := <-agent; errors.Is(err, ErrAllStopped) {
		fmt.Fprintln(cmd.OutOrStdout(), "All pods were stopped by `deckhand down`, and so was the agent.")
		return nil
	} else if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "The agent has stopped, the pods run on. "+a.called(cmd, "down")+" stops them.")
	return nil
}

// upSteady is how long all pods have to stay ready before `deckhand up` reports success.
const upSteady = 10 * time.Second

// showComingUp shows progress until all pods are ready and stay ready, then prints their URLs. If the user interrupts
// it, it prints the remaining problems.
func (a *app) showComingUp(ctx context.Context, cmd *cobra.Command, terminal *foreground.Terminal) error {
	ctx, cancel := context.WithCancel(ctx)
	snapshots := make(chan local.Snapshot)
	done := make(chan error, 1)
	go func() { done <- forward(ctx, a.client(cmd), snapshots) }()
	out := cmd.OutOrStdout()
	last, err := foreground.Show(ctx, out, snapshots, foreground.Well,
		foreground.Options{Now: a.deps.Now, Terminal: terminal, Steady: cmp.Or(a.deps.Steady, upSteady)})
	interrupted := ctx.Err() != nil
	cancel()
	watchErr := <-done
	if err == nil {
		return printReady(out, last)
	}
	if wrong := foreground.Wrong(&last); interrupted && len(wrong) > 0 {
		// The problems are printed again: they may have scrolled away, or have been cut in the table.
		fmt.Fprintf(out, "\n%s\n", strings.Join(wrong, "\n"))
	}
	if errors.Is(err, io.EOF) {
		return watchErr
	}
	return err
}

// forward sends the agent's snapshots to a channel, until ctx ends or the agent stops.
func forward(ctx context.Context, client *local.Client, to chan<- local.Snapshot) error {
	defer close(to)
	for snapshot, err := range client.Watch(ctx) {
		if err != nil {
			return err
		}
		select {
		case to <- snapshot:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func printReady(out io.Writer, s local.Snapshot) error {
	done, stopped := 0, 0
	for i := range s.Pods {
		if s.Pods[i].Done() {
			done++
		}
		if s.Pods[i].Stopped {
			stopped++
		}
	}
	var text string
	switch {
	case len(s.Pods) == 0:
		text = "\nThere are no pods yet: manifests are picked up as they appear.\n"
	case done == 1:
		text = "\nThe pod is ready.\n"
		if stopped == 1 {
			text = "\nThe pod is stopped: `deckhand start` runs it again.\n"
		}
	case stopped > 0:
		text = fmt.Sprintf("\n%s ready, %d stopped: `deckhand start` runs those again.\n",
			count(done-stopped, "pod"), stopped)
	default:
		text = fmt.Sprintf("\nAll %d pods are ready.\n", done)
	}
	_, err := io.WriteString(out,
		text+curls(foreground.URLs(s))+"\nCtrl-C stops the agent and leaves the pods running.\n")
	return err
}

// mostURLs is the maximum number of pod URLs that are printed.
const mostURLs = 10

// curls returns a curl command for each URL, with the pod's name if there are several URLs.
func curls(urls []foreground.URL) string {
	if len(urls) == 0 {
		return ""
	}
	shown, text := urls[:min(len(urls), mostURLs)], "\n"
	for _, u := range shown {
		text += "    curl " + terminal.Line(u.Address)
		if len(urls) > 1 {
			text += "  # " + terminal.Line(u.Pod)
		}
		text += "\n"
	}
	if more := len(urls) - len(shown); more > 0 {
		text += fmt.Sprintf("    ... and %d more: `deckhand pods -o wide`\n", more)
	}
	return text
}

// called returns a command line that the user can type, for another command (args) of the same agent.
func (a *app) called(cmd *cobra.Command, args string) string {
	line := cmp.Or(a.deps.Self, "deckhand") + " " + args
	if root := flagValue(cmd, "root-dir"); root != a.deps.RootDir {
		line += " --root-dir " + root
	}
	return "`" + line + "`"
}

// terminal returns the terminal of w, or nil if w isn't one. stop ends the notification of its size.
func (a *app) terminal(w io.Writer) (terminal *foreground.Terminal, stop func()) {
	file := terminalOf(w)
	if file == nil || a.deps.Getenv("TERM") == "dumb" {
		return nil, func() {}
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	return &foreground.Terminal{
		Size: func() (int, int) { return terminalSize(file) },
		// Any value but an empty one disables colors, see https://no-color.org.
		Color:   a.deps.Getenv("NO_COLOR") == "",
		Resized: resized,
	}, func() { signal.Stop(resized) }
}
