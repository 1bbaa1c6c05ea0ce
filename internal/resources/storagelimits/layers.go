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

// ContainerLayersConfig is what Layers are built from. Every field is needed.
type ContainerLayersConfig struct {
	Observed interface {
		Get(types.UID) *pod.Observed
	}
	Runtime interface {
		ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error)
	}
	Meter Meter
}

// ContainerLayers knows what containers wrote to their root file systems. A runtime's statistics of that are as old as
// its own period of collecting them, often a minute. Where a container's root file system is an overlay that this host
// has mounted, as containerd's are, its upper directory is measured instead, now. Its methods may be called
// concurrently.
type ContainerLayers struct {
	conf ContainerLayersConfig

	mu sync.Mutex
	// upper holds the upper directory of each container whose place in the mount table is known, by the container's ID;
	// empty for one that has none.
	upper map[string]string
}

// NewContainerLayers returns layers that nothing is known of yet.
func NewContainerLayers(c ContainerLayersConfig) *ContainerLayers { return &ContainerLayers{conf: c} }

// WritableLayer returns what a pod's containers wrote, by container. Ended ones are left out:
// the CRI has statistics of running containers only.
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
			err = fmt.Errorf("what container %s wrote to its root file system: %w", c.Name, err)
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

// upperOf is the upper directory of a running container; empty if it has none that can be seen. It doesn't change while
// the container is there.
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
		// containerd's place: DIRECTORY/CONTAINER/rootfs
		if container, rootfs := filepath.Split(point); rootfs == "rootfs" {
			l.upper[filepath.Base(container)] = dir
		}
	}
	if info, err := os.Lstat(l.upper[id]); err != nil || !info.IsDir() {
		l.upper[id] = ""
	}
	return l.upper[id], nil
}
