// Package agent is the composition root: it builds every module of the agent in
// one visible list, starts them in that order and stops them in reverse.
package agent

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginregistration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/agent/runonce"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/gates"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/host/kernel"
	"github.com/deckhand-node/deckhand/internal/host/lockfile"
	"github.com/deckhand-node/deckhand/internal/host/pluginwatch"
	"github.com/deckhand-node/deckhand/internal/host/process"
	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/image/gc"
	"github.com/deckhand-node/deckhand/internal/image/pull"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/report/events"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
	"github.com/deckhand-node/deckhand/internal/resources/devices"
	"github.com/deckhand-node/deckhand/internal/resources/storagelimits"
	"github.com/deckhand-node/deckhand/internal/runtime/containergc"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/dns"
	"github.com/deckhand-node/deckhand/internal/runtime/health"
	runtimelogs "github.com/deckhand-node/deckhand/internal/runtime/logs"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/rotate"
	"github.com/deckhand-node/deckhand/internal/runtime/observed"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/server"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/server/local/view"
	"github.com/deckhand-node/deckhand/internal/server/nodeapi"
	"github.com/deckhand-node/deckhand/internal/server/podresources"
	"github.com/deckhand-node/deckhand/internal/volume/binder"
	"github.com/deckhand-node/deckhand/internal/volume/filetree"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
	"github.com/deckhand-node/deckhand/internal/volume/subpath"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
	"github.com/deckhand-node/deckhand/internal/worker"
	"github.com/deckhand-node/deckhand/internal/worker/executor"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
	"github.com/deckhand-node/deckhand/internal/worker/journal"
	"github.com/deckhand-node/deckhand/internal/worker/probe"
)

// parallelStarts is how many sandboxes and containers are made or started at
// once. `make bench` finds the runtime's best at 4 to 8 on two cores.
const parallelStarts = 6

// keptEvents is how many events the local ring holds.
const keptEvents = 1000

// Agent is everything that runs on the node, built and not yet started.
type Agent struct {
	log     logr.Logger
	conn    *cri.Conn
	modules []module
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
	return build(cfg, o, constructors{worker.New, allocation.New})
}

// constructors make the parts whose configuration tests change.
type constructors struct {
	pool   func(*worker.Waker, worker.Config) *worker.Pool
	ledger func(allocation.Config) *allocation.Manager
}

