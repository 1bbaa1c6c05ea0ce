package atomicwriter

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// Files makes the files of pods below their directories, where the kubelet has them:
// pods/UID/etc-hosts and pods/UID/containers/NAME/INSTANCE. It is safe for concurrent use, for one
// container by one caller at a time.
type Files struct {
	podsDir, clusterDomain, nodeHosts string
}

// New makes them below podsDir. clusterDomain ends the full names in hosts files, and may be empty.
// nodeHosts is the node's own hosts file.
func New(podsDir, clusterDomain, nodeHosts string) *Files {
	return &Files{podsDir: podsDir, clusterDomain: clusterDomain, nodeHosts: nodeHosts}
}

func (f *Files) podDir(uid types.UID) string { return filepath.Join(f.podsDir, string(uid)) }

// Message makes the empty file that an instance may leave its termination message in, and returns its
// path. Its name is the instance's number, so that creating an instance again finds the
// same file. Only the files of this instance and the one before it are kept. The pod's directory has
// to be there.
func (f *Files) Message(p *v1.Pod, container string, attempt int) (string, error) {
	if err := safeopen.Check("container name", container); err != nil {
		return "", err
	}
	dir := filepath.Join(f.podDir(p.UID), "containers", container)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("make the directory for termination messages: %w", err)
	}
	instance := func(n int) string { return filepath.Join(dir, fmt.Sprintf("%08x", n)) }
	if attempt >= 2 {
		_ = os.Remove(instance(attempt - 2)) // goes with the pod at the latest
	}
	file, err := os.OpenFile(instance(attempt), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_NOFOLLOW, 0o666)
	if err != nil {
		return "", fmt.Errorf("make the file for the termination message: %w", err)
	}
	defer file.Close()
	// Whatever user the container runs as may write to it.
	if err := file.Chmod(0o666); err != nil {
		return "", fmt.Errorf("make the file for the termination message: %w", err)
	}
	return file.Name(), nil
}
