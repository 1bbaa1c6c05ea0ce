// Package manager mounts and unmounts the volumes of pods. It has two sets: the desired volumes of prepared pods,
// and the mounted volumes. It reconciles the two sets when a pod is prepared, released or cleaned up, and updates
// the content of volumes when the API objects that they show change. It also converts containers' volumeMounts to
// the CRI's mounts.
//
// Only volumes that a container uses are mounted. Those that only ephemeral containers use, which are added to running
// pods, are prepared for each of these containers (PrepareContainer), so that they delay no other one.
//
// Prepare, PrepareContainer, Release and Clean write the desired set, the mount operations write the mounted set. A
// volume is removed from the mounted set when its teardown begins. After a restart of the agent, both sets are empty.
// Preparing a pod again then leaves its mounts alone; volumes that aren't prepared again are found by their
// directories.
package manager

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/atomicwriter"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
	"github.com/deckhand-node/deckhand/internal/volume/operations"
)

// Manager mounts and unmounts volumes. It is safe for concurrent use. A hanging file system only delays the pods
// that use it. Calls for these pods return after a limited time.
type Manager struct {
	conf    Config
	log     logr.Logger
	layout  volumestate.Layout
	files   *atomicwriter.Files
	ops     *operations.Group
	stages  *volumestate.Stages
	holders *volumestate.Holders
	mounts  mountMaker
	// wake is filled when the refresher has to check volumes, remounted when the set of mounted volumes has
	// changed.
	wake, remounted wake.Slot

	mu      sync.Mutex
	desired volumestate.Desired
	actual  volumestate.Actual
	// leaving has the volumes whose teardown has begun and hasn't succeeded yet. Containers can't use them any more.
	leaving volumestate.Actual
	// held are the attached volumes that may be in use; heldKnown is set once those of an earlier agent were added,
	// adopted after Adopt succeeded, podsKnown by PodsKnown.
	held                          *volumestate.InUse
	heldKnown, adopted, podsKnown bool
	// detached are the mounted volumes that were found detached, see reportDetached.
	detached map[volumestate.Place]bool
	// taking maps the volumes whose files are being changed to a pod's fsGroup to that pod.
	taking map[*volumestate.Wanted]*v1.Pod
	// failed maps pods and names of volumes to the last failed mount.
	failed map[types.UID]map[string]attempt
	// freed counts the calls of DiskFreed.
	freed atomic.Uint64
	// sweepError is the last error of the operation of sweepDevices, which alone uses it.
	sweepError logging.LastError
	// unadopted are the pods with volumes that adopt couldn't take over.
	unadopted map[types.UID]unadopted
}

// attempt describes a failed mount by the state when it began. A change of this state ends the back-off.
type attempt struct {
	// inputs has the versions of the volume's inputs.
	inputs volumestate.Sight
	// freed counts the calls of DiskFreed.
	freed uint64
	// waits is when the volume began to wait as expected (volume.AwaitsError); zero after another failure.
	waits time.Time
}

// waitsSince returns the field waits for the next attempt, which has failed with this error.
func (a attempt) waitsSince(err error) time.Time {
	switch {
	case !volumestate.Expected(err):
		return time.Time{}
	case a.waits.IsZero():
		return time.Now()
	}
	return a.waits
}

// New returns a manager. Run has to be called to keep the content of volumes up to date.
func New(c Config, log logr.Logger) *Manager {
	c = c.orDefault()
	layout := volumestate.NewLayout(filepath.Join(c.RootDir, "pods"))
	ops := operations.Config{Parallel: c.Parallel, First: c.FirstBackoff}
	m := &Manager{
		conf: c, log: log, layout: layout, files: atomicwriter.New(layout.Pods(), c.ClusterDomain, "/etc/hosts"),
		ops: operations.New(ops), stages: volumestate.NewStages(c.RootDir, stagers(c.Plugins), ops),
		holders: volumestate.NewHolders(layout, c.Freed),
		wake:    wake.NewSlot(), remounted: wake.NewSlot(), desired: volumestate.Desired{},
		actual: volumestate.Actual{}, leaving: volumestate.Actual{}, taking: map[*volumestate.Wanted]*v1.Pod{},
		failed: map[types.UID]map[string]attempt{}, unadopted: map[types.UID]unadopted{},
		detached: map[volumestate.Place]bool{},
	}
	m.held = volumestate.NewInUse(m.stages.Devices)
	m.mounts = mountMaker{SubPaths: c.SubPaths, Touch: m.touch}
	return m
}

