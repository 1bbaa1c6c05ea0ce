// Package manager makes and removes the volumes of pods. It holds two sets: the volumes that
// prepared pods want, and those that are mounted. Their difference is the work, which is
// done when a pod is prepared, released or cleaned up, and when what volumes are made
// from has changed; nothing is looked at meanwhile.
//
// The set of wanted volumes is written by Prepare, Release and Clean, that of mounted ones by
// the operations that mount; what is to be taken down leaves it when that is asked for. After a restart of the agent both are empty: pods
// that are wanted are prepared again, which leaves alone what is mounted for them; what is
// left of others is found by its folders.
package manager

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager/containermounts"
	"github.com/deckhand-node/deckhand/internal/volume/manager/freshness"
	"github.com/deckhand-node/deckhand/internal/volume/manager/inputs"
	"github.com/deckhand-node/deckhand/internal/volume/manager/oncepod"
	"github.com/deckhand-node/deckhand/internal/volume/manager/places"
	"github.com/deckhand-node/deckhand/internal/volume/manager/staging"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumeset"
	"github.com/deckhand-node/deckhand/internal/volume/operations"
	"github.com/deckhand-node/deckhand/internal/volume/podfiles"
)

// Manager makes and removes volumes. It is safe for concurrent use. File systems that hang
// keep nobody waiting but the pods that use them, and these not for ever.
type Manager struct {
	conf    Config
	log     logr.Logger
	layout  places.Layout
	files   *podfiles.Files
	ops     *operations.Group
	stages  *staging.Stages
	holders *oncepod.Holders
	mounts  containermounts.Maker
	wake    chan struct{}

	mu      sync.Mutex
	desired volumeset.Desired
	actual  volumeset.Actual
	// leaving is what was mounted and is to be taken down: it is nothing any more that a pod could be given.
	leaving volumeset.Actual
	// taking are the volumes whose files are being given to the fsGroup of a pod.
	taking map[*volumeset.Wanted]*v1.Pod
	// failed is what volumes couldn't be made from last, by pod and name.
	failed map[types.UID]map[string]inputs.Sight
}

// New makes a manager, which does nothing before it is asked. See Run.
func New(c Config, log logr.Logger) *Manager {
	c = c.orDefault()
	layout := places.New(filepath.Join(c.RootDir, "pods"))
	ops := operations.Config{Parallel: c.Parallel, First: c.FirstBackoff}
	m := &Manager{
		conf: c, log: log, layout: layout, files: podfiles.New(layout.Pods(), c.ClusterDomain, c.HostsFile),
		ops: operations.New(ops), stages: staging.New(filepath.Join(c.RootDir, "plugins"), ops), holders: oncepod.New(layout, c.Freed),
		wake: make(chan struct{}, 1), desired: volumeset.Desired{}, actual: volumeset.Actual{}, leaving: volumeset.Actual{}, taking: map[*volumeset.Wanted]*v1.Pod{}, failed: map[types.UID]map[string]inputs.Sight{},
	}
	m.mounts = containermounts.Maker{SubPaths: c.SubPaths, Touch: m.touch}
	return m
}

// Run keeps the content of mounted volumes up to date until ctx ends. Then it waits for what is
// under way, not for long. It returns nil.
func (m *Manager) Run(ctx context.Context) error {
	if len(m.stagers()) > 0 {
		m.ops.Begin(ctx, operations.Task{Key: "plugins", Kind: "sweep", Do: func(ctx context.Context, _ *operations.Operation) error { return m.sweepDevices(ctx) }})
	}
	fresh := freshness.New(freshness.Config{
		Ops: m.ops, Mounted: m.all, Holds: m.holds, Look: m.look, Pod: m.conf.Pod, Refresh: m.refresh, Tell: m.conf.Recorder.Event, Wake: m.wake,
	})
	defer fresh.Stop()
	for {
		select {
		case <-ctx.Done():
			m.stop()
			return nil
		case <-m.conf.Changed:
		case <-m.wake:
		case <-fresh.Due():
		}
		fresh.Pass(ctx)
	}
}

// stop gives up what is under way, and tells of what can't be ended.
func (m *Manager) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), m.conf.Stop)
	defer cancel()
	var left, devices []*operations.Operation
	var both sync.WaitGroup
	both.Go(func() { left = m.ops.Stop(ctx) })
	both.Go(func() { devices = m.stages.Stop(ctx) }) // at the same time: it has no less time to end what it can
	both.Wait()
	for _, op := range append(left, devices...) {
		m.log.Info("A volume still hangs while the agent ends; the next agent looks at it again", "volume", string(op.Key()), "operation", op.Kind(), "since", op.Began())
	}
}

// sweepDevices takes away the devices of pods that went without a trace.
func (m *Manager) sweepDevices(ctx context.Context) error {
	// A pod's folder is there before it gets a device.
	there := func(uid types.UID) bool {
		_, err := os.Lstat(m.layout.Pod(uid))
		return !errors.Is(err, fs.ErrNotExist)
	}
	var err error
	for _, s := range m.stagers() {
		if e := m.stages.Sweep(ctx, s, there); e != nil {
			err = errors.Join(err, e)
			m.log.Error(e, "Can't take away all devices that nobody uses any more", "plugin", s.Name())
		}
	}
	return err
}

func (m *Manager) stagers() []volume.Stager {
	var all []volume.Stager
	for _, p := range m.conf.Plugins {
		if s, ok := p.(volume.Stager); ok {
			all = append(all, s)
		}
	}
	return all
}

// Orphans lists the pods that have a folder on disk, wanted or not, in order.
func (m *Manager) Orphans() ([]types.UID, error) { return m.layout.UIDs() }

// Instances lists the volumes that are mounted, in order.
func (m *Manager) Instances() []volume.Instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.actual.Instances(m.layout)
}

// Totals counts the volumes that pods want, and those that are mounted, by plugin; also those that couldn't be
// taken down yet.
func (m *Manager) Totals() (desired, actual map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	actual = m.actual.Count()
	for plugin, n := range m.leaving.Count() {
		actual[plugin] += n
	}
	return m.desired.Count(), actual
}

func (m *Manager) all() []*volumeset.Mounted {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.actual.All()
}

func (m *Manager) holds(e *volumeset.Mounted) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.actual.Holds(e)
}

// has reports whether the volume is mounted as it is wanted.
func (m *Manager) has(w *volumeset.Wanted) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.actual.Has(w)
}

// mounted is the pod's volume of this name; nil if it isn't mounted.
func (m *Manager) mounted(uid types.UID, name string) *volumeset.Mounted {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.actual[uid][name]
}

// look sees the newest inputs of a volume.
func (m *Manager) look(ctx context.Context, p *v1.Pod, v *v1.Volume) inputs.Sight {
	return inputs.Look(ctx, m.conf.Objects, p, v)
}

// newest is the newest version of the volume's pod.
func (m *Manager) newest(w *volumeset.Wanted) *v1.Pod {
	if p := m.conf.Pod(w.Place.UID); p != nil {
		return p
	}
	return w.Pod
}
