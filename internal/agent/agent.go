// Package agent is the composition root: it builds every module of the agent in
// one visible list, starts them in that order and stops them in reverse.
package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/allocation"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/validation"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/checkpoint"
	"github.com/deckhand-node/deckhand/internal/desired/file"
	"github.com/deckhand-node/deckhand/internal/desired/httpsource"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/desired/runsource"
	"github.com/deckhand-node/deckhand/internal/events"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/imagegc"
	"github.com/deckhand-node/deckhand/internal/journal"
	"github.com/deckhand-node/deckhand/internal/local"
	"github.com/deckhand-node/deckhand/internal/lockfile"
	"github.com/deckhand-node/deckhand/internal/logrotate"
	"github.com/deckhand-node/deckhand/internal/metrics"
	"github.com/deckhand-node/deckhand/internal/nodeimages"
	"github.com/deckhand-node/deckhand/internal/objects"
	"github.com/deckhand-node/deckhand/internal/observed"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/podlogdirs"
	"github.com/deckhand-node/deckhand/internal/podlogs"
	"github.com/deckhand-node/deckhand/internal/podspec"
	"github.com/deckhand-node/deckhand/internal/probe"
	"github.com/deckhand-node/deckhand/internal/reload"
	"github.com/deckhand-node/deckhand/internal/resources"
	"github.com/deckhand-node/deckhand/internal/rootdir"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/server"
	"github.com/deckhand-node/deckhand/internal/status"
	"github.com/deckhand-node/deckhand/internal/storagelimit"
	"github.com/deckhand-node/deckhand/internal/systemd"
	"github.com/deckhand-node/deckhand/internal/volume/binder"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
	"github.com/deckhand-node/deckhand/internal/volume/volumestats"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// parallelStarts is how many sandboxes and containers are made or started at
// once. `make bench` finds the runtime's best at 4 to 8 on two cores.
const parallelStarts = 6

// keptEvents is how many events the local ring holds.
const keptEvents = 1000

// Agent is everything that runs on the node, built and not yet started.
type Agent struct {
	// cfg is what the agent was started with; reloader.Current what is in force.
	cfg      *config.Config
	options  Options
	reloader *reload.Reloader
	service  *service
	dirs     rootdir.Layout
	log      logr.Logger
	since    time.Time
	// end ends the agent as ctx of Run would; it is set by Run.
	end context.CancelFunc

	metrics  *metrics.Metrics
	events   *events.Recorder
	status   *status.Store
	merger   *desired.Merger
	runs     *runsource.Source
	conn     *cri.Conn
	observed *observed.Store
	pool     *worker.Pool
	probes   *probe.Manager
	journal  *journal.Journal
	node     *node
	objects  *objects.Live
	images   *nodeimages.Images
	// collector removes images.
	collector *imagegc.Collector
	remains   *remains
	// grants is what resources pods have.
	grants *allocation.Manager
	// volumes mounts what pods want, claims knows which PersistentVolume each claim has.
	// volumesChanged wakes the former.
	volumes        *manager.Manager
	claims         *binder.Binder
	volumesChanged chan struct{}
	// limits finds pods that keep too much on disk.
	limits      *storagelimit.Judge
	diskMeter   *usage.Meter
	volumeStats *volumestats.Reader

	logDirs  *podlogdirs.Dirs
	logs     *podlogs.Reader
	embedded *embedded.Runtime // nil when another runtime is used
	runtime  *runtimeState
	// imagesAt is when an image archive was last imported, objectsAt when objects that
	// pods refer to changed last.
	imagesAt, objectsAt moment
	// pulls pulls images, rotator rotates logs: what a reload changes of them.
	pulls   *image.Manager
	rotator *logrotate.Rotator
	once    *once // nil without --runonce
	// settled is closed once workers may begin.
	settled chan struct{}
	modules []module
}

// Options are what an agent is built with beside its configuration. Only Log has to be set.
type Options struct {
	Log logr.Logger
	// SetVerbosity changes how much is logged.
	SetVerbosity func(verbosity uint32, vmodule string) error
	// Notifier tells a service manager how the agent is doing.
	Notifier *systemd.Notifier
	// Reread reads the configuration anew: HangUp asks for that, as do its files if they
	// are watched.
	Reread func(ctx context.Context, old *config.Config) (*config.Config, error)
	HangUp <-chan os.Signal
	// Lock is given away, and the agent ended, where the configuration says so.
	Lock *lockfile.Named
	// Once has the agent end when all pods are up or have failed, and is where it tells that.
	Once io.Writer
	// Started is called once the local API answers.
	Started func()

	// between stands between the workers and what they use: a test's.
	between func(*worker.Config)
}

