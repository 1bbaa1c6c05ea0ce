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

// Files makes files in the pods' directories, at the kubelet's paths: pods/UID/etc-hosts and
// pods/UID/containers/NAME/INSTANCE. It is safe for concurrent use, by one caller at a time for each container.
type Files struct {
	podsDir, clusterDomain, nodeHosts string
}

// New returns Files below podsDir. clusterDomain is the suffix of FQDNs in hosts files, and may be empty. nodeHosts
// is the path of the node's hosts file.
func New(podsDir, clusterDomain, nodeHosts string) *Files {
	return &Files{podsDir: podsDir, clusterDomain: clusterDomain, nodeHosts: nodeHosts}
}

func (f *Files) podDir(uid types.UID) string { return filepath.Join(f.podsDir, string(uid)) }

// Message makes the empty termination message file of a container's instance, and returns its path. The file's name
// is the instance's number (attempt), so that a repeated creation of the instance uses the same file. Only the files
// of this instance and of the previous one are kept. The pod's directory has to exist.
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
		_ = os.Remove(instance(attempt - 2)) // at the latest it is removed with the pod
	}
	file, err := os.OpenFile(instance(attempt), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_NOFOLLOW, 0o666)
	if err != nil {
		return "", fmt.Errorf("make the file for the termination message: %w", err)
	}
	defer file.Close()
	// The container may run as any user.
	if err := file.Chmod(0o666); err != nil {
		return "", fmt.Errorf("make the file for the termination message: %w", err)
	}
	return file.Name(), nil
}
