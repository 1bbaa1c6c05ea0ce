package pods

import (
	"context"
	"fmt"
	"time"

	"github.com/deckhand-node/deckhand/bench/report"
	"github.com/deckhand-node/deckhand/bench/rig"
)

// group is what starting and removing n pods came to.
type group struct {
	n           int
	concurrency floorResult[int] // the floor's best
	floor       []floorResult[time.Duration]
	deckhand    []agentResult
}

// floorResult is something about the floor's start and removal of pods.
type floorResult[T any] struct{ start, remove T }

// agentResult is one turn of deckhand: from the manifests' arrival until every
// container was started, and until /pods said that all are ready; from their
// removal until nothing was left.
type agentResult struct{ started, ready, removed time.Duration }

// compare finds the floor's best concurrencies and lets floor and deckhand take turns.
func (s *session) compare(ctx context.Context, n int) (*group, error) {
	g := &group{n: n}
	var best floorResult[time.Duration]
	for _, c := range s.Concurrencies {
		r, err := s.floorRun(ctx, n, floorResult[int]{c, c})
		if err != nil {
			return nil, err
		}
		s.say("%3d pods  floor, %d at a time: started in %s, removed in %s", n, c, report.Duration(r.start), report.Duration(r.remove))
		if best.start == 0 || r.start < best.start {
			best.start, g.concurrency.start = r.start, c
		}
		if best.remove == 0 || r.remove < best.remove {
			best.remove, g.concurrency.remove = r.remove, c
		}
	}
	for round := range s.Rounds {
		f, err := s.floorRun(ctx, n, g.concurrency)
		if err != nil {
			return nil, err
		}
		g.floor = append(g.floor, f)
		if s.FloorOnly {
			continue
		}
		d, err := s.agentRun(ctx, n)
		if err != nil {
			return nil, err
		}
		g.deckhand = append(g.deckhand, d)
		s.say("%3d pods  round %d: floor %s, deckhand %s (ready after %s); removed in %s and %s", n, round+1,
			report.Duration(f.start), report.Duration(d.started), report.Duration(d.ready), report.Duration(f.remove), report.Duration(d.removed))
	}
	return g, nil
}

func (s *session) floorRun(ctx context.Context, n int, concurrency floorResult[int]) (r floorResult[time.Duration], err error) {
	pods, start, err := s.floor.Start(ctx, n, concurrency.start)
	if err != nil {
		return r, err
	}
	remove, err := s.floor.Remove(ctx, pods, concurrency.remove)
	if err != nil {
		return r, err
	}
	// So that no event of these pods is taken for one of the next.
	_, err = s.await(ctx, "the floor's pods are gone", rig.State.Empty)
	return floorResult[time.Duration]{start, remove}, err
}

func (s *session) agentRun(ctx context.Context, n int) (agentResult, error) {
	var r agentResult
	err := s.withAgent(ctx, func(a *rig.Agent) error {
		began, err := s.dropPods(a, n)
		if err != nil {
			return err
		}
		started, err := s.await(ctx, fmt.Sprintf("%d containers run", n), func(st rig.State) bool { return st.Running() >= n })
		if err != nil {
			return err
		}
		ready, err := s.awaitReady(ctx, a, n)
		if err != nil {
			return err
		}
		r.started, r.ready = started.Sub(began), ready.Sub(began)
		r.removed, err = s.removeAll(ctx, a)
		return err
	})
	return r, err
}

// dropPods gives the agent n manifests and returns when it got the first.
func (s *session) dropPods(a *rig.Agent, n int) (time.Time, error) {
	if err := a.Stage(n, rig.Image, rig.Sleep()); err != nil {
		return time.Time{}, err
	}
	began := time.Now()
	return began, a.Drop()
}

func (s *session) awaitReady(ctx context.Context, a *rig.Agent, n int) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return a.Await(ctx, 2*time.Millisecond, func(c rig.Counts) bool { return c.Ready >= n })
}