// withDefaults has everything that may be left out do nothing.
func (o Options) withDefaults() Options {
	if o.SetVerbosity == nil {
		o.SetVerbosity = func(uint32, string) error { return nil }
	}
	if o.Notifier == nil {
		o.Notifier = &systemd.Notifier{}
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
	dirs, err := rootdir.New(cfg.RootDir, cfg.CertDir)
	if err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, options: o.withDefaults(), dirs: dirs, log: o.Log, events: events.New(keptEvents), status: status.New(), settled: make(chan struct{})}
	a.service = &service{manager: a.options.Notifier}
	a.reloader = a.newReloader()
	a.metrics = newMetrics(cfg)
	endpoint, err := a.buildRuntime()
	if err != nil {
		return nil, err
	}
	a.conn, err = cri.New(cri.Options{Endpoint: endpoint, ImageEndpoint: cfg.Kubelet.ImageServiceEndpoint,
		Timeout: cfg.Kubelet.RuntimeRequestTimeout.Duration, Observer: a.metrics.Runtime})
	if err != nil {
		return nil, err
	}
	if a.node, err = a.newNode(); err != nil {
		return nil, err
	}
	sources, err := a.buildSources()
	if err != nil {
		return nil, err
	}
	a.objects = objects.NewLive(func() *objects.Set { return a.merger.Current().Objects })
	if err := a.buildImages(); err != nil {
		return nil, err
	}
	if err := a.buildWorkers(); err != nil {
		return nil, err
	}
	a.metrics.CollectPods(a.counts)
	a.metrics.CollectEvents(func() metrics.EventStats { return metrics.EventStats(a.events.Stats()) })
	a.rotator = a.newRotator()
	if o.Once != nil {
		a.once = newOnce(a, o.Once)
	}
	a.modules = a.list(sources)
	return a, nil
}

// list is the order in which the agent comes up; it goes down in reverse.
func (a *Agent) list(sources []module) []module {
	list := []module{
		a.rootModule(),
		a.localModule(),
		{name: "web server", run: server.New(a.log.WithName("server"), a.listeners()...).Run},
		{name: "configuration", run: a.reloader.Run},
		{name: "reload signal", run: a.awaitReloads},
	}
	if a.cfg.Watch {
		list = append(list, module{name: "configuration files", run: a.watchConfig})
	}
	if a.options.Lock != nil {
		list = append(list, module{name: "lock file", run: a.yieldLock})
	}
	if a.embedded != nil {
		list = append(list, module{name: "embedded runtime", start: a.startEmbedded, run: a.embedded.Run})
	}
	list = append(list,
		module{name: "kernel settings", start: a.setKernelFlags},
		a.cgroupsModule(),
		module{name: "user IDs", start: a.startUsers},
		module{name: "log links", start: a.tidyLogLinks},
		module{name: "runtime state", run: a.runtime.run},
		module{name: "observed state", run: a.observed.Run},
		module{name: "image records", start: a.images.Start},
		module{name: "imported images", run: a.images.Run},
		module{name: "image collection", run: a.collector.Run},
		module{name: "allocations", start: func(context.Context) error { return a.restoreGrants() }},
		module{name: "journal", start: a.journal.Start, run: a.journal.Run},
		module{name: "probes", run: a.probes.Run},
		module{name: "volumes", start: a.startClaims, run: a.volumes.Run},
	)
	list = append(list, a.limitsModules()...)
	list = append(list,
		module{name: "workers", run: a.pool.Run},
		module{name: "ended containers", run: a.remains.keeper.Run},
		module{name: "logs of gone pods", run: a.remains.logs.Run},
		module{name: "log rotation", run: a.rotator.Run},
	)
	list = append(list, sources...)
	list = append(list, module{name: "news of manifests", run: a.tellSets})
	if a.once != nil {
		list = append(list, module{name: "run once", run: a.once.run})
	}
	// The last, so that it is told of the end first.
	return append(list, module{name: "service manager", start: a.tellReady, run: a.attendService})
}

// Run runs the agent until ctx ends, or until it has done what it was started for. Pods and
// the embedded runtime stay when it returns.
func (a *Agent) Run(ctx context.Context) error {
	ctx, a.end = context.WithCancel(ctx)
	defer a.end()
	a.since = time.Now()
	a.metrics.Reloads.Loaded(a.since)
	defer a.conn.Close()
	err := runModules(ctx, a.log, a.modules)
	if a.once != nil && err == nil {
		return a.once.result
	}
	return err
}