// build builds every part from those above it, and lists what runs.
func build(cfg *config.Config, o Options, by constructors) (*Agent, error) {
	o = o.withDefaults()
	k, log, began := &cfg.Kubelet, o.Log, time.Now()
	dirs, err := rootdir.New(cfg.RootDir, cfg.CertDir)
	if err != nil {
		return nil, err
	}

	// What all other parts report to.
	meter := newMetrics(cfg)
	recorder, statuses := events.New(keptEvents), podstatus.NewStore()
	nodeEvents := events.Node{Recorder: recorder, Name: cfg.NodeName}
	history := events.NewHistory(filepath.Join(dirs.Checkpoints(), "events.jsonl"), recorder, log.WithName("events"))
	wakes := newWakes()
	// workersReady is closed once workers may begin.
	workersReady := make(chan struct{})

	// The node and its container runtime.
	imports := image.NewImports()
	extras, err := newExtras(cfg, imports, nodeEvents, log)
	if err != nil {
		return nil, err
	}
	traces := newTracing(cfg, log)
	conn, err := cri.New(cri.Options{Endpoint: extras.endpoint, ImageEndpoint: k.ImageServiceEndpoint,
		Timeout: k.RuntimeRequestTimeout.Duration, Observer: meter.Runtime, Tracer: traces.provider()})
	if err != nil {
		return nil, err
	}
	runtime := health.New(conn, statusPoll(cfg, o), log.WithName("runtime"))
	host, err := newNode(cfg, dirs.Pods(), extras, log)
	if err != nil {
		return nil, err
	}

	// What should run, and what runs.
	sources, err := buildSources(cfg, filepath.Join(dirs.Checkpoints(), "desired"), dirs.Pods(), o, log)
	if err != nil {
		return nil, err
	}
	merger, runs := sources.merger, sources.runs
	stops := desired.NewStops(filepath.Join(dirs.Checkpoints(), "stopped.json"), merger)
	additions := desired.NewAdditions(filepath.Join(dirs.Checkpoints(), "added.json"), merger,
		additionRules(cfg, func() *admission.Node { return host.admission(runtime.Features()) }))
	stops.Starting = additions.Forget
	objects := object.NewLocal(func() *object.Set { return merger.Current().Objects })
	logs := runtimelogs.New(k.PodLogsDir, log.WithName("logs"))
	messages := runtimelogs.NewMessageReader(dirs.Pods(), logs, log.WithName("termination"))
	seen := observed.New(conn,
		observed.Options{Wake: wakes.podChanged, Boot: host.fixed.Boot, Observer: listObserver{meter.PLEG, runtime},
			Message: messages.Message, Log: log.WithName("observed")})
	pods := nodePods{wanted: merger, observed: seen, statuses: statuses, dir: dirs.Pods()}

	// Images.
	imageLog := log.WithName("image")
	allowed, keyring, err := imageAccess(cfg, recorder, meter, imageLog)
	if err != nil {
		return nil, err
	}
	imageRuntime, guard := image.Runtime{Conn: conn, Extras: extras.own}, gc.NewGuard()
	parallel, perSecond, burst := pullLimits(k)
	puller := pull.New(pull.Config{Runtime: imageRuntime, Keyring: keyring, Access: allowed, Meter: meter.Images,
		Transfers:        extras.own,
		MaxParallelPulls: parallel, PullsPerSecond: perSecond, Burst: burst, Log: imageLog})
	imageRecords := &image.Records{Access: allowed, Runtime: imageRuntime, Log: imageLog}
	collector := gc.New(gc.Config{Policy: collectionPolicy(k), Runtime: conn, Users: image.Users{Pods: pods},
		Guard: guard, Measure: gc.Statfs,
		Records: filepath.Join(dirs.Checkpoints(), "images.json"), Listed: host.setImages, Keep: extras.own.Keep,
		Untag: extras.own.Untag, Listener: imageRecords, Events: nodeEvents, Meter: meter.Garbage,
		Log: log.WithName("imagegc")})
	images := image.New(image.Config{Manager: puller, Collector: collector, Guard: guard, Records: imageRecords,
		Extras: extras.own, Imports: imports,
		Arrived: wakes.imagesArrived, Log: imageLog})

	// Resources and volumes.
	records := checkpoint.New(filepath.Join(dirs.Checkpoints(), "pods"))
	assigned := devices.New(
		devices.Config{Dir: dirs.DevicePlugins(), BootID: bootID(), Wake: wakes.Wake, Meter: meter.Devices,
			Log: log.WithName("devices"),
			Known: func(uid types.UID) bool {
				set := merger.Current()
				return !set.Synced || set.Has(uid) || !seen.Get(uid).Empty()
			}})
	allocations := by.ledger(
		allocation.Config{Store: records, Allocatable: host.allocatable(), Wake: wakes.Wake, Meter: meter.Resources,
			Log:  log.WithName("allocation"),
			Node: func() *admission.Node { return host.admission(runtime.Features()) }, Pods: wakes.admissible,
			Runs: func(uid types.UID) bool { return !seen.Get(uid).Empty() },
			Ended: func(uid types.UID) (bool, error) {
				return executor.Ended(records, uid)
			}, Left: host.cgroups.Orphans,
			Lives:     func(uid types.UID) bool { return seen.Get(uid).Live() },
			Assigners: []allocation.Assigner{assigned},
			Patience:  map[pod.WaitFor]time.Duration{pod.WaitForPlugin: cfg.AwaitDevicePlugins},
		})
	claims := binder.New(binder.Config{Dir: filepath.Join(dirs.Checkpoints(), "volumes"), NodeLabels: host.labels,
		Objects: objects, Recorder: recorder}, log.WithName("claims"))
	diskMeter := usage.New(usage.Config{Took: func(quota bool, took time.Duration) {
		meter.Volumes.Measured(measuredBy(quota), took)
	}})
	volumeLog := log.WithName("volume")
	volumes := manager.New(manager.Config{
		RootDir: cfg.RootDir, Plugins: volumePlugins(volumeImages{images, meter.Volumes}, diskMeter, host.allocatable,
			volumeLog), Claims: claims,
		SubPaths: subpath.New(dirs.Pods()), ApplyFSGroup: filetree.Apply, Changed: wakes.volumes,
		Freed: wakes.claimsFreed,
		Pod: func(uid types.UID) *v1.Pod {
			if d := merger.Current().Get(uid); d != nil {
				return allocated.Apply(d.Pod, allocations.Get(uid))
			}
			return nil
		},
		Running:  func(uid types.UID) bool { return seen.Get(uid).Live() },
		Recorder: recorder, Meter: meter.Volumes, ClusterDomain: k.ClusterDomain,
	}, volumeLog)
	volumeStats := usage.NewStatsReader(
		usage.StatsConfig{Volumes: volumes.Instances, Took: func(d time.Duration) {
			meter.Volumes.Measured(metrics.SourceStatfs, d)
		}})
	onDisk := storagelimits.Node{Desired: merger, Observed: seen, Volumes: volumes, Allocations: allocations}
	layers := storagelimits.NewContainerLayers(
		storagelimits.ContainerLayersConfig{Observed: seen, Runtime: conn, Meter: diskMeter})
	limits := storagelimits.New(
		storagelimits.Config{Pods: onDisk.Pods, Layers: layers, Meter: diskMeter, Logs: k.PodLogsDir,
			Wake: wakes.Wake, Evictions: meter.Evictions, Log: log.WithName("storagelimits")})

	sampler := newSampler(cfg, began, host, seen, volumes, volumeStats, layers, diskMeter, conn, log)

	// The node's side of a cluster.
	inCluster, err := newCluster(cfg, o, host, runtime, seen, merger, statuses, nodeEvents, objects,
		wakes.objectsChanged, dirs, meter, log)
	if err != nil {
		return nil, err
	}

	// The workers: what they ask, and what carries out their actions.
	handlers := handler.New(
		handler.Config{Exec: execer{conn}, Answers: execer{conn}.Answers, Frozen: frozen(host.cgroups, conn),
			SleepCut: meter.Pods.SleepCut, Log: log.WithName("handler")})
	probes := probe.New(probe.Options{Handler: handlers, Recorder: recorder, Meter: probeMeter{meter.Probes},
		Wake: wakes.Wake, Log: log.WithName("probe")})
	diaries := journal.New(journal.Config{Dir: filepath.Join(cfg.RootDir, "journal"), Limit: cfg.JournalBytes,
		Version: version(), Log: log.WithName("journal")})
	names, err := dns.New(dns.Config{ClusterDNS: k.ClusterDNS, ClusterDomain: k.ClusterDomain,
		ResolvConf: ptr.Deref(k.ResolverConfig, ""),
		NodeEvent:  nodeEvents.Event, Log: log.WithName("dns")})
	if err != nil {
		return nil, err
	}
	logDirs := layout.NewDirs(layout.DirsConfig{PodLogsDir: k.PodLogsDir, LinksDir: cfg.ContainerLogLinksDir})
	actions := executor.New(executor.Config{
		Runtime: conn, Observer: seen, Features: runtime.Features, Tasks: extras.tasks, Hooks: handlers, Images: images,
		Objects: inCluster.Finder(), DNS: names, Logs: logDirs,
		Volumes: volumes, Cgroups: meteredCgroups{host.cgroups, meter.Resources}, Users: host.users,
		Allocations: watchedAllocations{allocations, wakes.specChanged}, Records: records, Settings: host.settings,
		HostIPs: host.hostIPs, Allocatable: host.allocatable,
		Recorder: recorder, Ports: hostPorts{}, Meter: startMeter{meter.Pods, meter.Garbage, meter.Volumes},
		Parallel: parallelStarts, Log: log.WithName("executor"),
	})
	dead := cfg.DeadContainers
	keptEnded := &lifecycle.ContainerGC{PerContainer: dead.PerContainer, MinAge: dead.MinAge}
	ended := containergc.NewKeeper(containergc.Limits{Total: dead.Total, MinAge: dead.MinAge}, seen, wakes.Wake,
		log.WithName("containergc"))
	sweep := containergc.NewLogSweep(
		containergc.LogsConfig{Logs: logDirs, Pods: pods, Events: nodeEvents, Meter: meter.Garbage,
			Log: log.WithName("containergc"),
			// In the kubelet's place nobody else keeps logs there.
			Sole: cfg.RootDir == config.DefaultRootDir})
	rotation := rotate.Config{Root: filepath.Clean(k.PodLogsDir)}
	rotation.MaxSize, rotation.MaxFiles, rotation.Workers, rotation.Interval = rotationLimits(k)
	rotator := rotate.New(rotation, logged{seen}, conn, filewatch.NewFirstWrites(), log.WithName("logrotate"))

	// The configuration in force, which workers read.
	service := process.NewService(o.Notifier)
	settings := liveSettings{setVerbosity: o.SetVerbosity, node: host, puller: puller, collector: collector,
		rotator: rotator, cluster: inCluster, waker: wakes.Waker, log: log}
	reporting := reloads{service: service, events: nodeEvents, meter: meter.Reloads, log: log,
		failure: &reloadFailure{}}
	reloader := config.NewReloader(cfg,
		config.ReloadOptions{Load: rereader(o.Reread, host.capacity), Apply: settings.apply, Begin: reporting.begin,
			End: reporting.end})

	pool := by.pool(wakes.Waker, worker.Config{
		Desired: newWanted(merger), Observed: gatedState{seen, workersReady}, Executor: traces.actions(actions),
		Probes: probes, Allocations: allocations,
		Journal: diary{diaries}, Statuses: statuses, Recorder: recorder, Meter: meter.Pods,
		Node: func() lifecycle.Node {
			return lifecycle.Node{HostIPs: host.hostIPs(), RuntimeName: runtime.Info().Name,
				FirstBackoff: firstBackoff(cfg), MaxBackoff: maxBackoff(&reloader.Current().Kubelet),
				ContainerGC: keptEnded,
				ImagesAt:    wakes.images.time(), ResourcesFreedAt: allocations.ResourcesFreedAt(),
				ObjectsAt: wakes.objects.time()}
		},
		KeepUnknownPods: !cfg.Standalone && !joins(cfg, o),
		Terminators: []worker.PodTerminator{
			{Termination: limits.Termination, Forget: limits.Forget},
			{Termination: allocations.Termination},
		},
		ReportsHealth: cfg.Gates.Enabled(gates.ResourceHealthStatus), ExcessContainers: ended.Excess,
		Resync: k.SyncFrequency.Duration, Log: log.WithName("worker"),
	})

	stopper := worker.NewStopper(stops, pool, log.WithName("worker"))

	// What reports on all that.
	meter.Reloads.Loaded(began)
	meter.CollectPullRecords(allowed.Counts)
	meter.CgroupVersion(host.cgroups.Version)
	collectPods(meter, merger, seen, statuses, recorder, logDirs, cfg.Standalone)
	collectVolumes(meter, volumes, volumeStats, limits)
	announcer := desired.NewAnnouncer(merger, recorder, func(p *v1.Pod) []string {
		// The embedded containerd runs with SELinux off: that needs a policy of the host for it.
		return translate.UnsupportedFields(p, extras.embedded != nil)
	}, log.WithName("desired"))
	shown := view.New(view.Config{Node: cfg.NodeName, Started: began, Desired: merger, Runs: runs, Stops: stops,
		Stopper: stopper, Additions: additions, Observed: seen, Runtime: runtime, RuntimeProblems: extras.problems,
		Reload: reporting.failure.get, Cluster: inCluster,
		Statuses: statuses, Events: history, Probes: probes, Journal: diaries, Facts: host.facts.Now,
		Capacity: host.capacity, Holdings: allocations.Holdings, Devices: allocations.Health, Pulls: images.Pulls,
		Current: reloader.Current, Exposures: sources.exposures,
		MissingPullSecrets: func(ctx context.Context, d *pod.Desired) []string {
			return keyring.MissingSecrets(ctx, d.Pod, inCluster.Finder().For(d))
		}})
	served := pages(cfg.Flags, reloader, began)
	machine := server.NewMachineReader("/")
	measured := statsPages(sampler, machine, meter, log)
	offered := nodeapi.Config{
		Sources: server.Sources{Pods: statuses, Running: seen, Machine: machine,
			Health: server.Health(checks(pool, seen, runtime, meter.Checks)...), Metrics: meter.Handler(),
			Stats: measured, Pages: served},
		Statuses: statuses, Observed: seen, Synced: pods.Synced, Logs: logs, Runtime: conn,
		Checkpoints: dirs.Checkpoints(), SetVerbosity: levelSetter(o.SetVerbosity, reloader),
		Log: log.WithName("server")}
	api := local.NewServer(shown, images, logs, nodeapi.Sessions(offered), localPages(served, measured),
		log.WithName("local"))
	listening, err := listeners(cfg, dirs.Certs, ownNames(cfg, host.facts), meter, offered, inCluster,
		traces.provider())
	if err != nil {
		return nil, err
	}
	web := server.New(log.WithName("server"), listening...)

	// The order in which the agent comes up; it goes down in reverse.
	list := []module{
		rootModule(cfg, dirs, !o.StopAll),
		{name: "events", start: orLogged(without(history.Restore), log, "Events of earlier agents are missing"),
			run: history.Run},
		localModule(api, cfg.RootDir, o.Started, log),
		{name: "web server", run: web.Run},
		{name: "pod resources", run: podresources.New(
			podresources.Config{Dir: dirs.PodResources(), Statuses: statuses, Devices: assigned, Ready: workersReady,
				Meter: meter.PodResources, Log: log.WithName("podresources")}).Run},
		{name: "configuration", start: func(context.Context) error {
			logNotes(log, cfg, nil)
			return nil
		}, run: reloader.Run},
		{name: "reload signal", run: onHangUp(o.HangUp, reloader.Ask)},
	}
	if traces.Tracing != nil {
		list = append(list, module{name: "traces", run: traces.Run})
	}
	if k.EnableContentionProfiling && ptr.Deref(k.EnableDebuggingHandlers, true) {
		list = append(list, module{name: "contention profiling", run: profileContention})
	}
	if cfg.Watch {
		list = append(list, module{name: "configuration files",
			run: watchConfig(cfg.Sources, reloader.Look, log.WithName("config"))})
	}
	if o.Lock != nil {
		list = append(list, module{name: "lock file", run: yieldLock(cfg, o.Lock, log)})
	}
	// Before anything is started that is to be in the agent's control group.
	list = append(list, module{name: "processes of the host", start: without(host.cgroups.MoveProcesses)})
	if extras.embedded != nil {
		// Before the runtime in the list, and so after it at the end.
		list = append(list, module{name: "end of the embedded runtime", run: shutDownAfter(stopper, extras.embedded)})
		list = append(list, module{name: "embedded runtime", run: extras.embedded.Run,
			start: func(ctx context.Context) error {
				runtime.SetMessage("the embedded runtime is starting")
				return extras.embedded.Start(ctx)
			}})
	}
	list = append(list,
		module{name: "kernel settings", start: setKernelFlags(cfg, o.StopAll, log)},
		oomModule(kernel.LogDevice, nodeEvents, log.WithName("oom")),
		cgroupsModule(host, extras.embedded == nil, runtime, seen.Synced(), workersReady),
		module{name: "user IDs",
			start: orLogged(host.users.Restore, log,
				"Some pods' ranges of user IDs can't be read; their containers run on")},
		module{name: "log links",
			start: orLogged(without(logDirs.RemoveDeadLinks), log, "Can't remove dead links to container logs")},
		module{name: "runtime state", run: runtime.Run},
		module{name: "observed state", run: seen.Run},
		module{name: "cluster", run: inCluster.Run},
		module{name: "image records", start: images.Start},
		module{name: "imported images", run: images.Run},
		module{name: "image collection", run: collector.Run},
		// No pod is kept from running for what can't be read.
		module{name: "allocations",
			start: orLogged(without(allocations.Restore), log,
				"Some records of what pods were allocated, or assigned of devices, can't be used"),
			run: allocations.Run},
		module{name: "plugins", run: pluginwatch.New(
			pluginwatch.Config{Dir: dirs.PluginsRegistry(),
				Handlers: map[string]pluginwatch.Handler{pluginregistration.DevicePlugin: assigned},
				Log:      log.WithName("plugins")}).Run},
		module{name: "amounts of devices", run: followDevices(assigned, host)},
		module{name: "journal", start: diaries.Start, run: diaries.Run},
		module{name: "probes", run: probes.Run},
		// Pods without claims run.
		module{name: "volumes", start: orLogged(without(claims.Restore), log, "Claims can't be bound"),
			run: volumes.Run},
		module{name: "volume statistics", run: closeAtEnd(volumeStats, log)},
		module{name: "statistics", run: sampler.Run},
	)
	if ptr.Deref(k.LocalStorageCapacityIsolation, true) {
		list = append(list, module{name: "storage limits", run: limits.Run})
	}
	list = append(list,
		module{name: "workers", run: pool.Run},
		module{name: "ended containers", run: ended.Run},
		module{name: "logs of gone pods", run: sweep.Run},
		module{name: "node facts", run: followFacts(host.facts, allocations, wakes)},
		module{name: "changes of pods",
			run: wakes.wakeOnPods(ended.Wake, sweep.Wake, limits.Changed, rotator.Wake, inCluster.PodsChanged)},
		module{name: "log rotation", run: rotator.Run},
	)
	list = append(list, module{name: "stopped pods", run: stopper.Run, start: orLogged(func(context.Context) error {
		if o.StopAll {
			stopper.StopAll()
			return nil
		}
		return stops.Restore()
	}, log, "All pods run")},
		module{name: "added containers",
			start: orLogged(without(additions.Restore), log, "Containers that were added to pods are forgotten")})
	list = append(list, sources.modules...)
	list = append(list,
		module{name: "changes of manifests",
			run: follower{merger: merger, additions: additions, claims: claims, wakes: wakes, journal: diaries,
				collector: collector, log: log}.run},
		module{name: "reports on manifests", run: announcer.Run},
	)
	a := &Agent{log: log, conn: conn}
	if o.Once != nil {
		a.once = runonce.New(shown, o.Once)
		list = append(list, module{name: "run once", run: thenEnd(a.once.Run)})
	}
	// The last, so that it learns of the end first.
	a.modules = append(list, serviceModule(service, o.Notifier, cfg.NodeName, workersReady, pool.Healthy, log))
	return a, nil
}

// Run runs the agent until ctx ends, or until it has done what it was started for. Pods and
// the embedded runtime stay when it returns.
func (a *Agent) Run(ctx context.Context) error {
	defer a.conn.Close()
	err := runModules(ctx, a.log, a.modules)
	if a.once != nil && err == nil {
		return a.once.Result()
	}
	return err
}
