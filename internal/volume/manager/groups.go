package manager

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
)

// Groups returns the group IDs that the pod's PersistentVolumes specify (annotation pv.beta.kubernetes.io/gid),
// sorted. They are supplemental groups of all its containers.
func (m *Manager) Groups(p *v1.Pod) []int64 {
	var groups []int64
	for _, v := range p.Spec.Volumes {
		if e := m.mounted(p.UID, v.Name); e != nil {
			groups = append(groups, e.Groups...)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// takeFiles reserves the files of the PersistentVolume for gid, the pod's fsGroup, until the volume's mount
// operation has ended. If another pod with another fsGroup or none has mounted or reserved the volume, takeFiles
// reserves nothing and returns that pod.
func (m *Manager) takeFiles(w *volumestate.Wanted, p *v1.Pod, gid int) (other *v1.Pod) {
	if w.Spec.Persistent == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	inTheWay := func(has *volumestate.Wanted, of *v1.Pod) bool {
		if has.Spec.Persistent == nil || has.Spec.Persistent.Name != w.Spec.Persistent.Name ||
			has.Place.UID == w.Place.UID {
			return false
		}
		group, ok := volume.FSGroup(of)
		return !ok || group != gid
	}
	for _, e := range m.actual.All() {
		if inTheWay(e.Wanted, e.Pod) {
			return e.Pod
		}
	}
	for has, of := range m.taking {
		if inTheWay(has, of) {
			return of
		}
	}
	m.taking[w] = p
	return nil
}
