package embedded

import (
	"context"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/child"
)

// The delays before containerd is restarted double each time, and start over once it has been healthy for a while.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
	healthyAfter = time.Minute
)

// pauses computes the delay before each restart.
type pauses struct{ next time.Duration }

// advance returns the delay before the restart of a containerd that was ready for the duration healthy.
func (p *pauses) advance(healthy time.Duration) time.Duration {
	if p.next == 0 || healthy >= healthyAfter {
		p.next = firstPause
	}
	pause := p.next
	p.next = min(2*p.next, longestPause)
	return pause
}

// supervise restarts containerd whenever it ends, until ctx ends.
func (r *Runtime) supervise(ctx context.Context) error {
	var back pauses
	for {
		r.mu.Lock()
		p, ready := r.process, r.ready
		r.mu.Unlock()
		var healthy time.Duration
		if p != nil {
			limits := whileRunning
			if ready.IsZero() {
				limits = whileStarting
			}
			if err := r.attend(ctx, p, limits); err != nil {
				return ignoreEnd(ctx, err)
			}
			if !ready.IsZero() {
				healthy = time.Since(ready)
			}
			how := p.Reap()
			r.mu.Lock()
			r.process = nil
			r.mu.Unlock()
			r.log.Error(nil, "Containerd ended; pods go on running", "pid", p.PID(), "status", how,
				"lastLogLine", child.LastLine(r.layout.Log()))
		}
		if !wake.Sleep(ctx, back.advance(healthy)) {
			return nil
		}
		if err := r.launch(ctx); err != nil && ctx.Err() == nil {
			r.log.Error(err, "Containerd can't be restarted yet")
		}
	}
}

// ignoreEnd drops an error that is due to the end of ctx.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
