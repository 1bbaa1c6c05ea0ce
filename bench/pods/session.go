// Package pods measures how deckhand starts, restarts and removes pods beside
// plain CRI calls for the same (the floor), on one containerd, in turns.
package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/bench/rig"
)

// patience is how long one step may take before the measurement is given up.
const patience = 5 * time.Minute

// Options say what to measure.
type Options struct {
	// BinDir has deckhand, the runtime's programs and, in images, its images.
	BinDir string
	// Counts are the numbers of pods to start, and Concurrencies those the floor
	// is tried with.
	Counts, Concurrencies []int
	// Rounds is how often floor and deckhand take turns; medians are reported.
	Rounds int
	// IdleCounts are the numbers of pods to idle with, for Idle each.
	IdleCounts []int
	Idle       time.Duration
	// FloorOnly leaves deckhand out.
	FloorOnly bool
	// Out gets progress and tables.
	Out io.Writer
}

// Run measures and prints. It needs root and takes down all it made.
func Run(ctx context.Context, o Options) (err error) {
	st, err := rig.StartStage(ctx, o.BinDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	cri := runtimeapi.NewRuntimeServiceClient(st.CRI)
	watcher, err := rig.StartWatcher(ctx, cri)
	if err != nil {
		return err
	}
	defer watcher.Stop()
	s := &session{
		Options: o, stage: st, cri: cri, watch: watcher,
		floor: &rig.Floor{
			Runtime: cri, Image: rig.Image, Args: rig.Sleep(), Grace: 30 * time.Second,
			LogDir: filepath.Join(st.Dir, "floor-logs"), CgroupRoot: st.CgroupRoot,
		},
	}
	return s.run(ctx)
}

// session is one measurement.
type session struct {
	Options
	stage *rig.Stage
	cri   runtimeapi.RuntimeServiceClient
	watch *rig.Watcher
	floor *rig.Floor
	runs  int // of the agent, for their directories
}

func (s *session) run(ctx context.Context) error {
	// The first pod of a fresh containerd is slower than any other.
	if _, err := s.floorRun(ctx, 1, floorResult[int]{1, 1}); err != nil {
		return err
	}
	var groups []*group
	for _, n := range s.Counts {
		g, err := s.compare(ctx, n)
		if err != nil {
			return err
		}
		groups = append(groups, g)
	}
	if err := s.print(startTable(groups, s.FloorOnly)); err != nil {
		return err
	}
	one, err := s.onePod(ctx)
	if err != nil {
		return err
	}
	if err := s.print(onePodTable(one, s.FloorOnly)); err != nil || s.FloorOnly {
		return err
	}
	idle, err := s.idle(ctx)
	if err != nil {
		return err
	}
	return s.print(idleTable(idle))
}

// startAgent starts the agent in a directory of its own, without pods.
func (s *session) startAgent(ctx context.Context) (*rig.Agent, error) {
	s.runs++
	dir := filepath.Join(s.stage.Dir, fmt.Sprintf("agent-%d", s.runs))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return rig.StartAgent(ctx, rig.AgentOptions{
		Binary: filepath.Join(s.BinDir, "deckhand"), Dir: dir, Endpoint: s.stage.Endpoint,
		CgroupRoot: s.stage.CgroupRoot,
	})
}

// withAgent runs do with a fresh agent, and takes the agent and its pods down.
func (s *session) withAgent(ctx context.Context, do func(*rig.Agent) error) (err error) {
	a, err := s.startAgent(ctx)
	if err != nil {
		return err
	}
	defer func() {
		_, gone := s.removeAll(ctx, a)
		err = errors.Join(err, gone, a.Stop())
	}()
	return do(a)
}

// removeAll removes the agent's manifests and returns how long it takes until
// the runtime has no pod.
func (s *session) removeAll(ctx context.Context, a *rig.Agent) (time.Duration, error) {
	began := time.Now()
	if err := a.Clear(); err != nil {
		return 0, err
	}
	at, err := s.await(ctx, "no pod is left", rig.State.Empty)
	return at.Sub(began), err
}

func (s *session) await(ctx context.Context, what string, until func(rig.State) bool) (time.Time, error) {
	return s.watch.AwaitFor(ctx, patience, what, until)
}

func (s *session) say(format string, args ...any) {
	fmt.Fprintf(s.Out, format+"\n", args...)
}
