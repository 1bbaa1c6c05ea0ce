package pull

import (
	"context"
	"slices"
	"sync"
)

// slots limits concurrent pulls, first come, first served. The limit can be changed at any time.
type slots struct {
	mu sync.Mutex
	// limit is the maximum number of slots in use, 0 for no limit. held is the number of slots in use; it may exceed
	// a limit that was lowered.
	limit, held int
	// waiting is the queue: each waiting caller has a channel, which is closed when the caller gets a slot.
	waiting []chan struct{}
}

// acquire waits for a slot, which has to be released. It fails, without a slot, only if ctx ends.
func (s *slots) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	turn := make(chan struct{})
	s.waiting = append(s.waiting, turn)
	s.admit()
	s.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		s.giveUp(turn)
		return ctx.Err()
	}
}

// giveUp leaves the queue, or releases the slot if the turn has come in the meantime.
func (s *slots) giveUp(turn chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := slices.Index(s.waiting, turn); n >= 0 {
		s.waiting = slices.Delete(s.waiting, n, n+1)
		return
	}
	s.held--
	s.admit()
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
	s.admit()
}

// setLimit changes the limit. Waiting callers continue at once if slots are free; slots in use stay in use.
func (s *slots) setLimit(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = n
	s.admit()
}

// admit gives free slots to the first waiting callers. The caller holds the lock.
func (s *slots) admit() {
	for len(s.waiting) > 0 && (s.limit <= 0 || s.held < s.limit) {
		close(s.waiting[0])
		s.waiting = slices.Delete(s.waiting, 0, 1)
		s.held++
	}
}