// Adopt records the staged devices of an earlier agent that has no records in deckhand's format, and finds the attached
// volumes that may be in use. It is called before any pod is prepared or released. After an error, Run tries again.
func (m *Manager) Adopt(ctx context.Context) error {
	err := errors.Join(m.stages.Adopt(ctx), m.adoptInUse())
	m.mu.Lock()
	m.adopted = err == nil
	m.mu.Unlock()
	return err
}

// Run updates the content of mounted volumes until ctx ends. Then it waits for running operations, for at most
// Config.Stop. It returns nil.
func (m *Manager) Run(ctx context.Context) error {
	sweep, again := m.sweepDevices(ctx), false
	fresh := newRefresher(refresherConfig{
		Ops: m.ops, Holds: m.holds, Observe: m.observe, Pod: m.conf.Pod, Refresh: m.refresh,
		RecordEvent: m.conf.Recorder.Event, Wake: m.wake, Freed: m.freed.Load, DiskFailed: m.conf.DiskFailed,
	})
	defer fresh.Stop()
	var adoptAt, sweepAt time.Time
	for {
		var adopt <-chan time.Time
		if adoptAt = m.adoptAt(adoptAt); !adoptAt.IsZero() {
			adopt = time.After(time.Until(adoptAt))
		}
		if until, err := m.ops.Failed(sweepKey, sweepKind); err != nil && sweep.Ended() && sweepAt.IsZero() {
			sweepAt = until
		}
		var retry <-chan time.Time
		if !sweepAt.IsZero() {
			retry = time.After(time.Until(sweepAt))
		}
		select {
		case <-ctx.Done():
			m.stop()
			return nil
		case <-m.conf.Changed.Woken():
			changed := m.conf.Changed.Drain()
			if slices.ContainsFunc(changed, func(o pod.Object) bool { return o.Kind == pod.CSIDriver }) {
				again = true // an earlier sweep may have needed the driver
			}
			if slices.ContainsFunc(changed, isAttachment) {
				m.reportDetached()
			}
			fresh.Changed(changed...)
			m.adoptAgain(ctx) // some volumes may wait for one of these objects
		case <-m.stages.Left:
			// Other devices may have waited for long.
			if soon := time.Now().Add(m.ops.Backoff(1)); sweepAt.IsZero() || soon.Before(sweepAt) {
				sweepAt = soon
			}
		case <-retry:
			again, sweepAt = true, time.Time{}
		case <-m.remounted:
			fresh.Follow(m.all())
		case <-m.wake:
		case <-adopt:
			adoptAt = time.Time{}
			m.adoptAgain(ctx)
		case <-fresh.Due():
		}
		if again && sweep.Ended() {
			sweep, again = m.sweepDevices(ctx), false
		}
		m.reportInUse() // a sweep may have unstaged devices
		fresh.Pass(ctx)
	}
}

// adoptEvery is how often Run tries to take over volumes that adopt couldn't.
const adoptEvery = 30 * time.Second

// adoptAt returns the time of the next attempt to adopt: the time at if it isn't zero; zero if there is nothing to
// adopt.
func (m *Manager) adoptAt(at time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case len(m.unadopted) == 0:
		return time.Time{}
	case at.IsZero():
		return time.Now().Add(adoptEvery)
	}
	return at
}

// DiskFreed ends the back-off of mounts and updates that failed because a disk couldn't be written: a disk has free
// space again, or works again. It doesn't block.
func (m *Manager) DiskFreed() {
	m.freed.Add(1)
	m.wake.Wake()
}

// stop cancels all operations, and logs those that haven't ended within Config.Stop.
func (m *Manager) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), m.conf.Stop)
	defer cancel()
	var left, devices []*operations.Operation
	var both sync.WaitGroup
	both.Go(func() { left = m.ops.Stop(ctx) })
	both.Go(func() { devices = m.stages.Stop(ctx) }) // concurrently, so that each has the whole of Config.Stop
	both.Wait()
	for _, op := range append(left, devices...) {
		m.log.Info("Operation on a volume still hangs at shutdown; the next agent retries it",
			"path", string(op.Key()), "operation", op.Kind(), "startTime", op.Began())
	}
}

