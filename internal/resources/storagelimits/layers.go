package storagelimits

import (
	"context"
	"errors"
	"fmt"
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
	Meter Meter
}

// ContainerLayers measures the writable layers of containers. A runtime collects its statistics about them
// periodically, often once a minute. If a container's root file system is an overlay mounted on this host, as with
// containerd, its upper directory is measured directly instead. Its methods are safe for concurrent use.
type ContainerLayers struct {
	conf ContainerLayersConfig

	mu sync.Mutex
	// upper maps the IDs of containers that were searched for in the mount table to their upper directories, or "" if
	// there is none.
	upper map[string]string
}

// NewContainerLayers returns ContainerLayers without cached directories.
func NewContainerLayers(c ContainerLayersConfig) *ContainerLayers { return &ContainerLayers{conf: c} }

// WritableLayer returns the size of a pod's writable layers, by container. It omits ended containers: the CRI has
// statistics of running containers only.
func (l *ContainerLayers) WritableLayer(ctx context.Context, uid types.UID) (map[string]usage.Usage, error) {
	o := l.conf.Observed.Get(uid)
	if o == nil {
		return nil, nil
	}
	written := map[string]usage.Usage{}
	var errs []error
	for i := range o.Containers {
		c := &o.Containers[i]
		if c.State != pod.ContainerRunning {
			continue
		}
		u, err := l.written(ctx, c.ID)
		if err != nil {
			err = fmt.Errorf("measure the writable layer of container %s: %w", c.Name, err)
		}
		written[c.Name], errs = u, append(errs, err)
	}
	return written, errors.Join(errs...)
}

func (l *ContainerLayers) written(ctx context.Context, id string) (usage.Usage, error) {
	dir, err := l.upperOf(id)
	if err != nil {
		return usage.Usage{}, err
	}
	if dir != "" {
		return l.conf.Meter.Measure(ctx, dir)
	}
	stats, err := l.conf.Runtime.ContainerStats(ctx, id)
	if err != nil {
		return usage.Usage{}, err
	}
	layer := stats.GetWritableLayer()
	return usage.Usage{Bytes: int64(layer.GetUsedBytes().GetValue()), Inodes: int64(layer.GetInodesUsed().GetValue())},
		nil
}

// upperOf returns the upper directory of a running container, or "" if there is none on this host. The directory
// doesn't change during the container's life.
func (l *ContainerLayers) upperOf(id string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if dir, ok := l.upper[id]; ok {
		return dir, nil
	}
	overlays, err := mounts.Overlays()
	if err != nil {
		return "", err
	}
	l.upper = make(map[string]string, len(overlays))
	for point, dir := range overlays {
		// containerd's path: DIRECTORY/CONTAINER/rootfs
		if container, rootfs := filepath.Split(point); rootfs == "rootfs" {
			l.upper[filepath.Base(container)] = dir
		}
	}
	if info, err := os.Lstat(l.upper[id]); err != nil || !info.IsDir() {
		l.upper[id] = ""
	}
	return l.upper[id], nil
}
