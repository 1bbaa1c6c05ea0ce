package image

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/image/gc"
	"github.com/deckhand-node/deckhand/internal/image/pull"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// Config configures Images. All fields are required.
type Config struct {
	Manager   *pull.Manager
	Collector *gc.Collector
	// Guard is the guard in Collector's Config.
	Guard *gc.Guard
	// Records is the Listener in Collector's Config.
	Records *Records
	Extras  Extras
	// Imports receives the names of images that arrive without a pull.
	Imports *Imports
	// Arrived is called after images have arrived: pods may be waiting for them.
	Arrived func()
	Log     logr.Logger
}

// Images manages the images of this node. All methods are safe for concurrent use.
type Images struct {
	cfg Config
	// started is closed by Start. Images can't be requested before.
	started chan struct{}
}

// New returns an Images. It reads nothing before Start.
func New(c Config) *Images {
	return &Images{cfg: c, started: make(chan struct{})}
}

// Start loads the records of which pods may use which image. Call it once. Images can't be requested before: the
// record of a pull would be lost. The error is always nil.
func (in *Images) Start(context.Context) error {
	defer close(in.started)
	in.cfg.Records.load()
	return nil
}

// Ensure makes an image present and protects it from garbage collection meanwhile. The error is that of
// pull.Manager.Ensure; for a pod it is retried when a Secret of its namespace changes.
func (in *Images) Ensure(ctx context.Context, r pull.Request) (pull.Image, error) {
	user := gc.User{How: "a pull by hand"}
	if r.Pod != nil {
		user = gc.User{Pod: r.Pod.Namespace + "/" + r.Pod.Name, How: "about to start"}
	}
	hold, err := in.cfg.Guard.Acquire(ctx, r.Image, user)
	if err != nil {
		return pull.Image{}, err
	}
	defer hold.Release()
	for {
		img, err := in.cfg.Manager.Ensure(ctx, r)
		if err != nil {
			return pull.Image{}, awaitingLogin(r, err)
		}
		if img.Pulled {
			in.cfg.Collector.Wake()
		}
		gone, err := hold.Found(ctx, img.Ref)
		if err != nil || !gone {
			return img, err
		}
	}
}

// awaitingLogin makes a pod's failed pull retry when a Secret of its namespace changes: a pull secret may be created
// or fixed. If the credentials are unchanged, the retry doesn't pull.
func awaitingLogin(r pull.Request, err error) error {
	var f *pod.Failure
	if r.Pod == nil || !errors.As(err, &f) || f.NotBefore.IsZero() {
		return err
	}
	awaiting := *f
	awaiting.Awaits = pod.Object{Kind: string(object.Secret), Namespace: r.Pod.Namespace}
	return &awaiting
}

// Run records images that arrive without a pull, until ctx ends. The error is always nil.
func (in *Images) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-in.cfg.Imports.wake:
		}
		for _, name := range in.cfg.Imports.drain() {
			in.cfg.Records.imported(ctx, name)
		}
		in.arrived()
	}
}

// Pulls returns the progress of the active pulls.
func (in *Images) Pulls(ctx context.Context) Underway { return pullsUnderWay(ctx, in.cfg.Manager) }

// arrived retries the pods that wait for an image.
func (in *Images) arrived() {
	in.cfg.Manager.RetryAll()
	in.cfg.Arrived()
	in.cfg.Collector.Wake()
}

// Imports queues the names of images that arrive without a pull, until Images.Run records them. Imports is created
// before the runtime, which imports images and reports them to it; Images is created after the runtime. Add is safe for
// concurrent use.
type Imports struct {
	wake wake.Slot

	mu    sync.Mutex
	names []string
}

// NewImports returns an empty queue.
func NewImports() *Imports { return &Imports{wake: wake.NewSlot()} }

// Add queues the names of images that have arrived; Images.Run records them. It doesn't block.
func (a *Imports) Add(names []string) {
	a.mu.Lock()
	a.names = append(a.names, names...)
	a.mu.Unlock()
	a.wake.Wake()
}

func (a *Imports) drain() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := a.names
	a.names = nil
	return slices.Compact(names)
}
