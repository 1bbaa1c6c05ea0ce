package manager

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
)

// PodsKnown records that the agent has all pods of this node. From now on, an attached volume isn't in use if no pod
// mounts it and no note names it.
func (m *Manager) PodsKnown() {
	m.mu.Lock()
	m.podsKnown = true
	m.mu.Unlock()
	m.reportInUse()
}

// adoptInUse adds the attached volumes of an earlier agent that may be in use. If notes or records can't be read, it
// keeps the names in the node's object that they may belong to, and returns an error; the next sweep then calls it
// again.
func (m *Manager) adoptInUse() error {
	if m.conf.Attached == nil {
		return nil
	}
	m.mu.Lock()
	m.held.Scan()
	m.mu.Unlock()
	held, err := m.stages.InUse() // without the lock: the disk may be slow
	m.mu.Lock()
	m.held.Found(held)
	m.heldKnown = true
	m.mu.Unlock()
	m.reportInUse()
	if err != nil {
		return fmt.Errorf("find the attached volumes that are in use; those that may be stay in volumesInUse: %w", err)
	}
	return nil
}

// reportInUse reports the attached volumes that may be in use.
func (m *Manager) reportInUse() {
	m.mu.Lock()
	defer m.mu.Unlock() // held during SetInUse, so that an older report can't overwrite a newer one
	if m.conf.Attached != nil && m.heldKnown && m.podsKnown && m.stages.Found(m.conf.Attached.Reported()) {
		m.conf.Attached.SetInUse(m.held.List())
	}
}

// useAttached reports the attached volumes that a pod is about to mount, all at once: each report may be a call to the
// API server.
func (m *Manager) useAttached(ctx context.Context, wants []*volumestate.Wanted) {
	if m.conf.Attached == nil {
		return
	}
	names := map[volumestate.Place]v1.UniqueVolumeName{}
	for _, w := range wants {
		if a, ok := w.Plugin.(volume.Attacher); ok && !m.has(w) {
			if name, err := w.Attach(ctx, a); err == nil { // else mountAttached returns the error
				names[w.Place] = name
			}
		}
	}
	if len(names) == 0 {
		return
	}
	m.mu.Lock()
	for at, name := range names {
		m.held.Add(at, name)
	}
	m.mu.Unlock()
	m.reportInUse()
}

// dropInUse removes volumes of which nothing is left on this node.
func (m *Manager) dropInUse(gone func(volumestate.Place) bool) {
	m.mu.Lock()
	m.held.Drop(gone)
	m.mu.Unlock()
	m.reportInUse()
}

func isAttachment(o pod.Object) bool {
	return o == pod.Object{} || o.Kind == string(object.VolumeAttachment)
}

// reportDetached records an event for each mounted volume that was detached. The containers with such a volume run on:
// only their end would free the volume, and the volume may be attached again.
func (m *Manager) reportDetached() {
	if m.conf.Attached == nil {
		return
	}
	var lost []*volumestate.Mounted
	m.mu.Lock()
	before := m.detached
	m.detached = map[volumestate.Place]bool{}
	for _, e := range m.actual.All() {
		if name := m.held.Name(e.Place); name != "" && m.conf.Attached.Detached(name) {
			if m.detached[e.Place] = true; !before[e.Place] {
				lost = append(lost, e)
			}
		}
	}
	m.mu.Unlock()
	for _, e := range lost {
		m.conf.Recorder.Event(m.newest(e.Wanted), pod.Event{Type: v1.EventTypeWarning, Reason: pod.ReasonFailedMount,
			Message: fmt.Sprintf("volume %q was detached from this node while it is mounted, so that writes may fail "+
				"or be lost: delete the pod, as its containers keep the mount", e.Name())})
	}
}
