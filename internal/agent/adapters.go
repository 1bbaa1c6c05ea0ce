package agent

import (
	"context"
	"os"
	"path/filepath"
	goruntime "runtime"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/buildinfo"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/gates"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/effects"
	"github.com/deckhand-node/deckhand/internal/journal"
	"github.com/deckhand-node/deckhand/internal/metrics"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/tasks"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// The types here fit one room's needs to another's offer, so that neither knows the other.

type podUID = types.UID

// wanted offers the merged set to the workers.
type wanted struct {
	merger  *desired.Merger
	changed <-chan struct{}
}

func newWanted(m *desired.Merger) wanted {
	changed, _ := m.Subscribe() // as long as the merger itself
	return wanted{m, changed}
}

func (w wanted) Changed() <-chan struct{} { return w.changed }

func (w wanted) Current() ([]*pod.Desired, bool) {
	set := w.merger.Current()
	return set.Pods, set.Synced
}

// plegMeter offers the PLEG's metrics, and the runtime's state, to the observed state.
type plegMeter struct {
	m     *metrics.PLEG
	state *runtimeState
}

func (p plegMeter) Relisted(begun time.Time, took, interval time.Duration, err error) {
	p.state.relisted(err)
	p.m.Relisted(took, interval)
	if err == nil {
		p.m.LastSeen(begun)
	}
}
func (p plegMeter) Event(time.Duration) {}
func (p plegMeter) EventDiscarded()     { p.m.DiscardEvents() }
func (p plegMeter) Stream(err error) {
	if err != nil {
		p.m.StreamError()
	} else {
		p.m.StreamConnected(0)
	}
}

// podMeter offers the pods' metrics to the workers, startMeter to the effects.
type podMeter struct{ m *metrics.Pods }

func (p podMeter) Decided(d time.Duration)         { p.m.WorkerRan(metrics.OperationSync, d) }
func (p podMeter) Running(sinceSeen time.Duration) { p.m.Started(sinceSeen, sinceSeen) }

type startMeter struct {
	m       *metrics.Pods
	garbage *metrics.Garbage
	volumes *metrics.Volumes
}

func (s startMeter) OrphanCleaned(uid podUID, failed bool) {
	s.volumes.OrphanCleaned(string(uid), failed)
}

func (s startMeter) RemovedContainer() { s.garbage.ContainerRemoved() }

func (s startMeter) SandboxStarted(failed bool) {
	s.m.SandboxStarted(reasonIf(failed, "CreatePodSandboxError"))
}
func (s startMeter) ContainerStarted(failed bool) {
	s.m.ContainerStarted(metrics.TypeContainer, reasonIf(failed, "RunContainerError"))
}

func reasonIf(failed bool, reason string) string {
	if failed {
		return reason
	}
	return ""
}

func version() string { return buildinfo.Get().Version }

func newMetrics(cfg *config.Config) *metrics.Metrics {
	m := metrics.New(metrics.Info{NodeName: cfg.NodeName, Version: version(), GoVersion: goruntime.Version()})
	states := cfg.Gates.All()
	features := make([]metrics.Feature, len(states))
	for i, s := range states {
		features[i] = metrics.Feature{Name: s.Name, Stage: s.Stage.Label(), On: s.On}
	}
	m.Features(features)
	return m
}

// binDirs are where the embedded runtime's programs are looked for before PATH: where the
// package puts them, whose /usr/bin may have a containerd of the host, and beside the
// agent's own program.
func binDirs(cfg *config.Config) []string {
	if cfg.Embedded.BinDir != "" {
		return []string{cfg.Embedded.BinDir}
	}
	if exe, err := os.Executable(); err == nil {
		dir := filepath.Dir(exe)
		return []string{filepath.Join(filepath.Dir(dir), "libexec", "deckhand"), dir}
	}
	return nil
}

func maxBackoff(k *v1beta1.KubeletConfiguration) time.Duration {
	if m := k.CrashLoopBackOff.MaxContainerRestartPeriod; m != nil {
		return m.Duration
	}
	return 0
}

// firstBackoff is the first wait before a container that crashed is restarted (KEP-4603);
// 0 for the default.
func firstBackoff(cfg *config.Config) time.Duration {
	if cfg.Gates.Enabled(gates.ReduceDefaultCrashLoopBackOffDecay) {
		return time.Second
	}
	return 0
}

// nodeEvents offers the recorder to who tells of the node.
type nodeEvents struct{ *Agent }

func (n nodeEvents) NodeEvent(eventType, reason, message string) {
	n.tellNode(pod.Event{Type: pod.EventType(eventType), Reason: reason, Message: message})
}

// counts are the numbers behind the gauges.
func (a *Agent) counts() metrics.PodCounts {
	c := metrics.PodCounts{Desired: len(a.merger.Current().Pods), Containers: map[pod.ContainerState]int{}}
	for _, o := range (everyPod{a}).All() {
		if len(o.Sandboxes) > 0 && o.Sandboxes[0].State == pod.SandboxReady {
			c.RunningPods++
		}
		for i := range o.Containers {
			c.Containers[o.Containers[i].State]++
		}
	}
	c.Working = map[metrics.WorkerState]int{}
	for _, e := range a.status.List() {
		w := metrics.WorkerState{Lifecycle: "sync"}
		if e.Report.Stopping != "" {
			w = metrics.WorkerState{Lifecycle: "terminating", Orphan: true}
		}
		c.Working[w]++
		if ph := e.Pod.Status.Phase; ph != v1.PodSucceeded && ph != v1.PodFailed {
			c.Active++
		}
	}
	return c
}

// diary offers the journal to the workers.
type diary struct{ *journal.Journal }

func (d diary) Open(uid podUID, name string) worker.Record { return d.Journal.Open(uid, name) }

// lostTasks clears away what the embedded containerd loses sight of; another runtime
// looks after itself.
func (a *Agent) lostTasks() effects.Tasks {
	if a.embedded == nil {
		return noTasks{}
	}
	return lostTasks{EmbeddedConfig(a.cfg)}
}

type lostTasks struct{ config embedded.Config }

func (lostTasks) Left(err error) bool { return tasks.Left(err) }

func (l lostTasks) Clear(ctx context.Context, container string) error {
	conn, err := embedded.Dial(l.config)
	if err != nil {
		return err
	}
	defer conn.Close()
	return tasks.Clear(ctx, conn, container)
}

type noTasks struct{}

func (noTasks) Left(error) bool                     { return false }
func (noTasks) Clear(context.Context, string) error { return nil }
