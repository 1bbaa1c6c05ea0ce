package image

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/image/access"
	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/image/gc"
	"github.com/deckhand-node/deckhand/internal/image/pull"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/memcri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig are a node's images on an in-memory runtime, with all that they are made of. It also
// is the node's pods, a keyring without keys, and whoever is told and measures.
type rig struct {
	*Images
	runtime *memcri.Server
	access  *access.Records
	imports *Imports
	// arrived has a value for each time that pods which wait were told.
	arrived chan struct{}

	mu              sync.Mutex
	wanted          []*pod.Desired
	observed        []*pod.Observed
	silent, unknown bool
}

func newRig(t *testing.T, own Extras) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "dh") // t.TempDir's path may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{imports: NewImports(), arrived: make(chan struct{}, 10)}
	if r.runtime, err = memcri.New(memcri.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.runtime.Close)
	if err := r.runtime.Start(filepath.Join(dir, "cri.sock")); err != nil {
		t.Fatal(err)
	}
	conn, err := cri.New(cri.Options{Endpoint: "unix://" + filepath.Join(dir, "cri.sock")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	policy, err := access.NewPolicy(v1beta1.NeverVerifyPreloadedImages, nil)
	if err != nil {
		t.Fatal(err)
	}
	log := testr.New(t)
	r.access = access.New(access.Config{RootDir: dir, Policy: policy, Meter: r, Log: log})
	r.Images = r.compose(conn, own, filepath.Join(dir, "images.json"), log)
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) compose(conn *cri.Conn, own Extras, file string, log logr.Logger) *Images {
	runtime, guard := Runtime{Conn: conn, Extras: own}, gc.NewGuard()
	records := &Records{Access: r.access, Runtime: runtime, Log: log}
	return New(Config{
		Manager: pull.New(pull.Config{Runtime: runtime, Keyring: r, Access: r.access, Meter: r, Transfers: own, Log: log}),
		Collector: gc.New(gc.Config{Policy: gc.Policy{High: 100}, Runtime: conn, Users: Users{r}, Guard: guard, Measure: r.measure,
			Records: file, Keep: own.Keep, Untag: own.Untag, Listener: records, Events: r, Meter: r, Log: log}),
		Guard: guard, Records: records, Extras: own, Imports: r.imports, Arrived: func() { r.arrived <- struct{}{} }, Log: log,
	})
}

func (r *rig) Wanted() ([]*pod.Desired, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted, !r.silent
}

func (r *rig) Ended(uid types.UID) bool { return strings.HasPrefix(string(uid), "ended") }

func (r *rig) Observed() ([]*pod.Observed, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.observed, !r.unknown
}

func (r *rig) set(change func(*rig)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

func (r *rig) For(context.Context, *v1.Pod, credentials.Objects, string) ([]credentials.Credential, error) {
	return nil, nil
}

func (r *rig) measure(path string) (gc.Disk, error) {
	return gc.Disk{Path: path, Capacity: 100, Available: 100}, nil
}

func (r *rig) Checked(access.Result)                      {}
func (r *rig) Asked(_, _, _ string)                       {}
func (r *rig) Pulled(time.Duration, int64)                {}
func (r *rig) ImageCollected(string, uint64)              {}
func (r *rig) NodeEvent(_ string, _ pod.Reason, _ string) {}

func podOf(name string, images ...string) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name = "default", name
	for i, image := range images {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: string(rune('a' + i)), Image: image})
	}
	return p
}
