// Package nodeimages is about the images of this node: they are made present, kept while
// they are needed, collected, and shown to people.
package nodeimages

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/imagegc"
	"github.com/deckhand-node/deckhand/internal/imagegc/choice"
	"github.com/deckhand-node/deckhand/internal/nodeimages/pulls"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Config is what Images are built from. All of it is needed.
type Config struct {
	Manager   *image.Manager
	Collector *imagegc.Collector
	// Guard is the collector's.
	Guard *imagegc.Guard
	// Records are the collector's listener.
	Records *Records
	Own     Own
	// Arrived is called when images have come: pods may have waited for them.
	Arrived func()
	Log     logr.Logger
}

// Images are the images of this node. All methods may be called concurrently.
type Images struct {
	cfg      Config
	arrivals *arrivals
	// started is closed when images may be asked for.
	started chan struct{}
}

// New makes them. Nothing is read before Start.
func New(c Config) *Images {
	return &Images{cfg: c, arrivals: newArrivals(), started: make(chan struct{})}
}

// Start reads who may use which image; to be called once. Until then nobody may ask for
// one: what is written down of a pull would be lost. The error is nil.
func (in *Images) Start(context.Context) error {
	defer close(in.started)
	in.cfg.Records.load()
	return nil
}

// Ensure makes an image present, and keeps it from being collected meanwhile. The error is
// that of image.Manager.Ensure; a pod's waits for other credentials.
func (in *Images) Ensure(ctx context.Context, r image.Request) (image.Image, error) {
	user := choice.User{How: "a pull by hand"}
	if r.Pod != nil {
		user = choice.User{Pod: r.Pod.Namespace + "/" + r.Pod.Name, How: "about to start"}
	}
	hold, err := in.cfg.Guard.Hold(ctx, r.Image, user)
	if err != nil {
		return image.Image{}, err
	}
	defer hold.Release()
	for {
		img, err := in.cfg.Manager.Ensure(ctx, r)
		if err != nil {
			return image.Image{}, awaitingLogin(r, err)
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
// secret may come, or be mended. Without other credentials that costs no pull.
func awaitingLogin(r image.Request, err error) error {
	var f *pod.Failure
	if r.Pod == nil || !errors.As(err, &f) || f.NotBefore.IsZero() {
		return err
	}
	awaiting := *f
	awaiting.Awaits = "credentials for " + r.Image
	return &awaiting
}

// Imported says that images of these names came by other means than a pull; Run takes them
// in. It doesn't block.
func (in *Images) Imported(names []string) { in.arrivals.add(names) }

// Run takes in images that came by other means than a pull, until ctx ends. The error is nil.
func (in *Images) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-in.arrivals.wake:
		}
		for _, name := range in.arrivals.take() {
			in.cfg.Records.imported(ctx, name)
		}
		in.arrived()
	}
}

// Pulls says what pulls under way are doing.
func (in *Images) Pulls(ctx context.Context) pulls.Words { return pulls.Now(ctx, in.cfg.Manager) }

// arrived has the pods that wait for an image look again.
func (in *Images) arrived() {
	in.cfg.Manager.RetryAll()
	in.cfg.Arrived()
	in.cfg.Collector.Wake()
}

// arrivals are names of images that came, until they are taken in.
type arrivals struct {
	wake chan struct{}

	mu    sync.Mutex
	names []string
}

func newArrivals() *arrivals { return &arrivals{wake: make(chan struct{}, 1)} }

// add doesn't block.
func (a *arrivals) add(names []string) {
	a.mu.Lock()
	a.names = append(a.names, names...)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *arrivals) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := a.names
	a.names = nil
	return slices.Compact(names)
}
