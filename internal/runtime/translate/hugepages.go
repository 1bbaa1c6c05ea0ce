package translate

import (
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hugePageLimits returns a limit for every size of huge pages that the node can limit; 0 if the container doesn't
// request that size.
func hugePageLimits(s *Settings, p *v1.Pod, c *v1.Container) []*runtimeapi.HugepageLimit {
	if len(s.HugePageSizes) == 0 {
		return nil
	}
	asked := map[string]int64{}
	for name, q := range allocated.ContainerLimits(p, c.Resources.Limits) {
		if size, ok := allocated.HugePageSize(name); ok {
			asked[size] = q.Value()
		}
	}
	limits := make([]*runtimeapi.HugepageLimit, len(s.HugePageSizes))
	for i, size := range s.HugePageSizes {
		limits[i] = &runtimeapi.HugepageLimit{PageSize: size, Limit: uint64(max(asked[size], 0))}
	}
	return limits
}
