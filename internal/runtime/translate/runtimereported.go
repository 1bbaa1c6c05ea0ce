package translate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// runtimeReported converts the fields of a container's status that only the runtime can report; nil if it reports
// none. known is the previous result, or nil: it supplies fields that aren't reported now, and is returned itself
// if no field differs, so that the frequent repetitions in events use no memory.
func runtimeReported(st *runtimeapi.ContainerStatus, known *pod.RuntimeReported) *pod.RuntimeReported {
	user, signal, mounts := st.GetUser().GetLinux(), apiSignal(st.GetStopSignal()), st.GetMounts()
	if known == nil {
		if user == nil && signal == "" && len(mounts) == 0 {
			return nil
		}
		return &pod.RuntimeReported{User: containerUser(user), VolumeMounts: volumeMounts(mounts), StopSignal: signal}
	}
	newUser := user != nil && !sameUser(user, known.User)
	newSignal := signal != "" && signal != known.StopSignal
	newMounts := len(mounts) > 0 && !sameMounts(mounts, known.VolumeMounts)
	if !newUser && !newSignal && !newMounts {
		return known
	}
	next := *known
	if newUser {
		next.User = containerUser(user)
	}
	if newSignal {
		next.StopSignal = signal
	}
	if newMounts {
		next.VolumeMounts = volumeMounts(mounts)
	}
	return &next
}

func containerUser(u *runtimeapi.LinuxContainerUser) *v1.ContainerUser {
	if u == nil {
		return nil
	}
	return &v1.ContainerUser{
		Linux: &v1.LinuxContainerUser{UID: u.GetUid(), GID: u.GetGid(),
			SupplementalGroups: slices.Clone(u.GetSupplementalGroups())}}
}

func sameUser(u *runtimeapi.LinuxContainerUser, known *v1.ContainerUser) bool {
	return known != nil && known.Linux != nil && u.GetUid() == known.Linux.UID && u.GetGid() == known.Linux.GID &&
		slices.Equal(u.GetSupplementalGroups(), known.Linux.SupplementalGroups)
}

// volumeMounts returns mounts without names, because the runtime doesn't have them. They include mounts without a
// volume (the hosts file, ...).
func volumeMounts(mounts []*runtimeapi.Mount) []v1.VolumeMountStatus {
	if len(mounts) == 0 {
		return nil
	}
	out := make([]v1.VolumeMountStatus, len(mounts))
	for i, m := range mounts {
		out[i] = v1.VolumeMountStatus{MountPath: m.GetContainerPath(), ReadOnly: m.GetReadonly()}
		if m.GetReadonly() {
			mode := recursiveReadOnly(m)
			out[i].RecursiveReadOnly = &mode
		}
	}
	return out
}

func sameMounts(mounts []*runtimeapi.Mount, known []v1.VolumeMountStatus) bool {
	return slices.EqualFunc(mounts, known, func(m *runtimeapi.Mount, k v1.VolumeMountStatus) bool {
		if m.GetContainerPath() != k.MountPath || m.GetReadonly() != k.ReadOnly {
			return false
		}
		return !k.ReadOnly || k.RecursiveReadOnly != nil && *k.RecursiveReadOnly == recursiveReadOnly(m)
	})
}

// recursiveReadOnly is only set for read-only mounts (API comment of VolumeMountStatus).
func recursiveReadOnly(m *runtimeapi.Mount) v1.RecursiveReadOnlyMode {
	if m.GetRecursiveReadOnly() {
		return v1.RecursiveReadOnlyEnabled
	}
	return v1.RecursiveReadOnlyDisabled
}
