package userns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

const (
	recordName = "userns"
	// maxRecord is far more than the size of a record.
	maxRecord = 64 << 10
)

// record is the content of a pod's record, in the kubelet's format.
type record struct {
	UIDMappings []mapping `json:"uidMappings"`
	GIDMappings []mapping `json:"gidMappings"`
}

type mapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

func (m *Manager) path(uid types.UID) (string, error) {
	if err := safeopen.Check("pod UID", string(uid)); err != nil {
		return "", err
	}
	return filepath.Join(m.conf.PodsDir, string(uid), recordName), nil
}

// read reads a pod's record; the error wraps fs.ErrNotExist if it has none.
func read(path string) (r Range, written time.Time, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return Range{}, time.Time{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Range{}, time.Time{}, err
	}
	if !info.Mode().IsRegular() {
		return Range{}, info.ModTime(), fmt.Errorf("%s is not a regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err == nil {
		r, err = parse(text)
	}
	return r, info.ModTime(), err
}

func parse(text []byte) (Range, error) {
	var c record
	if err := json.Unmarshal(text, &c); err != nil {
		return Range{}, err
	}
	if len(c.UIDMappings) != 1 || len(c.GIDMappings) != 1 || c.UIDMappings[0] != c.GIDMappings[0] ||
		c.UIDMappings[0].ContainerID != 0 {
		return Range{}, errors.New("it doesn't hold one mapping from ID 0 on, alike for users and groups")
	}
	r := Range{HostID: c.UIDMappings[0].HostID, Length: c.UIDMappings[0].Length}
	return r, r.check()
}

// write writes a pod's record, and creates its directory if necessary. Once it has returned nil, the record
// survives a power failure.
func (m *Manager) write(path string, r Range) error {
	one := []mapping{{HostID: r.HostID, Length: r.Length}}
	text, err := json.Marshal(record{UIDMappings: one, GIDMappings: one})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	checkpoint.Sweep(path)
	if err := atomicfile.Write(path, text, 0o600); err != nil {
		return err
	}
	return atomicfile.SyncDir(m.conf.PodsDir) // the pod's directory may be new
}

// remove removes a pod's record durably: a record that reappeared after a power failure would claim IDs that
// another pod may have by then.
func remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(path))
}
