package agent

import (
	"context"
	"io"
	"os"
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
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/engine"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// parallelStarts is how many sandboxes and containers are made or started at
// once. `make bench` finds the runtime's best at 4 to 8 on two cores.
const parallelStarts = 6

// keptEvents is how many events the local ring holds.
const keptEvents = 1000

// Agent is everything that runs on the node, built and not yet started.
type Agent struct {
	runner  *modules.Runner
	modules []modules.Module
	conn    *cri.Conn
	// once is what the agent was started for; nil without --runonce.
	once *runonce.Runner
}

// Options are what an agent is built with beside its configuration. Only Log has to be set.
type Options struct {
	Log logr.Logger
	// SetVerbosity changes how much is logged.
	SetVerbosity func(verbosity uint32, vmodule string) error
	// Notifier informs a service manager how the agent is doing.
	Notifier *process.Notifier
	// Reread reads the configuration again: HangUp asks for that, as do its files if they
	// are watched.
	Reread func(ctx context.Context, old *config.Config) (*config.Config, error)
	HangUp <-chan os.Signal
	// Lock is given away, and the agent ended, where the configuration says so.
	Lock *lockfile.Named
	// Once has the agent end when all pods are up or have failed, and is where it writes the results.
	Once io.Writer
	// Started is called once the local API answers.
	Started func()
	// StopAll has the agent stop all pods that the last one ran, and end. It reads no manifests and opens no ports.
	StopAll bool
}

// ErrAllStopped is what Run returns when all pods were to be stopped, and were (`deckhand down`). The embedded runtime
// was shut down, too.
var ErrAllStopped = worker.ErrAllStopped

// withDefaults has everything that may be left out do nothing.
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
	return o
}

// New builds the agent. Nothing runs, and nothing on the host is changed, before Run.
func New(cfg *config.Config, o Options) (*Agent, error) {
	return build(cfg, o, constructors{worker.New, allocation.New, engine.Kinds(),
		func(list []desired.SourceKind) []desired.SourceKind { return list }})
}

// constructors make the parts whose configuration tests change.
type constructors struct {
	pool    func(*worker.Waker, worker.Config) *worker.Pool
	ledger  func(allocation.Config) *allocation.Manager
	engines []engine.Kind
	sources func([]desired.SourceKind) []desired.SourceKind
}

// build makes every part of the agent, wing by wing, each from those before it.
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
	s := newResources(b, r, d)
	v := newVolumes(b, r, d, i, s)
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
	collect(b, r, d, i, v)
	a := &Agent{runner: b.runner, conn: r.conn}
	if o.Once != nil {
		a.once = runonce.New(served.shown, o.Once)
	}
	a.modules = parts{b, r, d, i, s, v, inCluster, w, served, a.once}.modules()
	return a, nil
}

// parts are all that was built.
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

