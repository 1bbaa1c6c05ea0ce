package foreground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/logs"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// logPrinter prints the logs of all containers of a run.
type logPrinter struct {
	client *local.Client
	out    *show.Lines
	begun  map[string]bool
	group  sync.WaitGroup
}

func newLogPrinter(client *local.Client, out io.Writer) *logPrinter {
	return &logPrinter{client: client, out: show.NewLines(out), begun: map[string]bool{}}
}

// wait returns when all logs have ended.
func (l *logPrinter) wait() { l.group.Wait() }

// follow prints the logs of these pods' containers, each from its beginning to its end.
func (l *logPrinter) follow(ctx context.Context, views []local.PodView) {
	several := len(views) > 1
	for _, view := range views {
		names := slices.Collect(pod.ContainerNames(view.Pod))
		for _, name := range names {
			key := string(view.Pod.UID) + "/" + name
			if l.begun[key] {
				continue
			}
			l.begun[key] = true
			prefix := ""
			if several {
				prefix = view.Pod.Name + "/" + name + " | "
			} else if len(names) > 1 {
				prefix = name + " | "
			}
			request := local.LogRequest{
				Namespace: view.Pod.Namespace, Pod: view.Pod.Name, Container: name, AllInstances: true,
				Options: logs.Options{Follow: true, Tail: -1},
			}
			l.group.Go(func() { l.print(ctx, request, prefix) })
		}
	}
}

func (l *logPrinter) print(ctx context.Context, request local.LogRequest, prefix string) {
	w := l.out.Behind(prefix)
	text, err := l.client.Logs(ctx, request)
	if err == nil {
		_, err = io.Copy(w, text)
		text.Close()
	}
	if flushErr := w.Flush(); err == nil {
		err = flushErr
	}
	if err != nil && ctx.Err() == nil && !local.IsNotFound(err) && !errors.Is(err, local.ErrStopped) {
		_, _ = fmt.Fprintf(w, "(the log of %s can't be read: %v)\n", request.Container, err)
	}
}
