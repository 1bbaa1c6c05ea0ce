package objectfiles

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// mountPoints returns the paths in the volume at which containers of the pod mount other volumes, such as "cache" if
// a container mounts the volume at /etc/app and another volume at /etc/app/cache. The volume is read-only for
// containers, so the runtime can't create these directories, and container creation would fail
// (https://github.com/kubernetes/kubernetes/pull/60342).
func mountPoints(p *v1.Pod, volume string) []string {
	var paths []string
	for name := range pod.ContainerNames(p) {
		mounts := pod.ContainerNamed(p, name).VolumeMounts
		for i := range mounts {
			if in, rest := around(mounts, mounts[i].MountPath); in != nil && in.Name == volume && in.SubPath == "" &&
				in.SubPathExpr == "" {
				paths = append(paths, rest)
			}
		}
	}
	return paths
}

// around returns the innermost mount that contains this path, and the path relative to the mount. It returns nil if
// no mount contains the path.
func around(mounts []v1.VolumeMount, at string) (in *v1.VolumeMount, rest string) {
	at = path.Join("/", at)
	for i := range mounts {
		above := strings.TrimSuffix(path.Join("/", mounts[i].MountPath), "/") + "/"
		if r, ok := strings.CutPrefix(at, above); ok && r != "" && (in == nil || len(r) < len(rest)) {
			in, rest = &mounts[i], r
		}
	}
	return in, rest
}
