package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

// Names and limits of the record files. The directories are the kubelet's, relative to the root directory.
const (
	directory = "image_manager"
	pulling   = "pulling"
	pulled    = "pulled"

	// keyFile and imported are deckhand's own. imported contains records like those in pulled.
	keyFile  = "deckhand.key"
	imported = "imported"

	prefix = "sha256-"
	// largest is how many bytes of a record file are read. It exceeds the size of any record with maxEntries entries
	// of each kind.
	largest = 1 << 20

	// shortestKey is the minimum length of a usable key in keyFile, in bytes: the length of rand.Text.
	shortestKey = 26

	kindIntent = "ImagePullIntent"
	kindRecord = "ImagePulledRecord"
)

// versions are the supported versions of the kubelet's format. All have the same fields.
var versions = []string{"v1alpha1", v1beta1.SchemeGroupVersion.Version}

// fileName returns the name of a record's file. The argument is an image name for an intent, and the runtime's image
// reference for a record of a pulled image.
func fileName(of string) string {
	sum := sha256.Sum256([]byte(of))
	return prefix + hex.EncodeToString(sum[:])
}

// files reads and writes the record files of one directory.
type files struct{ dir string }

func (f files) make() error { return os.MkdirAll(f.dir, 0o700) }

// loadKey reads the key of the credential hashes, or creates one. After a new key was created, no recorded hash
// matches any more: credentials are then recognized only by their origin.
func loadKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if err == nil && len(key) >= shortestKey {
		return key, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	key = []byte(rand.Text())
	return key, atomicfile.Write(path, key, 0o600)
}

// names lists the record files in the directory. It removes temporary files of interrupted writes.
func (f files) names() ([]string, error) {
	entries, err := os.ReadDir(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), prefix) && e.Type().IsRegular():
			names = append(names, e.Name())
		case strings.HasPrefix(e.Name(), "."+prefix):
			_ = os.Remove(filepath.Join(f.dir, e.Name())) // best effort: a leftover is harmless
		}
	}
	return names, nil
}

// read decodes a file into v. The file's kind has to be kind.
func (f files) read(name, kind string, v any) error {
	file, err := os.Open(filepath.Join(f.dir, name))
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, largest))
	if err != nil {
		return err
	}
	var t metav1.TypeMeta
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	group, version, _ := strings.Cut(t.APIVersion, "/")
	switch {
	case group != v1beta1.GroupName || t.Kind != kind:
		return fmt.Errorf("it is a %s of %s instead of a %s of %s", t.Kind, t.APIVersion, kind, v1beta1.GroupName)
	case !slices.Contains(versions, version):
		return fmt.Errorf("%w, or by a newer kubelet: its format is %s", checkpoint.ErrNewer, t.APIVersion)
	}
	return json.Unmarshal(text, v)
}

// write writes v to the named file as JSON, durably.
func (f files) write(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(f.dir, name), text, 0o600)
}

// remove removes a file; it is no error if there is none.
func (f files) remove(name string) error {
	if err := os.Remove(filepath.Join(f.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: kind}
}
