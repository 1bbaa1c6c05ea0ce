package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

func (a *app) downCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "down",
		GroupID: groupRun,
		Short:   "Stop all pods, and the agent",
		Long: `Stop all pods and then the agent and its containerd. Each pod gets its grace period: preStop
hooks run, and sidecars end after the main containers.

Images, volumes, manifests and configuration stay: "up", or the service, runs the pods
again. "deckhand reset" removes everything.

On a node of a cluster, the API server's pods are stopped, too, and start again with the agent.
To move them to other nodes, run "kubectl drain" first.

With no agent running it stops the pods that the last one left running, except those of an API
server. A service other than deckhand.service may start its agent again: stop that first.`,
		Example: `  deckhand down
  deckhand down --root-dir /tmp/deckhand`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			any, err := a.stopAll(cmd)
			if err != nil {
				return err
			}
			text := "Nothing runs below " + flagValue(cmd, "root-dir") + "."
			if any {
				text = "All pods are stopped, and so is the agent. Images and volumes are kept; `deckhand reset` " +
					"removes them."
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
}

func (a *app) resetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "reset",
		GroupID: groupRun,
		Short:   "Stop all pods, and remove all that deckhand made on this machine",
		Long: `Stop all pods as "down" does, then remove all that deckhand made on this machine: images,
volumes below the root directory, logs, network, control groups and the root directory.
Manifests, configuration and the files of hostPath volumes stay.

It lists the objects to remove, and asks. Without a terminal it needs --yes.`,
		Example: `  deckhand reset --dry-run
  deckhand reset --yes --root-dir /tmp/deckhand`,
		Args: arguments(cobra.NoArgs),
		RunE: a.reset,
	}
	cmd.Flags().Bool("dry-run", false, "list the objects that would be removed, and exit")
	cmd.Flags().Bool("force", false,
		"don't wait for pods to end by themselves: kill what runs after 10 seconds; for pods or a runtime that can't "+
			"be stopped")
	yesFlag(cmd)
	return cmd
}

func (a *app) reset(cmd *cobra.Command, _ []string) error {
	root, out := flagValue(cmd, "root-dir"), cmd.OutOrStdout()
	list, err := a.deps.Leftovers(root)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "There is nothing of deckhand's in "+root+".")
		return err
	}
	text := "To be removed:\n"
	for _, line := range list {
		text += "  " + line + "\n"
	}
	if _, err := io.WriteString(textTo(cmd), text); err != nil || flagValue(cmd, "dry-run") == "true" {
		return err
	}
	if err := a.confirm(cmd, "Stop all pods and remove all this?"); err != nil {
		return err
	}
	if flagValue(cmd, "force") != "true" {
		_, err := a.stopAll(cmd)
		switch {
		case atomicfile.DiskFull(err) && isFull(root):
			// The pods get a shorter grace period, because their removal frees the disk.
			fmt.Fprintf(cmd.ErrOrStderr(), "The pods can't be stopped as usual, and get 10 seconds to end: %v\n",
				room.Explain(err, root))
		case err != nil:
			return fmt.Errorf("%w\nNothing was removed. With --force what runs is killed", err)
		}
	}
	if err := a.deps.Reset(cmd.Context(), root); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "Everything deckhand made with "+root+" is gone.")
	return err
}

// isFull reports whether the disk of a directory is full. The error of a call doesn't prove that: limits of control
// groups and keyrings cause the same errors.
func isFull(dir string) bool {
	on, err := room.Measure(dir)
	return err == nil && on.Full()
}

// yesFlag adds --yes to a command that asks for confirmation.
func yesFlag(cmd *cobra.Command) {
	cmd.Flags().BoolP("yes", "y", false, "don't ask")
}

// errNotConfirmed means that the user answered no to a question of confirm.
var errNotConfirmed = errors.New("nothing was changed")

// confirm asks on the terminal, unless --yes was given. Without a terminal it returns a usage error.
func (a *app) confirm(cmd *cobra.Command, question string) error {
	if flagValue(cmd, "yes") == "true" {
		return nil
	}
	in := terminalOf(cmd.InOrStdin())
	if in == nil || terminalOf(cmd.ErrOrStderr()) == nil {
		return usagef(cmd, "there is no terminal on which to ask %q: nothing was changed; confirm with --yes", question)
	}
	if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question); err != nil {
		return err
	}
	answered := make(chan string, 1)
	go func() { // if there is no answer, the goroutine ends with the process: reading a terminal can't be cancelled
		line, _ := bufio.NewReader(in).ReadString('\n')
		answered <- line
	}()
	select {
	case <-cmd.Context().Done():
		return errNotConfirmed
	case line := <-answered:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return errNotConfirmed
	}
}

// stopAll lets the running agent stop all pods and exit, and then runs an agent of its own to stop the rest. It
// reports whether there was anything to stop.
func (a *app) stopAll(cmd *cobra.Command) (any bool, err error) {
	ctx, client := cmd.Context(), a.client(cmd)
	err = client.StopAll(ctx)
	var noAgent *local.NoAgentError
	switch {
	case err == nil:
		any = true
		if err := printStops(ctx, client, cmd.OutOrStdout()); err != nil {
			return true, interrupted(ctx, err)
		}
	case local.IsNotFound(err):
		return false, errors.New(
			"the running agent is of an older version, which can't do that: restart it first, or stop it")
	case !errors.As(err, &noAgent):
		return false, err
	}
	// This is necessary after the agent has exited, too: it may have been killed before all pods were stopped.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- a.deps.StopAll(ctx, flagValue(cmd, "root-dir"), func() { close(started) }) }()
	select {
	case err = <-ended:
	case <-started:
		any = true
		if err := printStops(ctx, client, cmd.OutOrStdout()); err != nil && ctx.Err() == nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "error: show progress:", err)
		}
		err = <-ended
	}
	switch {
	case errors.Is(err, ErrAllStopped):
		return true, nil
	case err != nil:
		return any, interrupted(cmd.Context(), err)
	}
	return any, nil
}

// interrupted returns err or, if ctx has ended, an error that the agent may not have stopped all pods.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return errors.New("interrupted: not all pods are stopped yet; `deckhand down` goes on with it")
}

// printStops prints a line for each pod that has stopped, until the agent stops.
func printStops(ctx context.Context, client *local.Client, out io.Writer) error {
	runs := map[string]bool{}
	for snapshot, err := range client.Watch(ctx) {
		if errors.Is(err, local.ErrStopped) {
			for name := range runs {
				fmt.Fprintln(out, name+": stopped")
			}
			return nil
		}
		if err != nil {
			return err
		}
		left := map[string]bool{}
		for i := range snapshot.Pods {
			v := &snapshot.Pods[i]
			if name := v.Pod.Namespace + "/" + v.Pod.Name; !v.Stopped {
				if left[name] = true; !runs[name] {
					fmt.Fprintln(out, name+": stopping")
				}
			}
		}
		for name := range runs {
			if !left[name] {
				fmt.Fprintln(out, name+": stopped")
			}
		}
		runs = left
	}
	return nil
}
