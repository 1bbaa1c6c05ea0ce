package manager

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/filetree"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
	"github.com/deckhand-node/deckhand/internal/volume/operations"
)

// beginMount starts to mount the volume.
func (m *Manager) beginMount(ctx context.Context, w *volumestate.Wanted) *operations.Operation {
	return m.ops.Start(ctx, operations.Task{
		Key: w.Key(), Kind: volumestate.Mount + w.Name(), Owner: string(w.Place.UID), Again: volumestate.RetryAt,
		Do: func(ctx context.Context, op *operations.Operation) error {
			began := time.Now()
			err := m.mount(ctx, op, w)
			if ctx.Err() == nil { // a cancelled operation isn't a failure
				m.measured(op, w.Plugin, "volume_mount", w.Spec.Migrated, began, err)
			}
			return err
		},
	})
}

// measured records the metrics of an operation on a volume. began is when the operation began to work; it may have
// waited before.
func (m *Manager) measured(op *operations.Operation, plugin volume.Plugin, name string, migrated bool, began time.Time,
	err error) {
	m.conf.Meter.Operation(plugin.Name(), name, migrated, time.Since(began), err != nil)
	if err == nil {
		m.conf.Meter.Completed(plugin.Name(), name, time.Since(op.Began()))
	}
}

// mount mounts the volume, and adds it to the mounted set.
func (m *Manager) mount(ctx context.Context, op *operations.Operation, w *volumestate.Wanted) error {
	p := m.newest(w)
	r := volume.Request{Pod: p, Objects: w.Objects, Spec: w.Spec, Place: m.layout.Place(w.Place), InUse: m.inUse(w, p),
		Say: op.Waits}
	// The refresher detects changes of the inputs from this moment on.
	freed, seen := m.freed.Load(), m.observe(ctx, w, r.Pod)
	m.mu.Lock()
	_, again := m.failed[w.Place.UID][w.Name()]
	m.mu.Unlock()
	got, err := m.mountAttached(ctx, op, w, r)
	if r.InUse && !again && ctx.Err() == nil { // each adopted volume counts once, whatever the number of tries
		m.conf.Meter.Reconstructed(err != nil)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.taking, w)
	if err == nil {
		err = ctx.Err() // cancelled: the caller of Cancel tears the volume down, so the volume must not be added
	}
	if err != nil {
		if m.failed[w.Place.UID] == nil {
			m.failed[w.Place.UID] = map[string]attempt{}
		}
		waits := m.failed[w.Place.UID][w.Name()].waitsSince(err)
		m.failed[w.Place.UID][w.Name()] = attempt{seen, freed, waits}
		return err
	}
	delete(m.failed[w.Place.UID], w.Name())
	if got.Retained {
		seen = volumestate.Sight{} // a refresh reports the reason
	}
	m.leaving.Remove(w.Place) // if its teardown failed, it was still in this set
	m.actual.Put(&volumestate.Mounted{Wanted: w, Mounted: got, Seen: seen})
	if _, ok := w.Plugin.(volume.Live); ok {
		m.remounted.Wake()
	}
	return nil
}

// inUse reports whether containers of the pod may already use the volume. A running pod doesn't use a volume that only
// ephemeral containers use before one of these runs.
func (m *Manager) inUse(w *volumestate.Wanted, p *v1.Pod) bool {
	return m.conf.Running(p.UID) && slices.ContainsFunc(m.startedWith(p), func(c *v1.Container) bool {
		return volumestate.Uses(p, c, w.Spec.Volume)
	})
}

// mountAttached mounts the volume, and before that reports it as in use if a controller has to attach it.
func (m *Manager) mountAttached(ctx context.Context, op *operations.Operation, w *volumestate.Wanted,
	r volume.Request) (volume.Mounted, error) {
	a, ok := w.Plugin.(volume.Attacher)
	if !ok || m.conf.Attached == nil {
		return m.mountNow(ctx, op, w, r)
	}
	name, err := w.Attach(ctx, a)
	if err != nil && !r.InUse { // a volume in use may be mounted already, and its note says whether it is attached
		return volume.Mounted{}, err
	}
	// The volume may have waited for its attachment until the CSIDriver object changed to require no attachment.
	unattached := err == nil && name == "" && !m.stages.Holds(w, a)
	m.mu.Lock()
	if unattached {
		m.held.Drop(func(at volumestate.Place) bool { return at == w.Place })
	}
	m.held.Add(w.Place, name)
	m.mu.Unlock()
	m.reportInUse()
	return m.mountNow(ctx, op, w, r)
}

