package agent

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/host/clock"
	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/events"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// foundation is the configuration, the directories, and the parts that all other parts report to.
type foundation struct {
	cfg    *config.Config
	o      Options
	by     constructors
	log    logr.Logger
	began  time.Time
	dirs   rootdir.Layout
	traces traces
	runner *modules.Runner
	// files reports changes of files. All parts share its inotify instance.
	files *filewatch.Instance

	reserve *room.Reserve
	// writes follows writes that wait for the disk of the root directory.
	writes   *room.Writes
	meter    *metrics.Metrics
	recorder *events.Recorder
	// node records events of the node.
	node     events.Node
	history  *events.History
	statuses *podstatus.Store
	wakes    *wakes
	clock    *clock.Clock
	// workersReady is closed once workers may start.
	workersReady chan struct{}
}

func newBase(cfg *config.Config, o Options, by constructors) (*foundation, error) {
	dirs, err := rootdir.New(cfg.RootDir, cfg.CertDir)
	if err != nil {
		return nil, err
	}
	recorder := events.New(maxEvents)
	node := events.Node{Recorder: recorder, Name: cfg.NodeName}
	return &foundation{
		cfg: cfg, o: o, by: by, log: o.Log, began: time.Now(), dirs: dirs, traces: newTracing(cfg, o.Log),
		runner: modules.NewRunner(o.Log), files: filewatch.New(filewatch.Every, o.Log.WithName("files")),
		reserve: room.NewReserve(cfg.RootDir), writes: room.NewWrites(node, o.Log.WithName("disks")),
		meter: newMetrics(cfg), recorder: recorder, node: node,
		history: events.NewHistory(filepath.Join(dirs.Checkpoints(), "events.jsonl"), recorder,
			o.Log.WithName("events")),
		statuses: podstatus.NewStore(), wakes: newWakes(), clock: clock.New(), workersReady: make(chan struct{}),
	}, nil
}

// kubelet returns the part of the configuration that is a KubeletConfiguration.
func (b *foundation) kubelet() *v1beta1.KubeletConfiguration { return &b.cfg.Kubelet }

// checkpoint returns the path of a file or directory with this agent's state that the next agent reads.
func (b *foundation) checkpoint(name string) string { return filepath.Join(b.dirs.Checkpoints(), name) }

// unwatched returns a problem while some files can't be watched for changes.
func (b *foundation) unwatched() []pod.Problem {
	since, err := b.files.Problem()
	if err == nil {
		return nil
	}
	return []pod.Problem{{Origin: "watched files", Since: since, General: true, Message: fmt.Sprintf(
		"some can't be watched for changes, and are read every %s: %v", filewatch.Every, err)}}
}

// joins reports whether the agent takes part in a cluster. With StopAll or --runonce it doesn't.
func (b *foundation) joins() bool { return b.cfg.Kubeconfig != "" && !b.o.StopAll && b.o.Once == nil }

func version() string { return buildinfo.Get().Version }

func newMetrics(cfg *config.Config) *metrics.Metrics {
	m := metrics.New(metrics.Info{NodeName: cfg.NodeName, Version: version(), Build: buildinfo.Get()})
	states := cfg.Gates.All()
	features := make([]metrics.Feature, len(states))
	for i, s := range states {
		features[i] = metrics.Feature{Name: s.Name, Stage: s.Stage.Label(), On: s.On}
	}
	m.Features(features)
	return m
}
