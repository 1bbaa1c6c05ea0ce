// Package volumes measures what volumes cost: one of them beside the bare system calls for the same
// (the floor), one of a CSI driver beside the bare calls of the driver, many of them in an agent at rest, and an edit until all that mount it have it. The runtime
// below the agent keeps everything in memory; the volumes are real.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/bench/report"
	benchrig "github.com/deckhand-node/deckhand/bench/rig"
	"github.com/deckhand-node/deckhand/internal/agent/reset"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/runtime/memcri"
)

// patience is how long one agent's run may take, beside its rest.
const patience = 5 * time.Minute

// image is what the pods run; the in-memory runtime has it.
const image = "deckhand.local/web:1"

// Options say what to measure.
type Options struct {
	// BinDir has deckhand.
	BinDir string
	// Pods is how many pods have PerPod volumes each.
	Pods int
	// Single is how many volumes are made one by one, beside the floor.
	Single int
	// Edits is how often the ConfigMap that all pods mount is edited.
	Edits int
	// Rounds is how often everything takes turns; medians are reported.
	Rounds int
	// Idle is how long the agent is looked at when all pods run.
	Idle time.Duration
	// Out gets progress and the tables.
	Out io.Writer
}

// PerPod is how many volumes a pod has.
const PerPod = 6

// Run measures and prints. It needs root, and takes down all it made.
func Run(ctx context.Context, o Options) error {
	if os.Geteuid() != 0 {
		return errors.New("mounting needs root: run this as root")
	}
	if o.Pods < 1 || o.Single < 1 || o.Edits < 1 || o.Rounds < 1 {
		return errors.New("there has to be a pod, a volume, an edit and a round")
	}
	m := measured{singles: map[string]*pair{}}
	for round := range o.Rounds {
		fmt.Fprintf(o.Out, "round %d of %d: volumes one by one\n", round+1, o.Rounds)
		if err := o.singles(ctx, m.singles); err != nil {
			return err
		}
		if err := o.csi(ctx, &m.csi); err != nil {
			return fmt.Errorf("CSI volumes: %w", err)
		}
		for _, load := range loads {
			fmt.Fprintf(o.Out, "round %d of %d: %d pods with %s\n", round+1, o.Rounds, o.Pods, load.what)
			l, err := o.run(ctx, load)
			if err != nil {
				return fmt.Errorf("%d pods with %s: %w", o.Pods, load.what, err)
			}
			m.add(load.name, l)
		}
	}
	for _, t := range m.tables(o) {
		if _, err := t.WriteTo(o.Out); err != nil {
			return err
		}
	}
	return nil
}

// run gives an agent its pods, measures it and takes them away again.
func (o Options) run(ctx context.Context, load load) (l life, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience+o.Idle)
	defer cancel()
	dir, err := os.MkdirTemp("", "deckhand-volumes-")
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	socket := filepath.Join(dir, "cri.sock")
	server, err := memcri.New(memcri.Options{WriteLogs: true, Images: []string{image}, EventQueue: 200_000, CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS})
	if err != nil {
		return l, err
	}
	if err := server.Start(socket); err != nil {
		return l, err
	}
	defer server.Close()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	watcher, err := benchrig.StartWatcher(ctx, runtimeapi.NewRuntimeServiceClient(conn))
	if err != nil {
		return l, err
	}
	defer watcher.Stop()
	run := benchrig.AgentOptions{
		Binary: filepath.Join(o.BinDir, "deckhand"), Dir: filepath.Join(dir, "agent"), Endpoint: "unix://" + socket,
		CgroupRoot: "/" + filepath.Base(dir),
	}
	defer func() { err = errors.Join(err, cleanUp(run)) }()
	a, err := benchrig.StartAgent(ctx, run)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, a.Stop()) }()
	r := &rig{Options: o, load: load, agent: a, watch: watcher, dir: run.Dir}
	return r.measure(ctx)
}

// cleanUp removes what the agent made on the host for its pods, whatever became of it.
func cleanUp(o benchrig.AgentOptions) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return reset.Run(ctx, reset.Config{
		Runtime:    embedded.Config{RootDir: filepath.Join(o.Dir, "root"), Bridge: "dhvolumes0", PodCIDR: config.DefaultPodCIDR},
		CgroupRoot: o.CgroupRoot,
	}, logr.Discard())
}

// measured is what came of all rounds.
type measured struct {
	singles map[string]*pair
	lives   map[string][]life
	csi     csiTimes
}

func (m *measured) add(name string, l life) {
	if m.lives == nil {
		m.lives = map[string][]life{}
	}
	m.lives[name] = append(m.lives[name], l)
}

// of is the median of something over the lives with a load.
func (m *measured) of(name string, what func(life) time.Duration) time.Duration {
	var list []time.Duration
	for _, l := range m.lives[name] {
		list = append(list, what(l))
	}
	return report.Median(list)
}
