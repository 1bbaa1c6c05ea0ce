package stats

import (
	"cmp"
	"context"
	"slices"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// Tasks are the node's processes, where each thread counts as one.
type Tasks struct {
	capacity.Tasks
	// Most are the pods with the most processes, in descending order.
	Most []PodTasks
}

// PodTasks are the processes of a pod, where each thread counts as one.
type PodTasks struct {
	// Name is the pod's namespace and name, Group its control group.
	Name, Group string
	counters.PIDs
}

// mostTasks is the number of pods that Sampler.Tasks returns.
const mostTasks = 3

// Tasks counts the node's processes. Counts that can't be read are omitted.
func (s *Sampler) Tasks(ctx context.Context) Tasks {
	out := Tasks{}
	out.Tasks, _ = capacity.ReadTasks("/") // on error it is zero
	r, err := s.Groups.Reader(ctx)
	if err != nil {
		return out
	}
	for _, o := range s.Observed.All() {
		group, err := s.Groups.PodGroup(ctx, o.UID)
		if err != nil {
			continue
		}
		if pids, err := r.PIDs(group); err == nil {
			out.Most = append(out.Most, PodTasks{Name: o.Namespace + "/" + o.Name, Group: group, PIDs: pids})
		}
	}
	slices.SortStableFunc(out.Most, func(a, b PodTasks) int { return cmp.Compare(b.Current, a.Current) })
	out.Most = out.Most[:min(len(out.Most), mostTasks)]
	return out
}
