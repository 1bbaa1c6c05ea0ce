// Package engine covers functions of a container runtime beyond its CRI. It has a list of runtime kinds, one of
// which the configuration selects. It makes no CRI calls itself.
package engine

import (
	"context"
	"fmt"
	"io"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
)

// Engine is a container runtime, except for its CRI. Its methods may be called concurrently.
type Engine interface {
	// Endpoint returns the address of the engine's CRI.
	Endpoint() string
	Traits() Traits
	// Modules returns the modules that run the engine; they start before its CRI is called. An engine that the
	// agent doesn't run has none.
	Modules(Owner) []modules.Module
	// Problems lists the engine's current problems, with messages for users.
	Problems() []pod.Problem

	// Keep returns the images that must not be removed, by name, with the reason.
	Keep() map[string]string
	// Untag removes image names; each of the images keeps at least one other name. The error is
	// errors.ErrUnsupported if the engine has no such function.
	Untag(ctx context.Context, names []string) error
	// BeforePull is called before each pull of an image by the CRI; an error prevents the pull.
	BeforePull(image string) error
	// Store returns the engine's image store; nil if it is only accessible through the CRI.
	Store() Store
	// Transfer returns the progress of an image's pull, false if that isn't available.
	Transfer(ctx context.Context, image string) (Transfer, bool)

	// Left reports whether the removal of a container failed because the engine lost track of the container's task.
	Left(err error) bool
	// Clear kills and removes the task that the engine lost track of (see Left).
	Clear(ctx context.Context, container string) error
	// LayerDir returns the upper directory of a container's root file system; empty if there is none. The error is
	// errors.ErrUnsupported if the engine has no such function.
	LayerDir(ctx context.Context, container string) (string, error)
	// FreeLayers returns once the disk space of removed containers is free.
	FreeLayers(ctx context.Context) error
}

// Traits are differences between engines that matter to the rest of the agent.
type Traits struct {
	// ConfiguredDriver means that the engine uses the configured cgroupDriver; others report their own (KEP-4033).
	ConfiguredDriver bool
	// NoSELinux means that the engine applies no SELinux labels, whatever the host supports.
	NoSELinux bool
	// StateDir is a directory that the users of containers with a user namespace must be able to reach; empty if it
	// can't be determined.
	StateDir string
}

// Owner is the agent, from the view of an engine that the agent runs.
type Owner struct {
	// Starting is called before the engine starts, with a message for users.
	Starting func(message string)
	// AllStopped reports whether all pods were stopped for good, so that the engine has to stop with the agent.
	AllStopped func() bool
}

// Store is an engine's image store, with functions that the CRI doesn't offer.
type Store interface {
	// ImportFrom stores the images of an archive and returns their names.
	ImportFrom(ctx context.Context, archive io.Reader) ([]string, error)
	// ExportTo writes an archive with the images of these full names.
	ExportTo(ctx context.Context, names []string, archive io.Writer) error
	// Tag adds the full name target to the image with the ID, which has one of the names. Another image with the
	// name target loses it.
	Tag(ctx context.Context, id string, names []string, target string) error
}

// Transfer is the progress of a pull.
type Transfer = embedded.Transfer

// Hooks connect an engine with the agent. All fields except StopsOnly are required.
type Hooks struct {
	// StopsOnly says that the agent only stops pods, and needs no images for that.
	StopsOnly bool
	// Files reports changes of files.
	Files *filewatch.Instance

	// Imported is called with the names of the images of each imported archive; it must not block.
	Imported func(refs []string)
	// NetworkRestored is called after parts of the pod network that another program removed were restored.
	NetworkRestored func(message string)
	// Move moves a process into a cgroup.
	Move func(group string, pid int) error
}

// Kind creates the Engine for the configurations that it fits.
type Kind struct {
	// Fits reports whether a configuration selects this kind.
	Fits func(*config.Config) bool
	New  func(*config.Config, Hooks, logr.Logger) (Engine, error)
}

// Kinds returns the kinds of this build. The first one that fits is used.
func Kinds() []Kind {
	return []Kind{embeddedKind(), externalKind()}
}

// New returns the engine that the configuration selects. It doesn't start the engine.
func New(kinds []Kind, cfg *config.Config, h Hooks, log logr.Logger) (Engine, error) {
	for _, k := range kinds {
		if k.Fits(cfg) {
			return k.New(cfg, h, log)
		}
	}
	return nil, fmt.Errorf("no kind of container runtime fits containerRuntimeEndpoint %q",
		cfg.Kubelet.ContainerRuntimeEndpoint)
}