// modules lists what runs, in the order in which the agent comes up; it goes down in reverse.
func (p parts) modules() []modules.Module {
	cfg, k, log := p.cfg, p.kubelet(), p.log
	traits := p.run.engine.Traits()
	return slices.Concat(
		[]modules.Module{
			rootModule(cfg, p.dirs, !p.o.StopAll),
			{Name: "events", Start: orLogged(without(p.history.Restore), log, "Events of earlier agents are missing"),
				Run: p.history.Run},
			localModule(p.serve.api, cfg.RootDir, p.o.Started, log),
			{Name: "web server", Run: p.serve.web.Run},
			{Name: "pod resources", Run: p.serve.resources.Run},
			{Name: "configuration", Start: without(func() error { logNotes(log, cfg, nil); return nil }),
				Run: p.work.reloader.Run},
			{Name: "reload signal", Run: onHangUp(p.o.HangUp, p.work.reloader.Ask)},
		},
		only(p.traces.Tracing != nil, modules.Module{Name: "traces", Run: p.traces.Run}),
		only(k.EnableContentionProfiling && ptr.Deref(k.EnableDebuggingHandlers, true),
			modules.Module{Name: "contention profiling", Run: profileContention}),
		only(cfg.Watch, modules.Module{Name: "configuration files",
			Run: watchConfig(cfg.Sources, p.work.reloader.Look, log.WithName("config"))}),
		only(p.o.Lock != nil, modules.Module{Name: "lock file", Run: yieldLock(cfg, p.o.Lock, log)}),
		[]modules.Module{
			// Before anything is started that is to be in the agent's control group.
			{Name: "processes of the host", Start: without(p.run.host.cgroups.MoveProcesses)},
		},
		p.run.engine.Modules(engine.Owner{Starting: p.run.state.SetMessage, AllStopped: p.work.stopper.AllStopped}),
		[]modules.Module{
			{Name: "kernel settings", Start: setKernelFlags(cfg, p.o.StopAll, log)},
			oomModule(kernel.LogDevice, p.node, log.WithName("oom")),
			cgroupsModule(p.run.host, !traits.ConfiguredDriver, p.run.state, p.run.seen.Synced(), p.workersReady),
			{Name: "user IDs", Start: orLogged(p.run.host.users.Restore, log,
				"Some pods' ranges of user IDs can't be read; their containers run on")},
			{Name: "log links", Start: orLogged(without(p.run.logDirs.RemoveDeadLinks), log,
				"Can't remove dead links to container logs")},
			{Name: "runtime state", Run: p.run.state.Run},
			{Name: "observed state", Run: p.run.seen.Run},
		},
		p.inCluster.Modules(),
		[]modules.Module{
			{Name: "image records", Start: p.img.images.Start},
			{Name: "imported images", Run: p.img.images.Run},
			{Name: "image collection", Run: p.img.collector.Run},
			// No pod is kept from running for what can't be read.
			{Name: "allocations", Run: p.res.allocations.Run, Start: orLogged(without(p.res.allocations.Restore), log,
				"Some records of what pods were allocated, or assigned of devices, can't be used")},
			{Name: "plugins", Run: pluginwatch.New(pluginwatch.Config{Dir: p.dirs.PluginsRegistry(),
				Handlers: map[string]pluginwatch.Handler{pluginregistration.DevicePlugin: p.res.assigned},
				Log:      log.WithName("plugins")}).Run},
			{Name: "amounts of devices", Run: followDevices(p.res.assigned, p.run.host)},
			{Name: "journal", Start: p.work.diaries.Start, Run: p.work.diaries.Run},
			{Name: "probes", Run: p.work.probes.Run},
			// Pods without claims run.
			{Name: "volumes", Start: orLogged(without(p.vol.claims.Restore), log, "Claims can't be bound"),
				Run: p.vol.volumes.Run},
			{Name: "volume statistics", Run: closeAtEnd(p.vol.stats, log)},
			{Name: "statistics", Run: p.vol.sampler.Run},
		},
		only(ptr.Deref(k.LocalStorageCapacityIsolation, true),
			modules.Module{Name: "storage limits", Run: p.vol.limits.Run}),
		[]modules.Module{
			{Name: "workers", Run: p.work.pool.Run},
			{Name: "ended containers", Run: p.work.ended.Run},
			{Name: "logs of gone pods", Run: p.work.sweep.Run},
			{Name: "node facts", Run: followFacts(p.run.host.facts, p.res.allocations, p.wakes)},
			{Name: "changes of pods",
				Run: p.wakes.wakeOnPods(p.work.ended.Wake, p.work.sweep.Wake, p.vol.limits.Changed,
					p.work.rotator.Wake, p.inCluster.PodsChanged)},
			{Name: "log rotation", Run: p.work.rotator.Run},
			{Name: "stopped pods", Run: p.work.stopper.Run,
				Start: orLogged(without(p.restoreStops), log, "All pods run")},
			{Name: "added containers", Start: orLogged(without(p.want.additions.Restore), log,
				"Containers that were added to pods are forgotten")},
		},
		p.want.Modules(),
		[]modules.Module{
			{Name: "changes of manifests", Run: follower{merger: p.want.Merger, additions: p.want.additions,
				claims: p.vol.claims, wakes: p.wakes, journal: p.work.diaries, collector: p.img.collector,
				log: log}.run},
			{Name: "reports on manifests", Run: p.serve.announcer.Run},
		},
		only(p.once != nil, modules.Module{Name: "run once", Run: modules.ThenEnd(p.once.Run)}),
		[]modules.Module{
			// The last, so that it learns of the end first.
			serviceModule(p.work.service, p.o.Notifier, cfg.NodeName, p.workersReady, p.work.pool.Healthy, log),
		},
	)
}

// only returns the module if it is to run.
func only(run bool, m modules.Module) []modules.Module {
	if !run {
		return nil
	}
	return []modules.Module{m}
}

// restoreStops stops the pods that a person has stopped, or all.
func (p parts) restoreStops() error {
	if p.o.StopAll {
		p.work.stopper.StopAll()
		return nil
	}
	return p.want.stops.Restore()
}

// Run runs the agent until ctx ends, or until it has done what it was started for. Pods and
// the embedded runtime stay when it returns.
func (a *Agent) Run(ctx context.Context) error {
	defer a.conn.Close()
	err := a.runner.Run(ctx, a.modules)
	if a.once != nil && err == nil {
		return a.once.Result()
	}
	return err
}