// The operation of sweepDevices.
const (
	sweepKey  = operations.Key("staged")
	sweepKind = "sweep"
)

// sweepDevices starts an operation that unstages devices whose pods' directories are gone, unstages devices without
// users, and calls Adopt until that succeeds. The end of the operation wakes Run.
func (m *Manager) sweepDevices(ctx context.Context) *operations.Operation {
	// A pod's directory is made before its devices are staged.
	there := func(uid types.UID) bool {
		_, err := os.Lstat(m.layout.Pod(uid))
		return !errors.Is(err, fs.ErrNotExist)
	}
	op := m.ops.Start(ctx, operations.Task{Key: sweepKey, Kind: sweepKind,
		Owner: sweepKind, // so that its failures have a back-off
		Do: func(ctx context.Context, _ *operations.Operation) error {
			m.mu.Lock()
			adopted := m.adopted
			m.mu.Unlock()
			var missing error
			if !adopted {
				missing = m.Adopt(ctx)
			}
			err := errors.Join(missing, m.stages.Sweep(ctx, there))
			if err == nil {
				m.sweepError.Clear()
			} else {
				m.sweepError.Log(m.log, err, "Can't unstage all unused devices, or find those in use")
			}
			return err
		}})
	op.Notify(m.wake)
	return op
}

func stagers(plugins []volume.Plugin) []volume.Stager {
	var all []volume.Stager
	for _, p := range plugins {
		if s, ok := p.(volume.Stager); ok {
			all = append(all, s)
		}
	}
	return all
}

// Orphans lists the pods that have a directory on disk or claims, desired or not. A pod may have a claim but no
// directory: a killed agent may have bound the claim before it made the directory, and a record of bindings that was
// restored from a backup may name removed pods.
func (m *Manager) Orphans() ([]types.UID, error) {
	uids, err := m.layout.UIDs()
	for _, uid := range m.conf.Claims.Pods() {
		if !slices.Contains(uids, uid) {
			uids = append(uids, uid)
		}
	}
	return uids, err
}

// Instances lists the mounted volumes of all pods, sorted by the pods' UIDs and the volumes' names.
func (m *Manager) Instances() []volume.Instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.actual.Instances(m.layout)
}

// Holds reports whether volumes of the pod are mounted, or their teardown hasn't succeeded yet.
func (m *Manager) Holds(uid types.UID) bool {
	if slices.ContainsFunc(m.ops.Of(string(uid)), func(op *operations.Operation) bool {
		return strings.HasPrefix(op.Kind(), volumestate.Remove) // perhaps of volumes of an earlier agent
	}) {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.actual[uid])+len(m.leaving[uid]) > 0
}

// Totals counts the desired volumes and the mounted ones by plugin. The mounted ones include volumes whose teardown
// hasn't succeeded yet.
func (m *Manager) Totals() (desired, actual map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	actual = m.actual.Count()
	for plugin, n := range m.leaving.Count() {
		actual[plugin] += n
	}
	return m.desired.Count(), actual
}

func (m *Manager) all() []*volumestate.Mounted {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.actual.All()
}

func (m *Manager) holds(e *volumestate.Mounted) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.actual.Holds(e)
}

// has reports whether the volume is mounted with the desired source, plugin and place.
func (m *Manager) has(w *volumestate.Wanted) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.actual.Has(w)
}

// mounted returns the pod's volume of this name; nil if it isn't mounted.
func (m *Manager) mounted(uid types.UID, name string) *volumestate.Mounted {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.actual[uid][name]
}

// observe returns the versions of the current inputs of a volume, for this version of its pod.
func (m *Manager) observe(ctx context.Context, w *volumestate.Wanted, p *v1.Pod) volumestate.Sight {
	return volumestate.Observe(ctx, w.Objects, p, w.Spec)
}

// newest returns the newest version of the volume's pod, or, if the pod isn't desired any more, the version in w.
func (m *Manager) newest(w *volumestate.Wanted) *v1.Pod {
	if p := m.conf.Pod(w.Place.UID); p != nil {
		return p
	}
	return w.Pod
}
