package eviction

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// Node finds the pods of this node and what they write: its methods are
// Config's Pods and Layers. Every field is needed.
type Node struct {
	Desired  *desired.Merger
	Observed interface {
		Get(types.UID) *pod.Observed
	}
	Volumes interface {
		// Instances lists the volumes that are mounted.
		Instances() []volume.Instance
	}
	Allocations interface {
		Get(types.UID) *pod.Allocation
	}
	Runtime interface {
		ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error)
	}
}

// Pods lists the pods that could write to the disk now.
func (n Node) Pods() []Pod {
	mounted := map[types.UID][]volume.Instance{}
	for _, v := range n.Volumes.Instances() {
		mounted[v.UID] = append(mounted[v.UID], v)
	}
	var list []Pod
	for _, d := range n.Desired.Current().Pods {
		if uid := d.Pod.UID; n.Observed.Get(uid).Live() {
			list = append(list, Pod{Pod: allocated.Apply(d.Pod, n.Allocations.Get(uid)), Volumes: mounted[uid]})
		}
	}
	return list
}

// WritableLayer asks the runtime what containers wrote to their root file systems. Ended ones are left out:
// the CRI has statistics of running containers only.
func (n Node) WritableLayer(ctx context.Context, uid types.UID) (map[string]usage.Usage, error) {
	o := n.Observed.Get(uid)
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
		stats, err := n.Runtime.ContainerStats(ctx, c.ID)
		if err != nil {
			errs = append(errs, fmt.Errorf("what container %s wrote to its root file system: %w", c.Name, err))
			continue
		}
		layer := stats.GetWritableLayer()
		written[c.Name] = usage.Usage{Bytes: int64(layer.GetUsedBytes().GetValue()), Inodes: int64(layer.GetInodesUsed().GetValue())}
	}
	return written, errors.Join(errs...)
}
