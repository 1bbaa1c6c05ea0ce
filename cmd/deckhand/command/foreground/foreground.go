// Package foreground runs a manifest's pods for as long as a person wants them, with their logs
// on the screen. It shows how pods come up: as a table that is redrawn in place on a terminal,
// and as one line per change elsewhere.
package foreground

import (
	"context"
	"fmt"
	"io"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/server/local"
)

// run is one `deckhand run`.
type run struct {
	client   *local.Client
	notes    io.Writer
	progress *Plain
	// last is the newest update.
	last local.RunUpdate
	logs *logPrinter
}

// Run runs the pods of a manifest, prints their logs to out and how they fare to
// notes, until they have ended or ctx has; then it waits until they are gone. It
// returns the container's exit code if there is only one, else whether any pod
// failed (1) or none (0). After ctx's end that is 0.
func Run(ctx context.Context, client *local.Client, origin string, manifest []byte, out, notes io.Writer) (int, error) {
	// The logs go on while the pods are stopped.
	logCtx, stopLogs := context.WithCancel(context.WithoutCancel(ctx))
	r := &run{client: client, notes: notes, progress: NewPlain(notes), logs: newLogPrinter(client, out)}
	defer r.logs.wait()
	defer stopLogs()
	err := r.whileRunning(ctx, logCtx, origin, manifest)
	interrupted := ctx.Err() != nil
	if err != nil && !interrupted {
		return 0, err
	}
	if len(r.last.Pods) == 0 {
		return 0, nil // interrupted before anything ran
	}
	if interrupted {
		fmt.Fprintln(notes, "Stopping...")
	}
	if err := r.untilGone(context.WithoutCancel(ctx)); err != nil {
		return 0, err
	}
	r.logs.wait()
	if interrupted {
		fmt.Fprintln(notes, "Stopped.")
		return 0, nil
	}
	return exitCode(r.last), nil
}

// whileRunning keeps the pods running until they have ended or ctx has.
func (r *run) whileRunning(ctx, logCtx context.Context, origin string, manifest []byte) error {
	for update, err := range r.client.Run(ctx, origin, manifest) {
		if err != nil {
			return err
		}
		r.last = update
		if err := r.progress.Pods(update.Views); err != nil {
			return err
		}
		r.logs.follow(logCtx, update.Views)
		if over(update) {
			r.logs.wait()
			return nil // which leaves the loop, and so has the pods removed
		}
	}
	return nil
}

// untilGone waits until the agent has removed the run's pods.
func (r *run) untilGone(ctx context.Context) error {
	uids := map[types.NamespacedName]types.UID{}
	for _, name := range r.last.Pods {
		uids[name] = ""
	}
	for _, view := range r.last.Views {
		uids[nameOf(view.Pod)] = view.Pod.UID
	}
	for snapshot, err := range r.client.Watch(ctx) {
		if err != nil {
			return fmt.Errorf("wait until the pods are gone: %w", err)
		}
		var left []local.PodView
		for _, view := range snapshot.Pods {
			// A pod of another UID has taken the name since.
			if uid, ok := uids[nameOf(view.Pod)]; ok && (uid == "" && view.OfRun() || uid == view.Pod.UID) {
				left = append(left, view)
			}
		}
		if err := r.progress.Pods(left); err != nil {
			return err
		}
		if len(left) == 0 {
			return nil
		}
	}
	return nil
}

func nameOf(p *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// over reports whether all pods of a run have ended.
func over(u local.RunUpdate) bool {
	for i := range u.Views {
		if !u.Views[i].Over() {
			return false
		}
	}
	return len(u.Views) > 0 && len(u.Views) == len(u.Pods)
}

// exitCode is what became of a run that is over.
func exitCode(u local.RunUpdate) int {
	code := 0
	for _, view := range u.Views {
		if view.Pod.Status.Phase == v1.PodFailed {
			code = 1
		}
	}
	if len(u.Views) != 1 || len(u.Views[0].Pod.Spec.Containers) != 1 {
		return code
	}
	for _, s := range u.Views[0].Pod.Status.ContainerStatuses {
		if s.State.Terminated != nil && s.State.Terminated.ExitCode != 0 {
			return int(s.State.Terminated.ExitCode)
		}
	}
	return code
}
