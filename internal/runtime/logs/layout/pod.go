package layout

import (
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// Pod identifies a pod. The name of its log directory has all of these fields, so they are available for deleted
// pods.
type Pod struct {
	Namespace, Name string
	UID             types.UID
}

// Instance identifies an instance of a container.
type Instance struct {
	// Container is the container's name.
	Container string
	// Attempt is the number of the instance among the container's instances, counted from 0.
	Attempt int
	// ID is the container ID that the runtime gave the instance.
	ID string
}

// PodDir returns the directory of a pod's logs.
func PodDir(podLogsDir string, p Pod) string {
	return filepath.Join(podLogsDir, p.directory())
}

func (p Pod) directory() string { return PodDirectory(p.Namespace, p.Name, p.UID) }

func (p Pod) check() error {
	for what, name := range map[string]string{"namespace": p.Namespace, "pod name": p.Name, "pod UID": string(p.UID)} {
		if err := safeopen.Check(what, name); err != nil {
			return err
		}
	}
	return nil
}

// parsePod parses the name of a pod's log directory.
func parsePod(directory string) (p Pod, ok bool) {
	p.Namespace, p.Name, p.UID, ok = ParseDir(directory)
	return p, ok && p.check() == nil
}

// maxName is the maximum length of a file name.
const maxName = 255

// linkName returns the name of a link, from which log shippers take namespace, pod and container. As with the
// kubelet, a name that is too long is truncated.
func linkName(p Pod, i Instance) string {
	name := p.Name + "_" + p.Namespace + "_" + i.Container + "-" + i.ID
	return name[:min(len(name), maxName-len(Suffix))] + Suffix
}
