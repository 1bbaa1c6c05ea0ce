// Package engine has what the agent needs of a container runtime beside its CRI: a list of kinds of runtimes, of which
// the configuration chooses one. It doesn't speak CRI itself.
package engine

import (
	"context"
	"fmt"
	"io"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
)

// Engine is a container runtime, beside its CRI. Its methods may be called concurrently.
type Engine interface {
	// Endpoint is the address of its CRI.
	Endpoint() string
	Traits() Traits
	// Modules keep the engine running; they start before its CRI is called. None for one that the agent doesn't run.
	Modules(Owner) []modules.Module
	// Problems lists what is wrong with it, for people.
	Problems() []pod.Problem

	// Keep returns the images that must not be removed, by name, with the reason.
	Keep() map[string]string
	// Untag removes names of images that have others; errors.ErrUnsupported if the engine can't do that.
	Untag(ctx context.Context, names []string) error
	// BeforePull is called before each pull of an image by the CRI; an error prevents the pull.
	BeforePull(image string) error
	// Store is its store of images; nil if only the CRI gives access to that.
	Store() Store
	// Transfer returns the progress of an image's pull, false if that isn't available.
	Transfer(ctx context.Context, image string) (Transfer, bool)

	// Left reports whether the removal of a container failed because the engine has lost the container's task.
	Left(err error) bool
	// Clear ends and removes such a task.
	Clear(ctx context.Context, container string) error
}

// Traits are how an engine differs from others, for the rest of the agent.
type Traits struct {
	// ConfiguredDriver says that the engine uses the configured cgroupDriver; others report their own (KEP-4033).
	ConfiguredDriver bool
	// NoSELinux says that it labels nothing, whatever the host does.
	NoSELinux bool
	// StateDir is a directory that the users of containers with a user namespace have to reach; empty if unknown.
	StateDir string
}

// Owner is the agent, for an engine that is a part of it.
type Owner struct {
	// Starting is called before the engine starts, with a message for people.
	Starting func(message string)
	// AllStopped reports whether all pods were stopped for good, so that the engine ends with the agent.
	AllStopped func() bool
}

// Store is an engine's store of images, as far as the CRI has no access to it.
type Store interface {
	// ImportFrom stores the images of an archive and returns their names.
	ImportFrom(ctx context.Context, archive io.Reader) ([]string, error)
	// ExportTo writes an archive with the images of these full names.
	ExportTo(ctx context.Context, names []string, archive io.Writer) error
	// Tag gives the image with the ID, which has one of the names, the full name target too. Another image loses it.
	Tag(ctx context.Context, id string, names []string, target string) error
}

// Transfer is the progress of a pull.
type Transfer = embedded.Transfer

// Hooks are called by an engine. Every one is needed.
type Hooks struct {
	// Imported is called with the names of the images of each imported archive; it must not block.
	Imported func(refs []string)
	// NetworkRestored is called after parts of the pods' network, which another program removed, were made again.
	NetworkRestored func(message string)
	// Move moves a process into a control group.
	Move func(group string, pid int) error
}

// Kind is a kind of engines.
type Kind struct {
	// Fits reports whether a configuration asks for this kind.
	Fits func(*config.Config) bool
	New  func(*config.Config, Hooks, logr.Logger) (Engine, error)
}

// Kinds returns the kinds of this build. The first one that fits is used.
func Kinds() []Kind {
	return []Kind{embeddedKind(), externalKind()}
}

// New returns the engine that the configuration asks for. It doesn't run yet.
func New(kinds []Kind, cfg *config.Config, h Hooks, log logr.Logger) (Engine, error) {
	for _, k := range kinds {
		if k.Fits(cfg) {
			return k.New(cfg, h, log)
		}
	}
	return nil, fmt.Errorf("no kind of container runtime fits containerRuntimeEndpoint %q",
		cfg.Kubelet.ContainerRuntimeEndpoint)
}
