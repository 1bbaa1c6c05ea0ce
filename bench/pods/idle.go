package pods

import (
	"context"

	"github.com/deckhand-node/deckhand/bench/report"
	"github.com/deckhand-node/deckhand/bench/rig"
)

// rest is what the agent costs with n pods while nothing happens.
type rest struct {
	n int
	report.Rest
}

func (s *session) idle(ctx context.Context) ([]rest, error) {
	var all []rest
	for _, n := range s.IdleCounts {
		err := s.withAgent(ctx, func(a *rig.Agent) error {
			if _, err := s.dropPods(a, n); err != nil {
				return err
			}
			if _, err := s.awaitReady(ctx, a, n); err != nil {
				return err
			}
			r, err := report.MeasureRest(ctx, a.PID, s.Idle)
			if err == nil {
				all = append(all, rest{n, r})
				s.say("%3d pods  idle: %s, %s", n, report.Millicores(r.CPU, r.While), report.MiB(r.Memory.RSS))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
