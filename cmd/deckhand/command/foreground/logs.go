package foreground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/deckhand-node/deckhand/internal/runtime/logs"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// logPrinter prints the logs of all containers of a run.
type logPrinter struct {
	client *local.Client
	mu     sync.Mutex
	out    io.Writer
	begun  map[string]bool
	group  sync.WaitGroup
}

func newLogPrinter(client *local.Client, out io.Writer) *logPrinter {
	return &logPrinter{client: client, out: out, begun: map[string]bool{}}
}

// wait returns when every log has come to its end.
func (l *logPrinter) wait() { l.group.Wait() }

// follow prints the logs of those pods' containers, each from its begin to its end.
func (l *logPrinter) follow(ctx context.Context, views []local.PodView) {
	several := len(views) > 1
	for _, view := range views {
		spec := &view.Pod.Spec
		names := make([]string, 0, len(spec.InitContainers)+len(spec.Containers))
		for i := range spec.InitContainers {
			names = append(names, spec.InitContainers[i].Name)
		}
		for i := range spec.Containers {
			names = append(names, spec.Containers[i].Name)
		}
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
	w := &lineWriter{mu: &l.mu, w: l.out, prefix: prefix}
	text, err := l.client.Logs(ctx, request)
	if err == nil {
		_, err = io.Copy(w, text)
		text.Close()
	}
	if flushErr := w.flush(); err == nil {
		err = flushErr
	}
	if err != nil && ctx.Err() == nil && !local.IsNotFound(err) && !errors.Is(err, local.ErrStopped) {
		_, _ = fmt.Fprintf(w, "(the log of %s can't be read: %v)\n", request.Container, err)
	}
}
