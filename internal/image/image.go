// Package image is the image service of this node: images are made present for pods, kept while
// they are needed, collected, and shown to people, with the pulls under way. Packages below it
// pull (pull), say who may use an image (access), collect (gc) and know credentials
// (credentials).
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

// Config is what Images are built from. All of it is needed.
type Config struct {
	Manager   *pull.Manager
	Collector *gc.Collector
	// Guard is the collector's.
	Guard *gc.Guard
	// Records are the collector's listener.
	Records *Records
	Extras  Extras
	// Imports are notified of what comes by other means than a pull.
	Imports *Imports
	// Arrived is called when images have come: pods may have waited for them.
	Arrived func()
	Log     logr.Logger
}

// Images are the images of this node. All methods may be called concurrently.
type Images struct {
	cfg Config
	// started is closed when images may be asked for.
	started chan struct{}
}

// New makes them. Nothing is read before Start.
func New(c Config) *Images {
	return &Images{cfg: c, started: make(chan struct{})}
}

// Start reads who may use which image; to be called once. Until then nobody may ask for
// one: what is recorded of a pull would be lost. The error is nil.
func (in *Images) Start(context.Context) error {
	defer close(in.started)
	in.cfg.Records.load()
	return nil
}

// Ensure makes an image present, and keeps it from being collected meanwhile. The error is
// that of image.Manager.Ensure; a pod's waits for other credentials.
func (in *Images) Ensure(ctx context.Context, r pull.Request) (pull.Image, error) {
	user := gc.User{How: "a pull by hand"}
	if r.Pod != nil {
		user = gc.User{Pod: r.Pod.Namespace + "/" + r.Pod.Name, How: "about to start"}
	}
	hold, err := in.cfg.Guard.Hold(ctx, r.Image, user)
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

// awaitingLogin has a pod's pull that failed tried again when objects change: a pull
// secret may come, or be fixed. Without other credentials that costs no pull.
func awaitingLogin(r pull.Request, err error) error {
	var f *pod.Failure
	if r.Pod == nil || !errors.As(err, &f) || f.NotBefore.IsZero() {
		return err
	}
	awaiting := *f
	awaiting.Awaits = pod.Object{Kind: string(object.Secret), Namespace: r.Pod.Namespace}
	return &awaiting
}

// Run takes in images that came by other means than a pull, until ctx ends. The error is nil.
func (in *Images) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-in.cfg.Imports.wake:
		}
		for _, name := range in.cfg.Imports.take() {
			in.cfg.Records.imported(ctx, name)
		}
		in.arrived()
	}
}

// Pulls says what pulls under way are doing.
func (in *Images) Pulls(ctx context.Context) Underway { return pullsUnderWay(ctx, in.cfg.Manager) }

// arrived has the pods that wait for an image look again.
func (in *Images) arrived() {
	in.cfg.Manager.RetryAll()
	in.cfg.Arrived()
	in.cfg.Collector.Wake()
}

// Imports are names of images that came by other means than a pull, until they are taken in. They
// exist before Images do: a runtime that imports is what Images ask. Add may be called by any goroutine.
type Imports struct {
	wake wake.Slot

	mu    sync.Mutex
	names []string
}

// NewImports returns none.
func NewImports() *Imports { return &Imports{wake: wake.NewSlot()} }

// Add says that images of these names have come; Images.Run takes them in. It doesn't block.
func (a *Imports) Add(names []string) {
	a.mu.Lock()
	a.names = append(a.names, names...)
	a.mu.Unlock()
	a.wake.Wake()
}

func (a *Imports) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := a.names
	a.names = nil
	return slices.Compact(names)
}
