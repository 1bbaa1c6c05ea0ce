package storagelimits

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// ContainerLayersConfig configures ContainerLayers. Every field is required.
type ContainerLayersConfig struct {
	Observed interface {
		Get(types.UID) *pod.Observed
	}
	Runtime interface {
		ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error)
	}
	// LayerDir returns the upper directory of a container that has ended; empty if there is none. The error may be
	// errors.ErrUnsupported.
	LayerDir func(ctx context.Context, id string) (string, error)
	Meter    Meter
}

// ContainerLayers measures the writable layers of containers. A runtime collects its own statistics about layers only
// periodically, often once a minute. So if a container's root file system is an overlay that is mounted on this host,
// as with containerd, its upper directory is measured directly instead. Its methods are safe for concurrent use.
type ContainerLayers struct {
	conf ContainerLayersConfig

	mu sync.Mutex
	// upper maps the IDs of containers to their upper directories, or to "" if there is none. It contains the
	// containers in the last mount table that was read, and ended containers.
	upper map[string]string
}

// NewContainerLayers returns ContainerLayers without cached directories.
func NewContainerLayers(c ContainerLayersConfig) *ContainerLayers {
	return &ContainerLayers{conf: c, upper: map[string]string{}}
}

// WritableLayer returns the sizes of a pod's writable layers by container, each for the newest instance that was
// started. If that instance has ended and has no upper directory, the container is omitted: the CRI has statistics of
// running containers only.
func (l *ContainerLayers) WritableLayer(ctx context.Context, uid types.UID) (map[string]usage.Usage, error) {
	o := l.conf.Observed.Get(uid)
	if o == nil {
		return nil, nil
	}
	written, seen := map[string]usage.Usage{}, map[string]bool{}
	var errs []error
	for i := range o.Containers {
		c := &o.Containers[i]
		if seen[c.Name] || c.State == pod.ContainerCreated {
			continue
		}
		seen[c.Name] = true
		u, measured, err := l.written(ctx, c)
		if err != nil {
			err = fmt.Errorf("measure the writable layer of container %s: %w", c.Name, err)
		}
		if measured || err != nil {
			written[c.Name], errs = u, append(errs, err)
		}
	}
	return written, errors.Join(errs...)
}

// written measures the writable layer of a container that was started. measured is false if the container has ended and
// has no upper directory.
func (l *ContainerLayers) written(ctx context.Context, c *pod.Container) (u usage.Usage, measured bool, err error) {
	dir, err := l.upperOf(ctx, c)
	if err != nil {
		return u, false, err
	}
	if dir != "" {
		u, err = l.conf.Meter.Measure(ctx, dir)
		return u, true, err
	}
	if c.Ended() {
		return u, false, nil
	}
	stats, err := l.conf.Runtime.ContainerStats(ctx, c.ID)
	if err != nil {
		return u, false, err
	}
	layer := stats.GetWritableLayer()
	return usage.Usage{Bytes: int64(layer.GetUsedBytes().GetValue()), Inodes: int64(layer.GetInodesUsed().GetValue())},
		true, nil
}

// upperOf returns the upper directory of a container, or "" if there is none on this host. The directory doesn't change
// until the container is removed.
func (l *ContainerLayers) upperOf(ctx context.Context, c *pod.Container) (string, error) {
	l.mu.Lock()
	dir, known := l.upper[c.ID]
	l.mu.Unlock()
	switch {
	case known && (dir != "" || !c.Ended()): // the mount vanishes before a snapshot reports the container's end
		return dir, nil
	case !c.Ended():
		return l.mounted(c.ID)
	}
	dir, err := l.conf.LayerDir(ctx, c.ID)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.upper[c.ID] = dir
	return dir, nil
}

// mounted returns the upper directory of a running container, from the mount table.
func (l *ContainerLayers) mounted(id string) (string, error) {
	overlays, err := mounts.Overlays()
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.upper, func(_, dir string) bool { return !isDir(dir) }) // of containers that were removed
	for point, dir := range overlays {
		// containerd's path: DIRECTORY/CONTAINER/rootfs
		if container, rootfs := filepath.Split(point); rootfs == "rootfs" {
			l.upper[filepath.Base(container)] = dir
		}
	}
	if !isDir(l.upper[id]) {
		l.upper[id] = ""
	}
	return l.upper[id], nil
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}
