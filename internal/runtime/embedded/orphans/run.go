package orphans

import (
	"context"
	"time"
)

// pauses are the delays between calls of Sweep after containerd was started or adopted. The first call is
// immediate, the second comes after the agent has removed the incomplete sandboxes of an earlier agent, and two
// more are for slow cases. Later calls aren't needed: a shim is orphaned when an agent dies, and the next agent
// calls Sweep.
var pauses = [...]time.Duration{0, 20 * time.Second, 40 * time.Second, 9 * time.Minute}

// Run calls Sweep a few times whenever started signals that containerd answers, until ctx ends; then it returns nil.
func (s *Sweeper) Run(ctx context.Context, started <-chan struct{}) error {
	run(ctx, started, func(ctx context.Context) bool {
		again, err := s.Sweep(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			s.log.V(2).Info("Can't look for lost shims now", "err", err.Error())
		}
		return again
	})
	return nil
}

// run calls the function look after each of pauses. If look returns true, the next call comes after Patience.
func run(ctx context.Context, started <-chan struct{}, look func(context.Context) (again bool)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	timer.Stop()
	var left []time.Duration
	next := func() {
		if len(left) > 0 {
			timer.Reset(left[0])
			left = left[1:]
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-started:
			left = pauses[:]
			next()
		case <-timer.C:
			if look(ctx) {
				timer.Reset(Patience)
			} else {
				next()
			}
		}
	}
}
