package layout

import (
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// Pod is whose logs they are. A pod of which only logs are left is known by this much.
type Pod struct {
	Namespace, Name string
	UID             types.UID
}

// Instance is whose log it is.
type Instance struct {
	// Container is the container's name.
	Container string
	// Attempt is the instance's number, from 0.
	Attempt int
	// ID is the runtime's.
	ID string
}

// PodDir is the directory of a pod's logs.
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

// parsePod reads a directory's name.
func parsePod(directory string) (p Pod, ok bool) {
	p.Namespace, p.Name, p.UID, ok = ParseDir(directory)
	return p, ok && p.check() == nil
}

// maxName is how long a file's name can be.
const maxName = 255

// linkName is what log shippers take namespace, pod and container from. As with
// the kubelet, one that is too long loses its end.
func linkName(p Pod, i Instance) string {
	name := p.Name + "_" + p.Namespace + "_" + i.Container + "-" + i.ID
	return name[:min(len(name), maxName-len(Suffix))] + Suffix
}
