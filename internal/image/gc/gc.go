// Package gc removes unused images: when the disk is too full, when they weren't used for too long, and at a user's
// request. decide, a pure function, chooses the images; a Collector gathers its input, removes the images and reports
// the result. A Guard protects images that a pod is about to use.
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
	// Period is the interval between runs ("Garbage Collection": "The kubelet performs garbage collection on unused
	// images every five minutes").
	Period = 5 * time.Minute
	// gap is the minimum interval between runs, however often the collector is woken.
	gap = 10 * time.Second
)

// Runtime is the part of the CRI that the collector uses.
type Runtime interface {
	ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
	// ImageStatus returns an image, or nil without an error if there is none.
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	// RemoveImage removes an image with all its names. It is no error if there is none.
	RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Use is one use of an image.
type Use struct {
	// Image is an ID, a name with a digest, or a name from a pod's spec.
	Image string
	User
}

// ErrUsesUnknown is wrapped by the error of Users.InUse until all containers and all pods of this node have been
// listed.
var ErrUsesUnknown = errors.New("the images in use aren't determined yet")

// Errors that the errors of Remove, Find and Tag wrap.
var (
	// ErrUnknown: the name refers to no image, or to several.
	ErrUnknown = errors.New("no such image")
	// ErrRetained: the image is in use, pinned, or has other names.
	ErrRetained = errors.New("image is not removed")
)

// Users lists the users of images.
type Users interface {
	// InUse lists all uses: those by the runtime's containers, running or ended, with the runtime's references; and
	// those by pods that should run here and haven't ended for good, with the names in their specs, including image
	// volumes. The list has to be complete and current: images that aren't listed may be removed. After an error, none
	// is removed; with ErrUsesUnknown, the partial list is shown to users. It is called while new holds of an image
	// block, so it must not wait for a holder.
	InUse(ctx context.Context) ([]Use, error)
}

// Listener is notified of the images on the node.
type Listener interface {
	// Present is called in each run, not concurrently, with the IDs of all images on the node, from a list that was
	// requested at since. Data about other images from before since can be deleted.
	Present(ctx context.Context, ids []string, since time.Time)
}

// Events records events about the node. The type is Normal or Warning.
type Events interface {
	NodeEvent(eventType string, reason pod.Reason, message string)
}

// Meter counts collected images (kubelet_image_garbage_collected_total).
type Meter interface {
	ImageCollected(reason string, bytes uint64)
}

// Config configures a Collector. All fields but Keep and Listed are required.
type Config struct {
	// Policy is the initial policy; SetPolicy changes it.
	Policy  Policy
	Runtime Runtime
	Users   Users
	Guard   *Guard
	// Measure returns capacity and free space of the file system at a path; usually Statfs.
	Measure func(path string) (Disk, error)
	// Records is the path of the file with the times at which images were last used. Its directory is created if
	// necessary (mode 0700).
	Records string
	// Keep returns the names of images that must not be removed, with the reason for each. It may be nil.
	Keep func() map[string]string
	// Untag removes names of an image that has others. It returns errors.ErrUnsupported if the runtime can't remove
	// single names.
	Untag    func(ctx context.Context, names []string) error
	Listener Listener
	// Listed receives all images whenever they are listed, and must not change them. It may be nil.
	Listed func([]*runtimeapi.Image)
	Events Events
	Meter  Meter
	Log    logr.Logger
}

// Collector removes images. Its methods are safe for concurrent use.
type Collector struct {
	// Call Wake when images were added or their uses have changed.
	wake.Debounce
	cfg    Config
	policy atomic.Pointer[Policy]
	// turn has one slot. Only the goroutine that has filled it may remove images.
	turn chan struct{}

	mu      sync.Mutex // guards records and began
	records records
	// began is when Run was called.
	began time.Time
}

// New returns a Collector. It does nothing before a method is called.
func New(c Config) *Collector {
	collector := &Collector{cfg: c, Debounce: wake.NewDebounce(gap), turn: make(chan struct{}, 1),
		records: records{path: c.Records}}
	collector.policy.Store(&c.Policy)
	return collector
}

// SetPolicy changes the policy from the next run on. If the new policy may remove more, the next run starts at once,
// but not sooner than gap after the last one.
func (c *Collector) SetPolicy(p Policy) {
	if old := c.policy.Swap(&p); p.StricterThan(*old) {
		c.Wake()
	}
}

// Run collects garbage at once, every Period, and after each Wake, until ctx ends. The error is always nil.
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

// FreeNow removes every image that isn't in use, pinned or younger than imageMinimumGCAge, for a node that is out of
// disk space. The report is valid also with an error.
func (c *Collector) FreeNow(ctx context.Context) (Report, error) {
	return c.run(ctx, pressureRun, true)
}

// acquire waits for the turn to remove images.
func (c *Collector) acquire(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Collector) release() { <-c.turn }
