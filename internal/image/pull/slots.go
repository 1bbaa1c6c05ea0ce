package pull

import (
	"context"
	"slices"
	"sync"
)

// slots limits how many pulls are under way, in the order in which they come. The limit can
// be changed at any time.
type slots struct {
	mu sync.Mutex
	// limit is 0 for any number. held may be more after it was lowered.
	limit, held int
	// waiting are closed when their turn has come; the first is next.
	waiting []chan struct{}
}

// acquire waits for a slot, which has to be released. An error is the context's; then there is none.
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

// giveUp leaves the queue, or the slot if the turn has come in the meantime.
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

// setLimit changes the limit: those who wait go on at once if slots are free, and those
// who hold a slot keep it.
func (s *slots) setLimit(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = n
	s.admit()
}

// admit lets in as many as there are free slots; the caller holds the lock.
func (s *slots) admit() {
	for len(s.waiting) > 0 && (s.limit <= 0 || s.held < s.limit) {
		close(s.waiting[0])
		s.waiting = slices.Delete(s.waiting, 0, 1)
		s.held++
	}
}
