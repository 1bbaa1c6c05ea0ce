package observed

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// refreshConcurrency bounds how many pods are listed at a time.
const refreshConcurrency = 4

// refresher lists single pods. A pod that is queued several times is listed once, unless its listing has already
// started.
type refresher struct {
	// signal wakes run: the queue isn't empty, or a pod is done.
	signal wake.Slot

	mu      sync.Mutex
	queue   []types.UID
	running map[types.UID]struct{}
}

func newRefresher() *refresher {
	return &refresher{signal: wake.NewSlot(), running: map[types.UID]struct{}{}}
}

// want queues a pod. It never blocks.
func (r *refresher) want(uid types.UID) {
	r.mu.Lock()
	if !slices.Contains(r.queue, uid) {
		r.queue = append(r.queue, uid)
	}
	r.mu.Unlock()
	r.signal.Wake()
}

// run calls the function look for queued pods until ctx ends.
func (r *refresher) run(ctx context.Context, look func(context.Context, types.UID)) {
	var g errgroup.Group
	g.SetLimit(refreshConcurrency)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-r.signal:
		}
		for uid, ok := r.next(); ok && ctx.Err() == nil; uid, ok = r.next() {
			g.Go(func() error {
				look(ctx, uid)
				r.done(uid)
				return nil
			})
		}
	}
	_ = g.Wait() // the functions never return errors
}

// next removes from the queue the first pod that isn't being listed.
func (r *refresher) next() (types.UID, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, uid := range r.queue {
		if _, busy := r.running[uid]; !busy {
			r.queue = slices.Delete(r.queue, i, i+1)
			r.running[uid] = struct{}{}
			return uid, true
		}
	}
	return "", false
}

func (r *refresher) done(uid types.UID) {
	r.mu.Lock()
	delete(r.running, uid)
	r.mu.Unlock()
	r.signal.Wake()
}
