package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
)

// Embedded is the containerd that is part of deckhand and run by the agent.
type Embedded struct {
	runtime *embedded.Runtime
	config  embedded.Config
	// began is when the engine was created: the start time of problems that have no time of their own.
	began time.Time
}

func embeddedKind() Kind {
	return Kind{
		Fits: (*config.Config).UsesEmbeddedRuntime,
		New: func(cfg *config.Config, h Hooks, log logr.Logger) (Engine, error) {
			c := embedded.ConfigOf(cfg)
			c.Files, c.StopsOnly = h.Files, h.StopsOnly
			c.OnImport, c.OnRestore = h.Imported, h.NetworkRestored
			if group := cfg.RuntimeCgroups; group != "" {
				c.OnStart = func(pid int) error {
					if err := h.Move(group, pid); err != nil {
						return fmt.Errorf("--runtime-cgroups: %w", err)
					}
					return nil
				}
			}
			runtime, err := embedded.New(c, log)
			if err != nil {
				return nil, err
			}
			return Embedded{runtime, c, time.Now()}, nil
		},
	}
}

// Endpoint implements Engine.
func (e Embedded) Endpoint() string { return e.runtime.Endpoint() }

// Traits implements Engine. The embedded containerd runs with SELinux disabled, because SELinux requires a host
// policy for it.
func (e Embedded) Traits() Traits {
	return Traits{ConfiguredDriver: true, NoSELinux: true, StateDir: e.runtime.StateDir()}
}

// shutDownPatience is how long containerd may take to stop before it is killed.
const shutDownPatience = 10 * time.Second

// Modules returns two modules. The second one runs containerd, and leaves it running when it ends. Modules end in
// reverse order: the first one ends later, and stops containerd if all pods were stopped for good.
func (e Embedded) Modules(owner Owner) []modules.Module {
	return []modules.Module{
		{Name: "end of the embedded runtime", Run: func(ctx context.Context) error {
			<-ctx.Done()
			if !owner.AllStopped() {
				return nil
			}
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutDownPatience)
			defer cancel()
			return e.runtime.Shutdown(end)
		}},
		{Name: "embedded runtime", Run: e.runtime.Run, Start: func(ctx context.Context) error {
			owner.Starting("the embedded runtime is starting")
			return e.runtime.Start(ctx)
		}},
	}
}

// Problems returns the problems of image archives and of the pod network.
func (e Embedded) Problems() []pod.Problem {
	var list []pod.Problem
	for _, text := range e.runtime.Problems() {
		list = append(list, pod.Problem{Origin: "image archives", Message: text, Since: e.began, General: true})
	}
	if p := e.runtime.NetworkProblem(); p.Message != "" {
		list = append(list, pod.Problem{Origin: "pod network", Message: p.Message, Since: p.Since, General: true})
	}
	return list
}

// Keep returns the images that belong to deckhand or are in an archive in the images directory: if they were
// removed, they couldn't be pulled.
func (e Embedded) Keep() map[string]string {
	keep := map[string]string{}
	for _, name := range e.runtime.Archived() {
		keep[name] = "its archive is in the images directory"
	}
	keep[e.config.PauseImage] = "the image of the pods' sandboxes"
	return keep
}

// Untag calls containerd's own API, because the CRI removes images with all their names.
func (e Embedded) Untag(ctx context.Context, names []string) error {
	return e.dialed(func(conn *grpc.ClientConn) error { return embedded.Untag(ctx, conn, names) })
}

// BeforePull makes containerd verify the registry's certificate.
func (e Embedded) BeforePull(name string) error { return e.config.VerifyRegistry(name) }

// Store returns containerd's image store.
func (e Embedded) Store() Store { return e.runtime }

// Transfer implements Engine.
func (e Embedded) Transfer(ctx context.Context, name string) (t Transfer, ok bool) {
	err := e.dialed(func(conn *grpc.ClientConn) (err error) {
		t, ok, err = embedded.TransferOf(ctx, conn, name)
		return err
	})
	return t, ok && err == nil
}

// Left implements Engine.
func (Embedded) Left(err error) bool { return embedded.TaskLeft(err) }

// Clear implements Engine.
func (e Embedded) Clear(ctx context.Context, container string) error {
	return e.dialed(func(conn *grpc.ClientConn) error { return embedded.ClearTask(ctx, conn, container) })
}

// LayerDir implements Engine.
func (e Embedded) LayerDir(ctx context.Context, container string) (dir string, err error) {
	err = e.dialed(func(conn *grpc.ClientConn) (err error) {
		dir, err = embedded.LayerDir(ctx, conn, container)
		return err
	})
	return dir, err
}

// FreeLayers implements Engine.
func (e Embedded) FreeLayers(ctx context.Context) error {
	return e.dialed(func(conn *grpc.ClientConn) error { return embedded.FreeLayers(ctx, conn) })
}

// dialed calls containerd over a separate connection.
func (e Embedded) dialed(call func(*grpc.ClientConn) error) error {
	conn, err := embedded.Dial(e.config)
	if err != nil {
		return err
	}
	defer conn.Close()
	return call(conn)
}
