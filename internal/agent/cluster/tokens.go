package cluster

import (
	"io"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// storedTokens reads service account tokens in the projected volumes of pods. Its value is the parent of the pods'
// directories.
type storedTokens string

// maxToken limits the size of a token's file, in bytes.
const maxToken = 1 << 20

func (dir storedTokens) read(uid types.UID, volume, path string) (string, error) {
	for what, name := range map[string]string{"pod UID": string(uid), "volume name": volume} {
		if err := safeopen.Check(what, name); err != nil {
			return "", err
		}
	}
	pods, err := safeopen.Top(string(dir))
	if err != nil {
		return "", err
	}
	defer pods.Close()
	root, err := safeopen.OpenNoLinks(pods, filepath.Join(string(uid), "volumes", "kubernetes.io~projected", volume),
		unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	defer root.Close()
	file, err := safeopen.Open(root, path, unix.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxToken))
	return string(text), err
}
