package storagelimits

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// Node lists the pods of this node. Every field is required.
type Node struct {
	Desired  *desired.Merger
	Observed interface {
		Get(types.UID) *pod.Observed
	}
	Volumes interface {
		// Instances lists the mounted volumes.
		Instances() []volume.Instance
	}
	Allocations interface {
		Get(types.UID) *pod.Allocation
	}
	// Ended reports whether the pod has ended for good.
	Ended func(types.UID) bool
	// InCluster says that there is an API server. The kubelet then evicts neither static nor critical pods, whatever
	// their limits.
	InCluster bool
}

// Pods lists the pods that are writing to the disk, or may do so once a container is restarted. Pods that are never
// evicted are omitted.
func (n Node) Pods() []Pod {
	mounted := map[types.UID][]volume.Instance{}
	for _, v := range n.Volumes.Instances() {
		mounted[v.UID] = append(mounted[v.UID], v)
	}
	var list []Pod
	for _, d := range n.Desired.Current().Pods {
		uid := d.Pod.UID
		o := n.Observed.Get(uid)
		if o.Active() && !n.Ended(uid) && !allocated.ExemptFromPressure(d.Pod, n.InCluster) {
			list = append(list, Pod{Pod: allocated.Apply(d.Pod, n.Allocations.Get(uid)), Volumes: mounted[uid],
				Observed: o})
		}
	}
	return list
}
