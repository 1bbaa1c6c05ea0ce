package agent

import (
	"context"
	"io"
	"os"
	"runtime/debug"
	"slices"

	"github.com/go-logr/logr"
	pluginregistration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/agent/runonce"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/host/kernel"
	"github.com/deckhand-node/deckhand/internal/host/lockfile"
	"github.com/deckhand-node/deckhand/internal/host/pluginwatch"
	"github.com/deckhand-node/deckhand/internal/host/process"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/engine"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// parallelStarts limits the sandboxes and containers that are created or started concurrently. According to `make
// bench`, the runtime has its best throughput with 4 to 8 of them on two cores.
const parallelStarts = 6

// maxEvents is the number of events that the local event ring keeps.
const maxEvents = 1000

// Agent is an agent with all its parts built; Run starts it.
type Agent struct {
	runner  *modules.Runner
	modules []modules.Module
	conn    *cri.Conn
	// once implements --runonce; nil without that flag.
	once *runonce.Runner
}

// Options are the agent's inputs besides its configuration. Only Log is required.
type Options struct {
	Log logr.Logger
	// SetVerbosity changes the log verbosity.
	SetVerbosity func(verbosity uint32, vmodule string) error
	// Notifier sends the agent's state to the service manager.
	Notifier *process.Notifier
	// Reread reads the configuration again. It is called after a signal on HangUp, and after a change of the files
	// if they are watched.
	Reread func(ctx context.Context, old *config.Config) (*config.Config, error)
	HangUp <-chan os.Signal
	// Lock is the file of --lock-file. With --exit-on-lock-contention the agent ends, and releases the lock, when
	// another process tries to acquire it.
	Lock *lockfile.Named
	// Once implements --runonce if it isn't nil: the agent ends when all pods are up or have failed, and writes the
	// results to Once.
	Once io.Writer
	// Started is called once the local API accepts requests.
	Started func()
	// Moved is called at each start once the agent is in its control group; without kubeletCgroups, it isn't moved to
	// one.
	Moved func()
	// StopAll makes the agent stop all pods that the previous agent ran, and then end. Such an agent reads no
	// manifests and opens no ports.
	StopAll bool
}

// ErrAllStopped is returned by Run with StopAll (`deckhand down`) after all pods have stopped and the embedded
// runtime was shut down.
var ErrAllStopped = worker.ErrAllStopped

// withDefaults replaces missing optional fields by functions and values that do nothing.
func (o Options) withDefaults() Options {
	if o.SetVerbosity == nil {
		o.SetVerbosity = func(uint32, string) error { return nil }
	}
	if o.Notifier == nil {
		o.Notifier = &process.Notifier{}
	}
	if o.Reread == nil {
		o.Reread = func(_ context.Context, old *config.Config) (*config.Config, error) { return old, nil }
	}
	if o.Started == nil {
		o.Started = func() {}
	}
	if o.Moved == nil {
		o.Moved = func() {}
	}
	return o
}

// New builds the agent. It starts nothing and changes nothing on the host; Run does.
func New(cfg *config.Config, o Options) (*Agent, error) {
	return build(cfg, o, constructors{worker.New, allocation.New, engine.Kinds(),
		func(list []desired.SourceKind) []desired.SourceKind { return list }})
}

// constructors build the parts that tests replace or configure differently.
type constructors struct {
	pool    func(*worker.Waker, worker.Config) *worker.Pool
	ledger  func(allocation.Config) *allocation.Manager
	engines []engine.Kind
	sources func([]desired.SourceKind) []desired.SourceKind
}

// build builds every part of the agent, wing by wing. Each part is built from the parts before it.
func build(cfg *config.Config, o Options, by constructors) (*Agent, error) {
	b, err := newBase(cfg, o.withDefaults(), by)
	if err != nil {
		return nil, err
	}
	r, err := newRuntime(b)
	if err != nil {
		return nil, err
	}
	d, err := newDesired(b, r)
	if err != nil {
		return nil, err
	}
	i, err := newImages(b, r, d)
	if err != nil {
		return nil, err
	}
	s, err := newResources(b, r, d)
	if err != nil {
		return nil, err
	}
	v, err := newVolumes(b, r, d, i, s)
	if err != nil {
		return nil, err
	}
	inCluster, err := newCluster(b, r, d)
	if err != nil {
		return nil, err
	}
	w, err := newWorkers(b, r, d, i, s, v, inCluster)
	if err != nil {
		return nil, err
	}
	served, err := newServing(b, r, d, i, s, v, inCluster, w)
	if err != nil {
		return nil, err
	}
	collect(b, r, d, i, v, w)
	a := &Agent{runner: b.runner, conn: r.conn}
	if o.Once != nil {
		a.once = runonce.New(served.shown, o.Once)
	}
	a.modules = parts{b, r, d, i, s, v, inCluster, w, served, a.once}.modules()
	return a, nil
}

// parts are all parts of an agent, by wing.
type parts struct {
	*foundation
	run       *runtimeParts
	want      *desiredParts
	img       *imageParts
	res       *resourceParts
	vol       *volumeParts
	inCluster apiServer
	work      *workerParts
	serve     *servingParts
	once      *runonce.Runner // nil without --runonce
}

// modules lists the agent's modules in the order in which they start; they stop in reverse order.
func (p parts) modules() []modules.Module {
	cfg, k, log := p.cfg, p.kubelet(), p.log
	traits := p.run.engine.Traits()
	stops := []modules.Module{
		{Name: "stopped pods", Run: p.work.stopper.Run,
			Start: orLogged(without(p.restoreStops), log, "All pods run")},
		{Name: "added containers", Start: orLogged(without(p.work.additions.Restore), log,
			"Containers that were added to pods are forgotten")},
	}
	// An agent that only stops pods reads the sources before its workers start. Otherwise the workers would stop a pod
	// without its spec, and so its sidecars at the same time as its main containers.
	sources := p.want.Modules()
	return slices.Concat(
		[]modules.Module{
			rootModule(cfg, p.dirs, !p.o.StopAll, p.reserve),
		},
		only(!p.o.StopAll, modules.Module{Name: "shared root directory", // before anything is mounted in it
			Start: orLogged(without(func() error { return mounts.Share(cfg.RootDir) }), log,
				"Volumes below the root directory can't be mounted with mountPropagation Bidirectional")}),
		[]modules.Module{
			{Name: "events", Start: orLogged(without(p.history.Restore), log, "Events of earlier agents are missing"),
				Run: p.history.Run},
			// The clock comes before modules that start slowly: a machine without a battery-backed clock gets the time
			// meanwhile.
			clockModule(p.clock, p.node, log.WithName("clock"), p.wakes.WakeAll, p.work.ended.Wake, p.serve.web.Reload,
				p.inCluster.ClockChanged),
			localModule(p.serve.api, cfg.RootDir, p.o.StopAll, p.o.Started, p.reserve, log),
			{Name: "web server", Run: p.serve.web.Run},
			{Name: "pod resources", Run: p.serve.resources.Run},
			{Name: "configuration", Start: without(func() error { logNotes(log, cfg, nil); return nil }),
				Run: p.work.reloader.Run},
			{Name: "reload signal", Run: onHangUp(p.o.HangUp, p.work.reloader.Ask)},
		},
		only(!p.o.StopAll, modules.Module{Name: "disk reserve", Run: p.reserve.Run}),
		only(p.traces.Tracing != nil, modules.Module{Name: "traces", Run: p.traces.Run}),
		only(k.EnableContentionProfiling && ptr.Deref(k.EnableDebuggingHandlers, true),
			modules.Module{Name: "contention profiling", Run: profileContention}),
		only(cfg.Watch, modules.Module{Name: "configuration files",
			Run: watchConfig(p.files, cfg.Sources, p.work.reloader.CheckFiles, log.WithName("config"))}),
		only(p.o.Lock != nil, modules.Module{Name: "lock file", Run: yieldLock(cfg, p.o.Lock, log)}),
		[]modules.Module{processesModule(p.run.host.cgroups.MoveProcesses, p.o.Moved)},
		p.run.engine.Modules(engine.Owner{Starting: p.run.state.SetMessage, AllStopped: p.work.stopper.AllStopped}),
		[]modules.Module{
			{Name: "kernel settings", Start: setKernelFlags(cfg, p.o.StopAll, log)},
			oomModule(kernel.LogDevice, p.node, log.WithName("oom")),
			cgroupsModule(p.run.host, !traits.ConfiguredDriver, p.o.StopAll, p.run.state, p.run.seen.Synced(),
				p.workersReady),
			{Name: "user IDs", Start: orLogged(p.run.host.users.Restore, log,
				"Some pods' ranges of user IDs can't be read; their containers run on")},
			{Name: "log links", Start: orLogged(without(p.run.logDirs.RemoveDeadLinks), log,
				"Can't remove dead links to container logs")},
			{Name: "runtime state", Run: p.run.state.Run},
			{Name: "observed state", Run: p.run.seen.Run},
		},
		only(!p.o.StopAll, p.work.pressure.alarms(log)),
		p.inCluster.Modules(),
		[]modules.Module{
			{Name: "image records", Start: p.img.images.Start},
			{Name: "imported images", Run: p.img.images.Run},
			{Name: "image collection", Run: p.img.collector.Run},
			// If these records can't be read, pods run all the same.
			{Name: "allocations", Run: p.res.allocations.Run, Start: orLogged(without(p.res.allocations.Restore), log,
				"Some records of what pods were allocated, or assigned of devices, can't be used")},
			{Name: "CSI drivers", Run: p.vol.drivers.Run},
			{Name: "plugins", Run: pluginwatch.New(pluginwatch.Config{Dir: p.dirs.PluginsRegistry(),
				Handlers: map[string]pluginwatch.Handler{pluginregistration.DevicePlugin: p.res.assigned,
					pluginregistration.CSIPlugin: p.vol.drivers},
				Files: p.files, Log: log.WithName("plugins")}).Run},
			{Name: "amounts of devices", Run: followDevices(p.res.assigned, p.run.host)},
			{Name: "journal", Start: p.work.diaries.Start, Run: p.work.diaries.Run},
			{Name: "probes", Run: p.work.probes.Run},
			// If these records can't be read, pods without claims run all the same.
			{Name: "claims", Start: orLogged(without(p.vol.claims.Restore), log, "Claims can't be bound")},
			{Name: "volumes", Start: orLogged(p.vol.volumes.Adopt, log,
				"Staged devices of an earlier agent can't be recorded yet"),
				Run: p.vol.volumes.Run},
			{Name: "volume statistics", Run: closeAtEnd(p.vol.stats, log)},
			{Name: "statistics", Run: p.vol.sampler.Run},
		},
		only(ptr.Deref(k.LocalStorageCapacityIsolation, true),
			modules.Module{Name: "storage limits", Run: p.vol.limits.Run}),
		[]modules.Module{
			{Name: "full disks", Run: p.vol.room.Run},
			{Name: "slow disks", Run: p.writes.Run},
		},
		stops,
		only(p.o.StopAll, sources...),
		[]modules.Module{
			{Name: "workers", Run: p.work.pool.Run},
			{Name: "ended containers", Run: p.work.ended.Run},
			{Name: "logs of gone pods", Run: p.work.sweep.Run},
			followFacts(p.run.host.facts, p.res.allocations, p.wakes, p.node),
			{Name: "changes of pods",
				Run: p.wakes.wakeOnPods(p.work.ended.Wake, p.work.sweep.Wake, p.vol.limits.Changed,
					p.work.pressure.PodsChanged, p.work.rotator.Wake, p.inCluster.PodsChanged, p.res.cpus.Changed)},
			{Name: "log rotation", Run: p.work.rotator.Run},
		},
		only(!p.o.StopAll, p.work.pressure.evictions()),
		only(!p.o.StopAll && cfg.Standalone, modules.Module{Name: "evicted pods", Run: p.work.resumer.Run}),
		only(!p.o.StopAll, sources...),
		[]modules.Module{
			{Name: "changes of manifests", Run: follower{merger: p.want.Merger, additions: p.work.additions,
				claims: p.vol.claims, podsKnown: p.vol.volumes.PodsKnown, changed: p.res.cpus.Changed,
				wakes: p.wakes, journal: p.work.diaries,
				collector: p.img.collector, log: log}.run},
			{Name: "reports on manifests", Run: p.serve.announcer.Run},
			{Name: "memory", Run: releaseAtRest(p.statuses.Watch, debug.FreeOSMemory)},
		},
		only(p.once != nil, modules.Module{Name: "run once", Run: modules.ThenEnd(p.once.Run)}),
		[]modules.Module{
			// The last module, because it has to be stopped first: it announces the stop.
			serviceModule(p.work.service, p.o.Notifier, cfg.NodeName, p.workersReady, p.work.pool.Healthy, log),
		},
	)
}

// only returns the modules if run is true, and an empty list otherwise.
func only(run bool, list ...modules.Module) []modules.Module {
	if !run {
		return nil
	}
	return list
}

// restoreStops stops the pods that a person has stopped (`deckhand stop`), or all pods with StopAll.
func (p parts) restoreStops() error {
	if p.o.StopAll {
		p.work.stopper.StopAll()
		return nil
	}
	return p.work.stops.Restore()
}

// Run runs the agent until ctx ends, until the --runonce results are written, or until StopAll has stopped all pods.
// Pods and the embedded runtime keep running when it returns, except with StopAll.
func (a *Agent) Run(ctx context.Context) error {
	defer a.conn.Close()
	err := a.runner.Run(ctx, a.modules)
	if a.once != nil && err == nil {
		return a.once.Result()
	}
	return err
}