func (m *Manager) mountNow(ctx context.Context, op *operations.Operation, w *volumestate.Wanted,
	r volume.Request) (volume.Mounted, error) {
	if s, ok := w.Plugin.(volume.Stager); ok {
		op.Waits("its device is being staged")
		if err := m.stages.Enter(ctx, s, r, volumestate.User{UID: w.Place.UID, Name: w.Place.Name}); err != nil {
			return volume.Mounted{}, err
		}
		op.Say("")
	}
	if w.Spec.Kind() == "image" {
		op.Waits("its image is being pulled")
	}
	// Another volume of the pod mounts the same claim writable at this place. So the volume is mounted writable, and
	// only the containers' mounts of it are read-only.
	if w.Writable {
		r.Spec.Volume = r.Spec.Volume.DeepCopy()
		r.Spec.Volume.PersistentVolumeClaim.ReadOnly = false
	}
	held, err := m.retainParts(w, &r)
	if err != nil {
		return volume.Mounted{}, err
	}
	got, err := w.Plugin.Mount(ctx, r)
	if err != nil {
		return volume.Mounted{}, err
	}
	got.Updated = got.Updated || *held // the old content has to be removed later
	if w.Writable {
		got.ReadOnly, got.Ownership = true, false // the mount of the writable volume applies the fsGroup
	}
	// For a volume in use, the fsGroup was already applied before the first container that uses it was started.
	if gid, ok := volume.FSGroup(r.Pod); ok && got.Ownership && !r.InUse {
		return got, m.applyFSGroup(ctx, op, w, r.Pod, got, gid)
	}
	return got, nil
}

// applyFSGroup changes the group of the volume's files to the pod's fsGroup, unless the volume is in use by a pod
// with another fsGroup.
func (m *Manager) applyFSGroup(ctx context.Context, op *operations.Operation, w *volumestate.Wanted, p *v1.Pod,
	got volume.Mounted, gid int) error {
	if other := m.takeFiles(w, p, gid); other != nil {
		m.conf.Recorder.Event(p, pod.Event{
			Type: v1.EventTypeWarning, Reason: pod.ReasonAlreadyMountedVolume,
			Message: fmt.Sprintf("volume %q: its files aren't given to group %d (fsGroup), because pod %s/%s, which "+
				"has another fsGroup or none, uses PersistentVolume %s: pods that share one need the same fsGroup",
				w.Name(), gid, other.Namespace, other.Name, w.Spec.Persistent.Name),
		})
		return nil
	}
	op.Say(fmt.Sprintf("its files are being given to group %d (fsGroup)", gid))
	next := time.Now().Add(m.conf.FirstProgress)
	o := filetree.Options{GID: gid, ReadOnly: got.ReadOnly, Progress: func(done int) {
		now := time.Now()
		if now.Before(next) {
			return
		}
		next = now.Add(m.conf.NextProgress)
		m.conf.Recorder.Event(p, pod.Event{
			Type: v1.EventTypeWarning, Reason: pod.ReasonVolumePermissionChangeInProgress,
			Message: fmt.Sprintf("volume %q: its files are being given to group %d (fsGroup), %d so far; "+
				"fsGroupChangePolicy: OnRootMismatch saves that the next time", w.Name(), gid, done),
		})
	}}
	if policy := p.Spec.SecurityContext.FSGroupChangePolicy; policy != nil {
		o.Policy = *policy
	}
	return m.conf.ApplyFSGroup(ctx, got.Path, o)
}

// retainParts sets r.Held, so that an update of the volume keeps the parts that containers mount as subPaths. Parts
// are bind-mounted by operations on the same volume, which don't run at the same time as the update, so no part is
// added during the update. After the update, held says whether old content was kept for such parts.
func (m *Manager) retainParts(w *volumestate.Wanted, r *volume.Request) (held *bool, err error) {
	held = new(bool)
	if _, ok := w.Plugin.(volume.Live); !ok {
		return held, nil
	}
	parts, err := m.conf.SubPaths.Held(w.Place.UID, w.Place.Name)
	if parts != nil {
		r.Held = func(device, inode uint64) bool {
			is := parts(device, inode)
			*held = *held || is
			return is
		}
	}
	return held, err
}

// refresh updates the content of a volume of the pod. It reports whether the content changed, and whether old
// content was kept for containers that mount parts of it as subPaths.
func (m *Manager) refresh(ctx context.Context, e *volumestate.Mounted, p *v1.Pod) (changed, held bool, err error) {
	live, ok := e.Plugin.(volume.Live)
	if !ok || e.Writable { // the writable volume of the same claim is at the same place
		return false, false, nil
	}
	r := volume.Request{Pod: p, Objects: e.Objects, Spec: e.Spec, Place: m.layout.Place(e.Place),
		InUse: m.inUse(e.Wanted, p)}
	stayed, err := m.retainParts(e.Wanted, &r)
	if err != nil {
		return false, false, err
	}
	began := time.Now()
	changed, err = live.Refresh(ctx, r)
	if ctx.Err() != nil {
		return false, false, ctx.Err()
	}
	m.conf.Meter.Operation(e.Plugin.Name(), "volume_mount", e.Spec.Migrated, time.Since(began), err != nil)
	if changed {
		m.log.V(2).Info("Volume updated", "pod", klog.KRef(p.Namespace, p.Name), "volumeName", e.Name())
	}
	return changed, *stayed, err
}
