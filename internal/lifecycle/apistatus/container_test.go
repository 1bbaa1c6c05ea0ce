package apistatus

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// What is mounted is told as the spec has it; how deep it is read-only, as the runtime says.
func TestVolumeMounts(t *testing.T) {
	off, on := ptr.To(v1.RecursiveReadOnlyDisabled), ptr.To(v1.RecursiveReadOnlyEnabled)
	c := &v1.Container{VolumeMounts: []v1.VolumeMount{
		{Name: "a", MountPath: "/a/", ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyIfPossible)}, {Name: "b", MountPath: "b", ReadOnly: true},
		{Name: "conf", MountPath: "/conf"}, {Name: "none", MountPath: "/none"}, {Name: "a", MountPath: "/again"},
	}}
	told := []v1.VolumeMountStatus{
		{MountPath: "/etc/hosts"}, {MountPath: "/b", ReadOnly: true, RecursiveReadOnly: off}, {MountPath: "/a", ReadOnly: true, RecursiveReadOnly: on},
		{MountPath: "/again"}, {MountPath: "/conf", ReadOnly: true, RecursiveReadOnly: off},
	}
	var s v1.ContainerStatus
	setReported(c, &pod.Container{RuntimeReported: &pod.RuntimeReported{VolumeMounts: told}}, &s)
	if diff := cmp.Diff([]v1.VolumeMountStatus{
		{Name: "a", MountPath: "/a/", ReadOnly: true, RecursiveReadOnly: on}, {Name: "b", MountPath: "b", ReadOnly: true, RecursiveReadOnly: off},
		{Name: "conf", MountPath: "/conf"}, {Name: "a", MountPath: "/again"},
	}, s.VolumeMounts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
