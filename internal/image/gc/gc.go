// Package gc removes images that nobody needs: when the disk is too full, when they weren't
// used for too long, and when a person asks for it. decide, which is pure, says which images go
// and why; a Collector finds the facts, carries the decision out and reports it. A Guard keeps
// images from being removed while a pod is about to use them.
package gc

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

const (
	// Period is how often the collector looks by itself ("Garbage Collection": "The kubelet
	// performs garbage collection on unused images every five minutes").
	Period = 5 * time.Minute
	// gap is how long after one look the next one comes at the soonest, however often it
	// is woken.
	gap = 10 * time.Second
)

// Runtime is what the collector needs of the container runtime, in the terms of the CRI.
type Runtime interface {
	ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
	// ImageStatus reports one image; nil without an error means that it isn't there.
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	// RemoveImage removes an image with all its names. One that is gone is no error.
	RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Use is one need of an image.
type Use struct {
	// Image is an ID, a name with a digest, or a name as a pod's spec has it.
	Image string
	User
}

// ErrUsesUnknown is in the error of Users.InUse while it isn't known yet what runs or what
// should run here.
var ErrUsesUnknown = errors.New("it isn't known yet which images are in use")

// What is in the error of Remove.
var (
	// ErrUnknown: no image, or more than one, goes by that name.
	ErrUnknown = errors.New("no such image")
	// ErrKept: the image is in use, pinned, or has other names.
	ErrKept = errors.New("image is not removed")
)

// Users knows who needs which image.
type Users interface {
	// InUse lists every need: those of containers that the runtime knows, running or dead, by
	// the runtime's reference; those of pods that should run here, by the names in their
	// specs, image volumes included. It has to be complete, and as of now: an image
	// that isn't listed may be removed. An error means that nothing may be; with
	// ErrUsesUnknown it lists what is known, for people. It is asked
	// while an image can't be held, so it mustn't wait for whoever holds images.
	InUse(ctx context.Context) ([]Use, error)
}

// Listener is notified which images there are.
type Listener interface {
	// Present comes with each run, not concurrently: these are the IDs of all images on the
	// node, in a list asked for after a time. What is kept of others from before
	// that can be forgotten.
	Present(ctx context.Context, ids []string, since time.Time)
}

// Events records events about the node. The type is Normal or Warning.
type Events interface {
	NodeEvent(eventType string, reason pod.Reason, message string)
}

// Meter counts images that were collected (kubelet_image_garbage_collected_total).
type Meter interface {
	ImageCollected(reason string, bytes uint64)
}

// Config is what a collector is made of. All fields but Keep and Listed are needed.
type Config struct {
	// Policy is the one to begin with: see SetPolicy.
	Policy  Policy
	Runtime Runtime
	Users   Users
	Guard   *Guard
	// Measure returns capacity and free space of the file system at a path; usually Statfs.
	Measure func(path string) (Disk, error)
	// Records is the file that keeps when images were last used. Its directory is made if
	// need be (mode 0700).
	Records string
	// Keep returns images that aren't removed, by name, with why; it may be nil.
	Keep func() map[string]string
	// Untag removes names of an image that has others; errors.ErrUnsupported where the runtime can't.
	Untag    func(ctx context.Context, names []string) error
	Listener Listener
	// Listed gets all images each time that they are looked at; it must not change them. It may be nil.
	Listed func([]*runtimeapi.Image)
	Events Events
	Meter  Meter
	Log    logr.Logger
}

// Collector removes images. Its methods may be called concurrently.
type Collector struct {
	// Its Wake says that images were added, or needs have changed.
	wake.Debounce
	cfg    Config
	policy atomic.Pointer[Policy]
	// turn has one slot: who holds it may remove images.
	turn chan struct{}

	mu      sync.Mutex // locks what follows
	records records
	// began is when Run was called.
	began time.Time
}

// New makes a collector. It does nothing before Run, FreeNow or a person's question.
func New(c Config) *Collector {
	collector := &Collector{cfg: c, Debounce: wake.NewDebounce(gap), turn: make(chan struct{}, 1),
		records: records{path: c.Records}}
	collector.policy.Store(&c.Policy)
	return collector
}

// SetPolicy changes what is collected, from the next look on. If more is to go than before,
// that look comes at once, but no sooner than gap after the last.
func (c *Collector) SetPolicy(p Policy) {
	if old := c.policy.Swap(&p); p.StricterThan(*old) {
		c.Wake()
	}
}

// Run collects at once, every Period, and after each Wake, until ctx ends. The error is nil.
func (c *Collector) Run(ctx context.Context) error {
	c.mu.Lock()
	c.began = time.Now()
	c.mu.Unlock()
	for {
		began := time.Now()
		c.collect(ctx)
		if !c.Await(ctx, began, began.Add(Period)) {
			c.save(time.Now(), true)
			return nil
		}
	}
}

// FreeNow removes every image that isn't in use, pinned or younger than
// imageMinimumGCAge, for a node that is out of disk space. The report says what came of
// it, also with an error.
func (c *Collector) FreeNow(ctx context.Context) (Report, error) {
	return c.run(ctx, pressureRun, true)
}

// take takes the turn to remove images.
func (c *Collector) take(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Collector) giveBack() { <-c.turn }
