package executor

import (
	"context"
	"sync"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/gate"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// mostRemovals is the maximum number of dead containers and leftover sandboxes that are removed at once.
const mostRemovals = 10

// slowRemoval is the time that a removal may take without counting as slow. A runtime without load takes no longer.
const slowRemoval = 50 * time.Millisecond

// Priorities of removals: containers of pods that are gone are removed first.
const (
	priorityDeadInstance = iota
	priorityGonePod
)

// removals limits how many dead containers are removed at once. For each removal, as for each start, a runtime writes
// to its database. More parallel removals wouldn't end sooner, but would delay starts. So the limit is halved when a
// removal takes more than 1.5 times as long as the fastest ones, and grows by one with each faster removal.
type removals struct {
	gate *gate.Gate

	mu    sync.Mutex
	limit int
	// fastest is the time of the fastest removals; it grows slowly, to follow a runtime that has become slower.
	fastest time.Duration
}

func newRemovals() *removals { return &removals{gate: gate.New(mostRemovals), limit: mostRemovals} }

// do calls remove as soon as the limit allows it.
func (r *removals) do(ctx context.Context, priority int, remove func() error) error {
	release, err := r.gate.Acquire(ctx, priority)
	if err != nil {
		return err
	}
	defer release()
	begun := time.Now()
	if err := remove(); err != nil {
		return err // the duration of a failed removal says nothing about the runtime's load
	}
	r.took(time.Since(begun))
	return nil
}

// took adapts the limit to the time that a removal took.
func (r *removals) took(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fastest == 0 || d < r.fastest {
		r.fastest = d
	} else {
		r.fastest += r.fastest / 256
	}
	if d > slowRemoval && d > r.fastest*3/2 {
		r.limit = max(r.limit/2, 1)
	} else {
		r.limit = min(r.limit+1, mostRemovals)
	}
	r.gate.Resize(r.limit)
}

// dead reports whether the removal of an instance can wait: it has ended, and no next instance waits for the removal.
func dead(c *pod.Container, a pod.Action) bool {
	return c != nil && c.Ended() && !c.StartAborted && !a.KeepLog
}
