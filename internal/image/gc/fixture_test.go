package gc

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"go.uber.org/goleak"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
)

var _ Runtime = (*cri.Conn)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mib = 1 << 20

// world is a runtime, its disk, and those who use its images.
type world struct {
	mu     sync.Mutex
	images map[string]*runtimeapi.Image
	// onDisk is what an image takes, in bytes; other is what else does.
	onDisk   map[string]uint64
	other    uint64
	capacity uint64
	uses     []Use
	events   []string
	counts   map[string]int
	removed  []string
	present  []string
	lists    []time.Time
	// failing are IDs that can't be removed; fails has calls fail.
	failing map[string]bool
	fails   map[string]error
	// removing, unless nil, is called before an image is removed; looked after one was looked up.
	removing, looked func(id string)
	separate         bool
}

func newWorld() *world {
	return &world{images: map[string]*runtimeapi.Image{}, onDisk: map[string]uint64{}, counts: map[string]int{},
		failing: map[string]bool{}, fails: map[string]error{}, capacity: 1000 * mib}
}

// add puts an image on the node.
func (w *world) add(id string, size uint64, tags ...string) *runtimeapi.Image {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := &runtimeapi.Image{Id: id, RepoTags: tags, Size: size}
	w.images[id], w.onDisk[id] = i, size
	return i
}

func (w *world) use(refs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uses = nil
	for _, ref := range refs {
		w.uses = append(w.uses, Use{Image: ref, User: User{Pod: "default/web", How: "wanted"}})
	}
}

// fail has calls of a kind fail; nil ends that.
func (w *world) fail(what string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails[what] = err
}

// fill fills the disk with something else.
func (w *world) fill(other uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.other = other
}

func (w *world) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.images)), w.fails["list"]
}

func (w *world) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	w.mu.Lock()
	i := w.images[spec.GetImage()]
	w.mu.Unlock()
	if w.looked != nil {
		w.looked(spec.GetImage())
	}
	return i, nil
}

func (w *world) RemoveImage(_ context.Context, spec *runtimeapi.ImageSpec) error {
	id := spec.GetImage()
	if w.removing != nil {
		w.removing(id)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failing[id] {
		return errors.New("device busy")
	}
	delete(w.images, id)
	delete(w.onDisk, id)
	w.removed = append(w.removed, id)
	return nil
}

// untag is asked to remove names, unless it can't.
func (w *world) untag(_ context.Context, names []string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fails["untag"]; err != nil {
		return err
	}
	w.removed = append(w.removed, names...)
	return nil
}

func (w *world) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	at := func(path string) []*runtimeapi.FilesystemUsage {
		return []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: path}}}
	}
	r := &runtimeapi.ImageFsInfoResponse{ImageFilesystems: append(at("/images"), at("/images")...)}
	if w.separate {
		r.ContainerFilesystems = at("/full")
	}
	return r, w.fails["fs"]
}

func (w *world) measure(path string) (Disk, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := Disk{Path: path, Capacity: w.capacity}
	if path == "/full" {
		return d, nil
	}
	used := w.other
	for _, size := range w.onDisk {
		used += size
	}
	d.Available = w.capacity - min(used, w.capacity)
	return d, w.fails["measure"]
}

func (w *world) InUse(context.Context) ([]Use, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.uses, w.fails["uses"]
}

func (w *world) NodeEvent(eventType string, reason pod.Reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, eventType+" "+string(reason)+": "+message)
}

func (w *world) Present(_ context.Context, ids []string, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.present = slices.Sorted(slices.Values(ids))
	w.lists = append(w.lists, since)
}

func (w *world) ImageCollected(reason string, _ uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[reason]++
}

// taken returns what was removed and told since the last call.
func (w *world) taken() (removed, events []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	removed, events = w.removed, w.events
	w.removed, w.events = nil, nil
	return removed, events
}

func (w *world) collector(t testing.TB, p Policy) *Collector {
	return New(Config{
		Policy: p, Runtime: w, Users: w, Guard: NewGuard(), Measure: w.measure, Listener: w, Events: w, Meter: w,
		Records: filepath.Join(t.TempDir(), "checkpoints", "images.json"), Keep: func() map[string]string {
			return map[string]string{"registry.k8s.io/pause:3.10": "the image of the pods' sandboxes"}
		}, Untag: w.untag, Log: logger(t),
	})
}

func logger(t testing.TB) logr.Logger {
	return testr.NewWithInterface(t, testr.Options{Verbosity: 4})
}

// start runs the collector until the test, or the returned function, ends it.
func start(t testing.TB, c *Collector) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
