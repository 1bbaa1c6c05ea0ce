package pods

import (
	"context"
	"encoding/json"
	"fmt"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/bench/report"
	"github.com/deckhand-node/deckhand/bench/rig"
)

// single is what one pod came to, once per round.
type single struct {
	floorStart   []time.Duration // sandbox, container and start
	floorRestart []time.Duration // container and start in the same sandbox
	start        []time.Duration // manifest to started container
	ready        []time.Duration // started container to /pods saying ready
	restart      []time.Duration // crash to running again
}

func (s *session) onePod(ctx context.Context) (*single, error) {
	one := &single{}
	for range s.Rounds {
		if err := s.floorOne(ctx, one); err != nil {
			return nil, err
		}
		if s.FloorOnly {
			continue
		}
		if err := s.withAgent(ctx, func(a *rig.Agent) error { return s.agentOne(ctx, a, one) }); err != nil {
			return nil, err
		}
	}
	return one, nil
}

func (s *session) floorOne(ctx context.Context, one *single) error {
	pods, start, err := s.floor.Start(ctx, 1, 1)
	if err != nil {
		return err
	}
	restart, err := s.floor.Restart(ctx, &pods[0], 1)
	if err != nil {
		return err
	}
	if _, err := s.floor.Remove(ctx, pods, 1); err != nil {
		return err
	}
	one.floorStart = append(one.floorStart, start)
	one.floorRestart = append(one.floorRestart, restart)
	_, err = s.await(ctx, "the floor's pod is gone", rig.State.Empty)
	return err
}

func (s *session) agentOne(ctx context.Context, a *rig.Agent, one *single) error {
	began, err := s.dropPods(a, 1)
	if err != nil {
		return err
	}
	first, started, err := s.awaitContainer(ctx, 0)
	if err != nil {
		return err
	}
	ready, err := s.awaitReady(ctx, a, 1)
	if err != nil {
		return err
	}
	one.start = append(one.start, started.Sub(began))
	one.ready = append(one.ready, ready.Sub(time.Unix(0, first.GetStartedAt())))

	pid, err := s.pidOf(ctx, first.GetId())
	if err != nil {
		return err
	}
	crashed := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("crash the container: %w", err)
	}
	_, restarted, err := s.awaitContainer(ctx, 1)
	if err != nil {
		return err
	}
	one.restart = append(one.restart, restarted.Sub(crashed))
	s.say("  1 pod   started in %s, ready %s later, running %s after a crash", report.Duration(started.Sub(began)),
		report.Duration(one.ready[len(one.ready)-1]), report.Duration(restarted.Sub(crashed)))
	return nil
}

// awaitContainer waits for the attempt-th instance of the container to run.
func (s *session) awaitContainer(ctx context.Context, attempt uint32) (*runtimeapi.ContainerStatus, time.Time, error) {
	var c *runtimeapi.ContainerStatus
	at, err := s.await(ctx, fmt.Sprintf("instance %d of the container runs", attempt), func(st rig.State) bool {
		c = st.Find("main", attempt)
		return c != nil
	})
	return c, at, err
}

// pidOf is the process of a container, as containerd tells it to who asks for all.
func (s *session) pidOf(ctx context.Context, id string) (int, error) {
	r, err := s.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return 0, fmt.Errorf("find the container's process: %w", err)
	}
	var info struct{ PID int }
	if err := json.Unmarshal([]byte(r.GetInfo()["info"]), &info); err != nil {
		return 0, fmt.Errorf("find the container's process: %w", err)
	}
	if info.PID <= 1 {
		return 0, fmt.Errorf("the runtime doesn't tell the process of container %s", id)
	}
	return info.PID, nil
}
