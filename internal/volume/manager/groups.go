package manager

import (
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager/containermounts"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumeset"
)

// groupAnnotation is a PersistentVolume's, with the group that may use it
// (https://kubernetes.io/docs/tasks/configure-pod-container/configure-persistent-volume-storage/#access-control).
const groupAnnotation = "pv.beta.kubernetes.io/gid"

// Groups returns the groups that the pod's PersistentVolumes are for, in order: all its containers are to be in
// them. The error is a *pod.Failure.
func (m *Manager) Groups(p *v1.Pod) ([]int64, error) {
	var groups []int64
	for _, v := range p.Spec.Volumes {
		e := m.mounted(p.UID, v.Name)
		if e == nil || e.Spec.Persistent == nil {
			continue
		}
		pv := e.Spec.Persistent
		text, ok := pv.Annotations[groupAnnotation]
		if !ok {
			continue
		}
		gid, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return nil, &pod.Failure{Reason: containermounts.Reason, Permanent: true, Message: fmt.Sprintf(
				"volume %q: PersistentVolume %s: annotation %s %q is no group's number: correct it, or leave it out", v.Name, pv.Name, groupAnnotation, text)}
		}
		groups = append(groups, int64(gid))
	}
	slices.Sort(groups)
	return slices.Compact(groups), nil
}

// hasFirst is another pod that has the PersistentVolume mounted, for a group other than gid or for none; nil if
// there is none such.
func (m *Manager) hasFirst(w *volumeset.Wanted, gid int) *v1.Pod {
	if w.Spec.Persistent == nil {
		return nil
	}
	for _, e := range m.all() {
		if e.Spec.Persistent == nil || e.Spec.Persistent.Name != w.Spec.Persistent.Name || e.Place.UID == w.Place.UID {
			continue
		}
		if has, ok := volume.FSGroup(e.Pod); !ok || has != gid {
			return e.Pod
		}
	}
	return nil
}
