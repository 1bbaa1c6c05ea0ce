package worker

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// Resumer restarts pods that the node has evicted under pressure once that has ended. It is for machines without a
// cluster, where no controller creates another pod.
type Resumer struct {
	statuses Entries
	stopper  Restarter
	log      logr.Logger
	calm     wake.Slot
}

// Entries lists the pods with their statuses.
type Entries interface{ List() []*podstatus.Entry }

// Restarter restarts pods.
type Restarter interface {
	Stop(ctx context.Context, restart bool, names ...types.NamespacedName) error
}

// NewResumer returns a Resumer of these pods. calm is signaled whenever the node was found not to be under pressure.
func NewResumer(statuses Entries, stopper Restarter, calm wake.Slot, log logr.Logger) *Resumer {
	return &Resumer{statuses: statuses, stopper: stopper, log: log, calm: calm}
}

// Run restarts pods until ctx ends. The error is nil.
func (r *Resumer) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.calm:
		}
		names := r.evicted()
		if len(names) == 0 {
			continue
		}
		r.log.Info("The node has enough of everything again: the pods that it has evicted are restarted", "pods", names)
		if err := r.stopper.Stop(ctx, true, names...); err != nil && ctx.Err() == nil {
			r.log.Error(err, "Evicted pods can't be restarted now; this is tried again", "pods", names)
		}
	}
}

// evicted returns the names of the pods to restart.
func (r *Resumer) evicted() (names []types.NamespacedName) {
	for _, e := range r.statuses.List() {
		if podstatus.Resumes(e.Pod, e.Report.Desired.Source) {
			names = append(names, types.NamespacedName{Namespace: e.Pod.Namespace, Name: e.Pod.Name})
		}
	}
	return names
}
