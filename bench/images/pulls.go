package images

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/bench/report"
	"github.com/deckhand-node/deckhand/bench/rig"
)

// pulls is how long pulls of one image took, once per round.
type pulls struct{ floor, deckhand []time.Duration }

// pulls lets floor and deckhand take turns, each with images of its own of the same size.
func (s *session) pulls(ctx context.Context) (p pulls, err error) {
	if s.FloorOnly {
		return p, s.pullRounds(ctx, &p, nil)
	}
	err = s.withAgent(ctx, func(a *rig.Agent) error { return s.pullRounds(ctx, &p, a) })
	return p, err
}

func (s *session) pullRounds(ctx context.Context, p *pulls, a *rig.Agent) error {
	for round := range s.Rounds {
		floor, err := s.floorPull(ctx)
		if err != nil {
			return err
		}
		p.floor = append(p.floor, floor)
		if a == nil {
			continue
		}
		deckhand, err := s.timed(ctx, a.Pull)
		if err != nil {
			return err
		}
		p.deckhand = append(p.deckhand, deckhand)
		s.say("round %d  one image: floor %s, deckhand %s", round+1, report.Duration(floor), report.Duration(deckhand))
	}
	return nil
}

// floorPull pulls a fresh image by the CRI alone.
func (s *session) floorPull(ctx context.Context) (time.Duration, error) {
	return s.timed(ctx, func(ctx context.Context, ref string) error {
		_, err := s.floor.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
		return err
	})
}

// timed makes a fresh image, has it pulled and removes it.
func (s *session) timed(ctx context.Context, pull func(ctx context.Context, ref string) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	name, err := s.fresh(ctx)
	if err != nil {
		return 0, err
	}
	ref := s.registry.ref(name)
	began := time.Now()
	if err := pull(ctx, ref); err != nil {
		return 0, fmt.Errorf("pull %s: %w", ref, err)
	}
	took := time.Since(began)
	if n := s.registry.pulls(name); n != 1 {
		return 0, fmt.Errorf("%s was to be pulled once, and was %d times", ref, n)
	}
	_, err = s.floor.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	return took, err
}

// start is one start of all pods.
type start struct {
	// here is with the image on the node, pulled without; pulls is how often it was pulled then.
	here, pulled time.Duration
	pulls        int
}

// starts starts pods that all want one image: with it on the node, and without.
func (s *session) starts(ctx context.Context) ([]start, error) {
	var all []start
	for round := range s.PodRounds {
		var one start
		name, err := s.fresh(ctx)
		if err != nil {
			return nil, err
		}
		ref := s.registry.ref(name)
		if one.pulled, err = s.start(ctx, ref); err != nil {
			return nil, err
		}
		one.pulls = s.registry.pulls(name)
		if one.here, err = s.start(ctx, ref); err != nil {
			return nil, err
		}
		all = append(all, one)
		s.say("round %d  %d pods: %s with the image here, %s with %d pulls of it", round+1, s.Pods,
			report.Duration(one.here), report.Duration(one.pulled), one.pulls)
	}
	return all, nil
}

// start returns how long it takes from the first manifest's arrival until all containers run.
func (s *session) start(ctx context.Context, ref string) (took time.Duration, err error) {
	err = s.withAgent(ctx, func(a *rig.Agent) error {
		if err := a.Stage(s.Pods, ref, rig.Sleep()); err != nil {
			return err
		}
		began := time.Now()
		if err := a.Drop(); err != nil {
			return err
		}
		at, err := s.await(ctx, fmt.Sprintf("%d containers run", s.Pods), func(st rig.State) bool { return st.Running() >= s.Pods })
		took = at.Sub(began)
		return err
	})
	return took, err
}
