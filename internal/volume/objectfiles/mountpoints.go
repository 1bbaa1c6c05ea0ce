package objectfiles

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// mountPoints are the paths in the volume where containers of the pod mount something else: a volume at
// /etc/app, another one at /etc/app/cache. Containers get the volume read-only, so the runtime can't
// make them, and no container could be made
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

// around is the mount in which something at a path is mounted, and the path in there; nil if that is none.
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
