// Package foreground runs a manifest's pods until the command is interrupted, with their logs on standard output. It
// shows the progress of pods that start: as a table that is redrawn on a terminal, otherwise as a line per change.
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
	// last is the latest update.
	last local.RunUpdate
	logs *logPrinter
}

// Run runs the pods of a manifest until they or ctx have ended, and then waits until they are removed. It prints logs
// to out and progress to notes. It returns the container's exit code if there is only one container, otherwise 1 if
// any pod failed, or 0. If ctx has ended it returns 0.
func Run(ctx context.Context, client *local.Client, origin string, manifest []byte, out, notes io.Writer) (int, error) {
	// Logs are printed while the pods are being stopped, too.
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
		return 0, nil // interrupted before any pod ran
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

// whileRunning runs the pods until they or ctx have ended.
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
			return nil // leaving the loop removes the pods
		}
	}
	return nil
}

// untilGone waits until the run's pods are removed.
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
			// A pod with another UID is a new one with the same name.
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

// exitCode returns the exit code of a run that is over.
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
