// Package images measures how deckhand pulls images beside plain CRI calls for the same
// (the floor), from a registry on loopback, on one containerd, in turns.
package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/bench/report"
	"github.com/deckhand-node/deckhand/bench/rig"
)

// patience is how long one step may take before the measurement is given up.
const patience = 5 * time.Minute

// Options say what to measure.
type Options struct {
	// BinDir has deckhand, the runtime's programs and, in images, its images.
	BinDir string
	// Layers is how many layers an image that is pulled has, of LayerSize random bytes each.
	Layers    int
	LayerSize int64
	// Rounds is how often floor and deckhand take turns to pull; medians are reported.
	Rounds int
	// Pods is how many pods want one image, PodRounds how often.
	Pods, PodRounds int
	// FloorOnly leaves deckhand out.
	FloorOnly bool
	// Out gets progress and tables.
	Out io.Writer
}

// Run measures and prints. It needs root and takes down all it made.
func Run(ctx context.Context, o Options) (err error) {
	if o.Layers < 1 || o.LayerSize < 1 || o.Rounds < 1 {
		return errors.New("there has to be a layer with something in it, and a round")
	}
	st, err := rig.StartStage(ctx, o.BinDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	watcher, err := rig.StartWatcher(ctx, runtimeapi.NewRuntimeServiceClient(st.CRI))
	if err != nil {
		return err
	}
	defer watcher.Stop()
	r, err := startRegistry()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	s := &session{Options: o, stage: st, floor: runtimeapi.NewImageServiceClient(st.CRI), watch: watcher, registry: r}
	return s.run(ctx)
}

// session is one measurement.
type session struct {
	Options
	stage    *rig.Stage
	floor    runtimeapi.ImageServiceClient
	watch    *rig.Watcher
	registry *registry
	// runs counts the agent's runs, images those that were made.
	runs, images int
}

func (s *session) run(ctx context.Context) error {
	// The first pull of a fresh containerd is slower than any other.
	if _, err := s.floorPull(ctx); err != nil {
		return err
	}
	p, err := s.pulls(ctx)
	if err != nil {
		return err
	}
	t := pullTable(s.Options, p)
	if _, err := t.WriteTo(s.Out); err != nil || s.FloorOnly {
		return err
	}
	starts, err := s.starts(ctx)
	if err != nil {
		return err
	}
	t = startTable(s.Options, starts, report.Median(p.deckhand))
	_, err = t.WriteTo(s.Out)
	return err
}

// fresh makes an image that nobody has seen, with the program of the stage's pods in it,
// and puts it into the registry. It returns the name there.
func (s *session) fresh(ctx context.Context) (name string, err error) {
	s.images++
	image, err := runnable(filepath.Join(s.BinDir, "images", "web.tar"), rig.Image, s.Layers, s.LayerSize)
	if err != nil {
		return "", fmt.Errorf("make an image: %w", err)
	}
	name = fmt.Sprintf("bench/image%d", s.images)
	if err := s.registry.push(ctx, name, image); err != nil {
		return "", fmt.Errorf("push %s: %w", name, err)
	}
	return name, nil
}

// withAgent runs do with a fresh agent, and takes the agent and its pods down.
func (s *session) withAgent(ctx context.Context, do func(*rig.Agent) error) (err error) {
	s.runs++
	dir := filepath.Join(s.stage.Dir, fmt.Sprintf("agent-%d", s.runs))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	a, err := rig.StartAgent(ctx, rig.AgentOptions{Binary: filepath.Join(s.BinDir, "deckhand"), Dir: dir, Endpoint: s.stage.Endpoint,
		CgroupRoot: s.stage.CgroupRoot})
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, a.Clear())
		_, gone := s.await(ctx, "no pod is left", rig.State.Empty)
		err = errors.Join(err, gone, a.Stop())
	}()
	return do(a)
}

func (s *session) await(ctx context.Context, what string, until func(rig.State) bool) (time.Time, error) {
	return s.watch.AwaitFor(ctx, patience, what, until)
}

func (s *session) say(format string, args ...any) {
	fmt.Fprintf(s.Out, format+"\n", args...)
}