// rootModule makes the root folder and holds its lock while everything else runs.
func (a *Agent) rootModule() module {
	var lock *lockfile.Lock
	return module{
		name: "root folder",
		start: func(context.Context) (err error) {
			if err := (embedded.Config{RootDir: a.cfg.RootDir}).Claim(); err != nil {
				return err
			}
			if lock, err = lockfile.Acquire(a.cfg.RootDir); err != nil {
				return err
			}
			if err = errors.Join(a.dirs.Make(), writeFootprint(a.cfg)); err != nil {
				return errors.Join(err, lock.Release())
			}
			return nil
		},
		run: func(ctx context.Context) error {
			<-ctx.Done()
			return lock.Release()
		},
	}
}

// localModule serves the commands on this machine.
func (a *Agent) localModule() module {
	api := local.NewServer(view{a}, a.images, a.logs, a.pages(), a.log.WithName("local"))
	var socket net.Listener
	return module{
		name: "local API",
		start: func(context.Context) (err error) {
			socket, err = local.Listen(local.SocketPath(a.cfg.RootDir))
			if err == nil {
				a.options.Started()
			}
			return err
		},
		run: func(ctx context.Context) error { return api.Serve(ctx, socket) },
	}
}

func (a *Agent) buildRuntime() (endpoint string, err error) {
	if !a.cfg.UsesEmbeddedRuntime() {
		return a.cfg.Kubelet.ContainerRuntimeEndpoint, nil
	}
	c := EmbeddedConfig(a.cfg)
	c.OnImport = func(names []string) { a.images.Imported(names) }
	a.embedded, err = embedded.New(c, a.log.WithName("runtime"))
	if err != nil {
		return "", err
	}
	return a.embedded.Endpoint(), nil
}

func (a *Agent) startEmbedded(ctx context.Context) error {
	a.runtime.say("the embedded runtime is starting")
	return a.embedded.Start(ctx)
}

// tidyLogLinks removes links to logs that are gone since the agent last ran.
func (a *Agent) tidyLogLinks(context.Context) error {
	if err := a.logDirs.RemoveDeadLinks(); err != nil {
		a.log.Error(err, "Can't remove dead links to container logs")
	}
	return nil
}

// buildSources makes the sources of pods that the configuration names, and the
// merger they report to.
func (a *Agent) buildSources() ([]module, error) {
	k := &a.cfg.Kubelet
	rules := reader.Rules{SetDefaults: func(p *v1.Pod) {
		podspec.SetDefaults(p)
		p.Status.QOSClass = resources.QOSClass(p) // as the API server does at creation
	}, Validate: podspec.Validate, QOSClass: resources.QOSClass}
	read := func(s pod.Source) *reader.Reader { return reader.New(a.cfg.NodeName, s, rules) }
	store := func(s pod.Source) *checkpoint.Store {
		return checkpoint.NewStore(filepath.Join(a.dirs.Checkpoints(), "desired"), s)
	}
	names := []pod.Source{pod.SourceRun}
	if k.StaticPodPath != "" {
		names = append(names, pod.SourceFile)
	}
	if k.StaticPodURL != "" {
		names = append(names, pod.SourceHTTP)
	}
	a.merger = desired.New(a.log.WithName("desired"), names...)
	a.runs = runsource.New(read(pod.SourceRun), a.merger, a.log.WithName("run"))
	modules := []module{{name: "pods of deckhand run", run: a.runs.Run}}
	if k.StaticPodPath != "" {
		s := file.New(file.Config{Path: k.StaticPodPath, Every: k.FileCheckFrequency.Duration}, read(pod.SourceFile), store(pod.SourceFile), a.merger, a.log.WithName("file"))
		modules = append(modules, module{name: "manifest folder", run: s.Run})
	}
	if k.StaticPodURL != "" {
		s, err := httpsource.New(httpsource.Config{URL: k.StaticPodURL, Header: k.StaticPodURLHeader, Every: k.HTTPCheckFrequency.Duration}, read(pod.SourceHTTP), store(pod.SourceHTTP), a.merger, a.log.WithName("http"))
		if err != nil {
			return nil, err
		}
		modules = append(modules, module{name: "manifest URL", run: s.Run})
	}
	return modules, nil
}

// EmbeddedConfig is the embedded runtime's part of the configuration.
func EmbeddedConfig(cfg *config.Config) embedded.Config {
	c := embedded.Config{RootDir: cfg.RootDir, Bridge: cfg.Embedded.Bridge, BinDirs: binDirs(cfg),
		SystemdCgroup: cfg.Kubelet.CgroupDriver == validation.CgroupDriverSystemd}
	for i, p := range cfg.Embedded.PodCIDRs {
		if i > 0 {
			c.PodCIDR += ","
		}
		c.PodCIDR += p.String()
	}
	return c.WithDefaults()
}
