package agent

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// Memory is released 10 s after the last change, not earlier than 10 min after the previous time, and not while nothing
// changes.
func TestMemoryIsReleasedAtRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var changes wake.Group
		var released []time.Duration
		begun := time.Now()
		run := releaseAtRest(changes.Subscribe, func() { released = append(released, time.Since(begun)) })
		ended := make(chan error, 1)
		go func() { ended <- run(ctx) }()
		for _, at := range []time.Duration{6 * time.Second, 12 * time.Second, time.Minute, time.Hour,
			time.Hour + time.Second} {
			time.Sleep(at - time.Since(begun))
			changes.Wake()
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want := []time.Duration{22 * time.Second, 10*time.Minute + 22*time.Second, time.Hour + 11*time.Second}
		if !slices.Equal(released, want) {
			t.Errorf("released at %v, want %v", released, want)
		}
		if n := changes.Count(); n != 0 {
			t.Errorf("%d subscriptions are left", n)
		}
	})
}
