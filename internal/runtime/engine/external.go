package engine

import (
	"context"
	"errors"
	"strings"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
)

// External is a runtime that the agent doesn't run. Only its CRI is available, and FreeLayers if it is containerd.
type External string

func externalKind() Kind {
	return Kind{
		Fits: func(cfg *config.Config) bool { return !cfg.UsesEmbeddedRuntime() },
		New: func(cfg *config.Config, _ Hooks, _ logr.Logger) (Engine, error) {
			return External(cfg.Kubelet.ContainerRuntimeEndpoint), nil
		},
	}
}

// Endpoint implements Engine.
func (e External) Endpoint() string { return string(e) }

// Traits returns the zero value.
func (External) Traits() Traits { return Traits{} }

// Modules returns nil.
func (External) Modules(Owner) []modules.Module { return nil }

// Problems returns nil: the CRI reports problems.
func (External) Problems() []pod.Problem { return nil }

// Keep returns nil: external runtimes pin the images that they need.
func (External) Keep() map[string]string { return nil }

// Untag returns errors.ErrUnsupported.
func (External) Untag(context.Context, []string) error { return errors.ErrUnsupported }

// BeforePull returns nil.
func (External) BeforePull(string) error { return nil }

// Store returns nil.
func (External) Store() Store { return nil }

// Transfer returns false: the CRI doesn't report the progress of pulls.
func (External) Transfer(context.Context, string) (Transfer, bool) { return Transfer{}, false }

// Left returns false.
func (External) Left(error) bool { return false }

// Clear does nothing.
func (External) Clear(context.Context, string) error { return nil }

// LayerDir returns errors.ErrUnsupported.
func (External) LayerDir(context.Context, string) (string, error) { return "", errors.ErrUnsupported }

// FreeLayers implements Engine. Runtimes other than containerd don't have the function, and free the space at once.
func (e External) FreeLayers(ctx context.Context) error {
	conn, err := embedded.DialSocket(strings.TrimPrefix(string(e), "unix://"))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := embedded.FreeLayers(ctx, conn); status.Code(err) != codes.Unimplemented {
		return err
	}
	return nil
}
