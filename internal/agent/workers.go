package agent

import (
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/gates"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/host/process"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/containergc"
	"github.com/deckhand-node/deckhand/internal/runtime/dns"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/rotate"
	"github.com/deckhand-node/deckhand/internal/worker"
	"github.com/deckhand-node/deckhand/internal/worker/executor"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
	"github.com/deckhand-node/deckhand/internal/worker/journal"
	"github.com/deckhand-node/deckhand/internal/worker/probe"
)

// workerParts are the workers, the parts that they query, the executor of their actions, and the reloader of the
// configuration.
type workerParts struct {
	additions *desired.Additions
	stops     *desired.Stops
	probes    *probe.Manager
	diaries   *journal.Journal
	ended     *containergc.Keeper
	sweep     *containergc.LogSweep
	pressure  *pressureParts
	rotator   *rotate.Rotator
	service   *process.Service
	reporting reloads
	reloader  *config.Reloader
	pool      *worker.Pool
	stopper   *worker.Stopper
	resumer   *worker.Resumer
}

func newWorkers(b *foundation, r *runtimeParts, d *desiredParts, i *imageParts, s *resourceParts, v *volumeParts,
	inCluster apiServer) (*workerParts, error) {
	k, log, w := b.kubelet(), b.log, &workerParts{}
	names, err := dns.New(dns.Config{ClusterDNS: k.ClusterDNS, ClusterDomain: k.ClusterDomain,
		ResolvConf: ptr.Deref(k.ResolverConfig, ""), NodeEvent: b.node.Event, Log: log.WithName("dns")})
	if err != nil {
		return nil, err
	}
	handlers := handler.New(handler.Config{Exec: execer{r.conn}, Answers: execer{r.conn}.Answers,
		Frozen: frozen(r.host.cgroups.Tree, r.conn), SleepCut: b.meter.Pods.SleepCut, Log: log.WithName("handler")})
	w.probes = probe.New(probe.Options{Handler: handlers, Recorder: b.recorder, Meter: probeMeter{b.meter.Probes},
		Wake: b.wakes.Wake, Log: log.WithName("probe"), ClockSteps: b.clock.Steps})
	w.diaries = journal.New(journal.Config{Dir: filepath.Join(b.cfg.RootDir, "journal"), Limit: b.cfg.JournalBytes,
		Version: version(), Log: log.WithName("journal")})
	actions := executor.New(executor.Config{
		Runtime: r.conn, Observer: r.seen, Features: r.state.Features, Tasks: r.engine, Hooks: handlers,
		Images:  i.images,
		Objects: inCluster.Finder(), DNS: names, Logs: r.logDirs, Volumes: v.volumes,
		Cgroups: meteredCgroups{r.host.cgroups, b.meter.Resources}, Users: r.host.users,
		Allocations: watchedAllocations{s.allocations, b.wakes.specChanged}, Records: s.records,
		Settings: r.host.settings,
		Reserve:  b.reserve, DiskFailed: v.room.Failed,
		HostIPs: r.host.hostIPs, Allocatable: r.host.allocatable, Recorder: b.recorder, Ports: hostPorts{},
		Meter:    startMeter{b.meter.Pods, b.meter.Garbage, b.meter.Volumes},
		Parallel: parallelStarts, Log: log.WithName("executor"),
	})
	dead := b.cfg.DeadContainers
	w.ended = containergc.NewKeeper(containergc.Limits{Total: dead.Total, MinAge: dead.MinAge}, r.seen, b.wakes.Wake,
		log.WithName("containergc"))
	reclaim := reclaiming(w.ended, r.engine, i.collector)
	if w.pressure, err = newPressure(b, r, d, s, v, actions.Checkpoint, reclaim); err != nil {
		return nil, err
	}
	w.sweep = containergc.NewLogSweep(containergc.LogsConfig{Logs: r.logDirs, Pods: d.pods, Events: b.node,
		Meter: b.meter.Garbage, Log: log.WithName("containergc"),
		// With the kubelet's root directory, no other program keeps logs there.
		Sole: b.cfg.RootDir == config.DefaultRootDir})
	w.rotator = rotate.New(rotate.ConfigOf(k.PodLogsDir, k), logged{r.seen}, r.conn, b.files.NewFirstWrites(),
		log.WithName("logrotate"))

	w.service = process.NewService(b.o.Notifier)
	w.reporting = reloads{service: w.service, events: b.node, meter: b.meter.Reloads, log: log,
		failure: &reloadFailure{}}
	settings := liveSettings{setVerbosity: b.o.SetVerbosity, node: r.host, puller: i.puller, collector: i.collector,
		rotator: w.rotator, pressure: w.pressure.Manager, cluster: inCluster, waker: b.wakes.Waker, log: log}
	w.reloader = config.NewReloader(b.cfg, config.ReloadOptions{Load: rereader(b.o.Reread, r.host.capacity),
		Apply: settings.apply, Begin: w.reporting.start, End: w.reporting.end})

	containerGC := &lifecycle.ContainerGC{PerContainer: dead.PerContainer, MinAge: dead.MinAge}
	w.pool = b.by.pool(b.wakes.Waker, worker.Config{
		Desired: d.Merger, Observed: gatedState{r.seen, b.workersReady}, Executor: b.traces.actions(actions),
		Probes: w.probes, Allocations: s.allocations, Journal: diary{w.diaries}, Statuses: b.statuses,
		Recorder: b.recorder, Meter: b.meter.Pods,
		Node: func() lifecycle.Node {
			return lifecycle.Node{HostIPs: r.host.hostIPs(), RuntimeName: r.state.Info().Name,
				FirstBackoff: worker.FirstBackoff(b.cfg), MaxBackoff: worker.MaxBackoff(&w.reloader.Current().Kubelet),
				ContainerGC: containerGC, ImagesAt: b.wakes.images.time(),
				ResourcesFreedAt: s.allocations.ResourcesFreedAt(), ObjectsAt: b.wakes.objects.time(),
				DiskFreedAt:       b.wakes.disks.time(),
				RuntimeAnsweredAt: b.wakes.runtime.time(), ClockSteps: b.clock.Steps()}
		},
		KeepUnknownPods: !b.cfg.Standalone && !b.joins(),
		Terminators: []worker.PodTerminator{
			{Termination: v.limits.Termination, Forget: v.limits.Forget},
			{Termination: s.allocations.Termination},
			{Termination: w.pressure.Termination, Forget: w.pressure.Forget},
		},
		ReportsHealth: b.cfg.Gates.Enabled(gates.ResourceHealthStatus), ExcessContainers: w.ended.Excess,
		Resync: k.SyncFrequency.Duration, Log: log.WithName("worker"),
	})
	w.additions = desired.NewAdditions(b.checkpoint("added.json"), d.Merger,
		reader.AdditionRules(b.cfg, func(p *v1.Pod) *pod.Failure { return r.admission().Refuses(p) },
			v.volumes.Unsupported))
	w.stops = desired.NewStops(b.checkpoint("stopped.json"), d.Merger, w.additions.Forget, b.reserve)
	w.stopper = worker.NewStopper(w.stops, w.pool, log.WithName("worker"))
	facts := r.host.facts
	w.resumer = worker.NewResumer(worker.ResumerConfig{Statuses: b.statuses,
		Calm:    func() bool { return facts.Now().Pressure == admission.Pressure{} },
		Watch:   func() (<-chan struct{}, func()) { return facts.Watch(nodefacts.Pressure) },
		Restart: w.stopper.Resume, Log: log.WithName("worker")})
	return w, nil
}
