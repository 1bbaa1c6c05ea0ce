package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/agent/cluster"
	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/cluster/nodeobject"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/gates"
	"github.com/deckhand-node/deckhand/internal/config/validation"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/file"
	"github.com/deckhand-node/deckhand/internal/desired/httpsource"
	"github.com/deckhand-node/deckhand/internal/desired/manifeststore"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/desired/runsource"
	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/image/access"
	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/image/credentials/provider"
	"github.com/deckhand-node/deckhand/internal/image/gc"
	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
	"github.com/deckhand-node/deckhand/internal/report/events"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup"
	"github.com/deckhand-node/deckhand/internal/resources/stats"
	"github.com/deckhand-node/deckhand/internal/resources/storagelimits"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/runtime/health"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
	"github.com/deckhand-node/deckhand/internal/runtime/observed"
	"github.com/deckhand-node/deckhand/internal/server"
	"github.com/deckhand-node/deckhand/internal/server/local/view"
	"github.com/deckhand-node/deckhand/internal/server/nodeapi"
	"github.com/deckhand-node/deckhand/internal/server/secure"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
	"github.com/deckhand-node/deckhand/internal/volume/objectfiles"
	"github.com/deckhand-node/deckhand/internal/volume/plugins"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
	"github.com/deckhand-node/deckhand/internal/worker"
	"github.com/deckhand-node/deckhand/internal/worker/executor"
)

func version() string { return buildinfo.Get().Version }

// extras are what the embedded runtime does beyond the CRI, or what stands in for that where
// another runtime is used.
type extras struct {
	embedded *embedded.Runtime // nil when another runtime is used
	endpoint string
	own      image.RuntimeExtras
	tasks    executor.Tasks
	// problems returns what is wrong with image archives and pods' network.
	problems func() []pod.Problem
}

func newExtras(cfg *config.Config, imports *image.Imports, node events.Node, log logr.Logger) (extras, error) {
	if !cfg.UsesEmbeddedRuntime() {
		return extras{endpoint: cfg.Kubelet.ContainerRuntimeEndpoint, own: image.NoExtras{}, tasks: noTasks{},
			problems: func() []pod.Problem { return nil }}, nil
	}
	c := embedded.ConfigOf(cfg)
	c.OnImport = imports.Add
	c.OnRestore = func(message string) { node.NodeEvent(v1.EventTypeWarning, pod.ReasonPodNetworkRestored, message) }
	if group := cfg.RuntimeCgroups; group != "" {
		c.OnStart = func(pid int) error {
			if err := cgroup.Move(group, pid); err != nil {
				return fmt.Errorf("--runtime-cgroups: %w", err)
			}
			return nil
		}
	}
	runtime, err := embedded.New(c, log.WithName("runtime"))
	if err != nil {
		return extras{}, err
	}
	return extras{embedded: runtime, endpoint: runtime.Endpoint(), own: image.Embedded{Runtime: runtime, Config: c},
		tasks: lostTasks{c}, problems: runtimeProblems(runtime, time.Now())}, nil
}

// runtimeProblems returns what lists what is wrong with the embedded runtime. An archive counts as wrong since began.
func runtimeProblems(runtime *embedded.Runtime, began time.Time) func() []pod.Problem {
	return func() []pod.Problem {
		var list []pod.Problem
		for _, text := range runtime.Problems() {
			list = append(list, pod.Problem{Origin: "image archives", Message: text, Since: began, General: true})
		}
		if p := runtime.NetworkProblem(); p.Message != "" {
			list = append(list, pod.Problem{Origin: "pod network", Message: p.Message, Since: p.Since, General: true})
		}
		return list
	}
}

// podRules are what makes pods from manifests complete, and what they may ask for.
func podRules(cfg *config.Config) reader.Rules {
	rules := reader.Rules{SetDefaults: func(p *v1.Pod) {
		spec.SetDefaults(p)
		p.Status.QOSClass = spec.QOSClass(p) // as the API server does at creation
	}, Validate: spec.Validate, QOSClass: spec.QOSClass}
	if !cfg.Standalone {
		// As with a kubelet, whose mirror pods never change.
		rules.Recreate = "in a cluster, a changed manifest is another pod"
		if cfg.Gates.Enabled(gates.PreventStaticPodAPIReferences) {
			rules.Refuse = spec.APIReferences
		}
	}
	return rules
}

// additionRules are the same for containers that are added to pods that run.
func additionRules(cfg *config.Config, node func() *admission.Node) desired.AdditionRules {
	rules := podRules(cfg)
	return desired.AdditionRules{SetDefaults: rules.SetDefaults, Refuses: func(p *v1.Pod) *pod.Failure {
		return node().Refuses(p)
	},
		Validate: func(p *v1.Pod) field.ErrorList {
			wrong := rules.Validate(p)
			if rules.Refuse != nil {
				wrong = append(wrong, rules.Refuse(p)...)
			}
			for i := range p.Spec.EphemeralContainers { // which can never be corrected
				image := p.Spec.EphemeralContainers[i].Image
				if _, err := reference.ParseNormalizedNamed(image); err != nil {
					wrong = append(wrong, field.Invalid(
						field.NewPath("spec", "ephemeralContainers").Index(i).Child("image"), image, err.Error()))
				}
			}
			return wrong
		}}
}

// podSources are where pods come from.
type podSources struct {
	merger  *desired.Merger
	runs    *runsource.Source
	modules []module
	// exposures says who beside root decides what runs.
	exposures func() []string
}

func noExposures() []string { return nil }

// buildSources makes the sources of pods that the configuration names, and the merger they report
// to. They store what they read last in the directory dir; the directory pods has one for each pod that runs. With
// StopAll, the sources are what was stored. The one of an API server is the cluster's.
func buildSources(cfg *config.Config, dir, pods string, o Options, log logr.Logger) (podSources, error) {
	k, rules := &cfg.Kubelet, podRules(cfg)
	read := func(s pod.Source) *reader.Reader { return reader.New(cfg.NodeName, s, rules) }
	store := func(s pod.Source) *manifeststore.Store { return manifeststore.NewStore(dir, pods, s) }
	names := []pod.Source{pod.SourceRun}
	if o.StopAll {
		names = append(names, pod.SourceFile, pod.SourceHTTP)
		merger := desired.New(log.WithName("desired"), names...)
		runs := runsource.New(read(pod.SourceRun), merger, merger.Current, log.WithName("run"))
		modules := []module{{name: "pods of deckhand run", run: runs.Run}}
		for _, s := range names[1:] {
			modules = append(modules,
				module{name: "last pods of source " + string(s), start: func(context.Context) error {
					merger.Report(manifeststore.Recall(read(s), store(s)))
					return nil
				}})
		}
		return podSources{merger, runs, modules, noExposures}, nil
	}
	if k.StaticPodPath != "" {
		names = append(names, pod.SourceFile)
	}
	if k.StaticPodURL != "" {
		names = append(names, pod.SourceHTTP)
	}
	if joins(cfg, o) {
		names = append(names, pod.SourceAPI)
	}
	merger := desired.New(log.WithName("desired"), names...)
	runs := runsource.New(read(pod.SourceRun), merger, merger.Current, log.WithName("run"))
	modules, exposures := []module{{name: "pods of deckhand run", run: runs.Run}}, noExposures
	if k.StaticPodPath != "" {
		s := file.New(file.Config{Path: k.StaticPodPath, Every: k.FileCheckFrequency.Duration,
			DeletedAtOnce: !cfg.Standalone, Invoker: rootdir.InvokerOf(os.Getenv)}, read(pod.SourceFile),
			store(pod.SourceFile), merger, log.WithName("file"))
		modules, exposures = append(modules, module{name: "manifest directory", run: s.Run}), s.Exposures
	}
	if k.StaticPodURL != "" {
		s, err := httpsource.New(
			httpsource.Config{URL: k.StaticPodURL, Header: k.StaticPodURLHeader, Every: k.HTTPCheckFrequency.Duration},
			read(pod.SourceHTTP), store(pod.SourceHTTP), merger, log.WithName("http"))
		if err != nil {
			return podSources{}, err
		}
		modules = append(modules, module{name: "manifest URL", run: s.Run})
	}
	return podSources{merger, runs, modules, exposures}, nil
}

// imageAccess makes what knows who may use which image, and with which credentials images are pulled.
func imageAccess(cfg *config.Config, recorder *events.Recorder, meter *metrics.Metrics,
	log logr.Logger) (*access.Records, *credentials.Keyring, error) {
	k := &cfg.Kubelet
	plugins, err := provider.Load(cfg.CredentialProviders.Config, cfg.CredentialProviders.BinDir)
	if err != nil {
		return nil, nil, err
	}
	policy, err := access.NewPolicy(k.ImagePullCredentialsVerificationPolicy, k.PreloadedImagesVerificationAllowlist)
	if err != nil {
		return nil, nil, err
	}
	allowed := access.New(access.Config{RootDir: cfg.RootDir, Policy: policy, Meter: checkMeter{meter.Images},
		Log: log})
	return allowed, credentials.NewKeyring(credentials.Options{
		Node: nodeFiles(cfg.RootDir, log), Recorder: recorder, Log: log,
		Providers: provider.New(provider.Options{Providers: plugins, Metrics: meter.Credentials, Log: log}),
	}), nil
}

// nodeFiles are the docker configurations of the node itself.
func nodeFiles(root string, log logr.Logger) *credentials.NodeFiles {
	dir, errDir := os.Getwd()
	home, errHome := os.UserHomeDir()
	if err := errors.Join(errDir, errHome); err != nil {
		log.V(2).Info("Some directories of docker configurations can't be determined", "err", err)
	}
	return credentials.NewNodeFiles(root, dir, home, log)
}

// checkMeter offers the metrics to the records of who may use which image.
type checkMeter struct{ *metrics.Images }

func (c checkMeter) Checked(r access.Result) { c.Images.Checked(string(r)) }

func collectionPolicy(k *v1beta1.KubeletConfiguration) gc.Policy {
	return gc.Policy{High: int(ptr.Deref(k.ImageGCHighThresholdPercent, 0)),
		Low:    int(ptr.Deref(k.ImageGCLowThresholdPercent, 0)),
		MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration}
}

func pullLimits(k *v1beta1.KubeletConfiguration) (parallel, perSecond, burst int) {
	return parallelPulls(k), int(ptr.Deref(k.RegistryPullQPS, 0)), int(k.RegistryBurst)
}

// parallelPulls is how many images are pulled at once; 0 for any number
// (KubeletConfiguration serializeImagePulls, maxParallelImagePulls).
func parallelPulls(k *v1beta1.KubeletConfiguration) int {
	if k.MaxParallelImagePulls != nil {
		return int(*k.MaxParallelImagePulls)
	}
	if k.SerializeImagePulls == nil || *k.SerializeImagePulls {
		return 1
	}
	return 0
}

func rotationLimits(k *v1beta1.KubeletConfiguration) (maxSize int64, maxFiles, workers int, interval time.Duration) {
	maxSize, _ = validation.ContainerLogMaxBytes(k) // it has been validated
	return maxSize, int(*k.ContainerLogMaxFiles), int(*k.ContainerLogMaxWorkers), k.ContainerLogMonitorInterval.Duration
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

// apiServer is the agent's side of a cluster, or what stands in for it where there is none.
type apiServer interface {
	Run(context.Context) error
	SetLimits(*v1beta1.KubeletConfiguration)
	PodsChanged()

	// Reviewer is who is asked about users; nil if nobody can be.
	Reviewer() secure.Reviewer
	// IssuedCertificate is the HTTPS server's, of the cluster; nil if the cluster isn't asked for it.
	IssuedCertificate() func() *tls.Certificate
	// Finder finds what pods refer to.
	Finder() object.Finder
	view.Cluster
}

// alone is the side of a cluster that isn't there.
type alone struct {
	objects object.Finder
	runtime *health.State
	healthy func(time.Time) error
}

// Conditions are those that the node's object would have in a cluster.
func (a alone) Conditions() []v1.NodeCondition {
	var r nodeobject.Report
	if r.NotReady = a.runtime.NotReady(); len(r.NotReady) > 0 {
		return r.Status().Conditions
	}
	if err := a.healthy(time.Now()); err != nil {
		r.NotReady = []string{err.Error()}
	}
	return r.Status().Conditions
}

func (a alone) Finder() object.Finder { return a.objects }

func (alone) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (alone) SetLimits(*v1beta1.KubeletConfiguration) {}

func (alone) PodsChanged() {}

func (alone) Reviewer() secure.Reviewer { return nil }

func (alone) Problems() []pod.Problem { return nil }

func (alone) ProblemsChanged() (<-chan struct{}, func()) { return nil, func() {} }

func (alone) IssuedCertificate() func() *tls.Certificate { return nil }

// joins reports whether an agent is part of a cluster. One that is to stop all pods, or to end once they run, isn't.
func joins(cfg *config.Config, o Options) bool {
	return cfg.Kubeconfig != "" && !o.StopAll && o.Once == nil
}

// alonePoll is how often the runtime is asked for its conditions where only the commands show them.
const alonePoll = 20 * time.Second

// statusPoll is how often the runtime is asked for its conditions.
func statusPoll(cfg *config.Config, o Options) time.Duration {
	if !joins(cfg, o) {
		return alonePoll
	}
	return cfg.Kubelet.NodeStatusUpdateFrequency.Duration
}

func newCluster(cfg *config.Config, o Options, host *node, runtime *health.State, seen *observed.Store,
	merger *desired.Merger, statuses *podstatus.Store, recorded events.Node, objects object.Finder,
	changed func(...pod.Object), dirs rootdir.Layout, meter *metrics.Metrics, log logr.Logger) (apiServer, error) {
	if !joins(cfg, o) {
		return alone{objects, runtime, seen.Healthy}, nil
	}
	info, err := cluster.Machine("/", host.forAdmission.Kernel, cfg.KubeletVersion)
	if err != nil {
		return nil, err
	}
	return cluster.New(cluster.Config{Node: cfg, Facts: host.facts, Runtime: runtime, Info: info, Healthy: seen.Healthy,
		Desired: merger, Statuses: statuses, Observed: seen, Events: recorded, Objects: objects,
		ObjectsChanged: changed,
		PodsDir:        dirs.Pods(), Known: filepath.Join(dirs.Checkpoints(), "apiserver.jsonl"),
		Meter:             meter.APIClient,
		ClientCertificate: meter.Certificates.Client, ServingCertificate: meter.Certificates.Serving, Log: log})
}

// volumePlugins are asked in this order; the last one takes, and refuses, what is left.
func volumePlugins(images volumeImages, meter *usage.Meter, allocatable func() v1.ResourceList,
	log logr.Logger) []volume.Plugin {
	return []volume.Plugin{
		plugins.NewEmptyDir(plugins.Config{MemoryLimit: cgroup.MemoryLimit, Quotas: meter, Log: log}),
		objectfiles.NewConfigMap(),
		objectfiles.NewSecret(),
		objectfiles.NewDownwardAPI(allocatable),
		objectfiles.NewProjected(allocatable),
		plugins.HostPath{},
		plugins.LocalVolume{},
		plugins.NewImageVolume(images),
		plugins.Unsupported{},
	}
}

// newSampler makes what samples what pods and the node use.
func newSampler(cfg *config.Config, began time.Time, host *node, seen *observed.Store, volumes *manager.Manager,
	filesystems *usage.StatsReader, layers *storagelimits.ContainerLayers, disks *usage.Meter, conn *cri.Conn,
	log logr.Logger) *stats.Sampler {
	k := &cfg.Kubelet
	system := map[string]string{}
	for name, group := range map[string]string{statsapi.SystemContainerKubelet: cmp.Or(k.KubeletCgroups, cgroup.Own()),
		statsapi.SystemContainerMisc: k.SystemCgroups, statsapi.SystemContainerRuntime: cfg.RuntimeCgroups} {
		if group != "" {
			system[name] = path.Join("/", group)
		}
	}
	return stats.New(stats.Config{Node: cfg.NodeName, Started: began, Groups: host.cgroups, Observed: seen,
		Volumes: volumes, FileSystems: filesystems,
		Layers: layers, Meter: disks, Runtime: conn, VolumesEvery: k.VolumeStatsAggPeriod.Duration,
		RootDir: cfg.RootDir, Logs: k.PodLogsDir, Memory: host.capacity.Memory, Swap: host.capacity.Swap,
		SystemGroups: system, Log: log.WithName("stats")})
}

// statsPages are what is served of statistics, by path.
func statsPages(s *stats.Sampler, machine *server.MachineReader, meter *metrics.Metrics,
	log logr.Logger) map[string]http.Handler {
	return map[string]http.Handler{
		"/stats/summary": server.Summary(log.WithName("server"), s),
		"/metrics/cadvisor": metrics.HandlerOf(s.ContainerMetrics(func() (stats.Machine, error) {
			i, err := machine.Info()
			if err != nil {
				return stats.Machine{}, err
			}
			return stats.Machine{Cores: i.NumCores, PhysicalCores: i.NumPhysicalCores, Sockets: i.NumSockets,
				Memory: i.MemoryCapacity, Swap: i.SwapCapacity,
				BootID: i.BootID, MachineID: i.MachineID, SystemUUID: i.SystemUUID}, nil
		})),
		"/metrics/resource": metrics.HandlerOf(s.ResourceMetrics()),
		"/metrics/probes":   meter.ProbesHandler(),
		"/metrics/slis":     meter.Checks.Handler(),
	}
}

// checks are what /healthz looks at: things that a restart of the agent might fix,
// or that keep it from its work.
func checks(pool *worker.Pool, seen *observed.Store, runtime *health.State, meter *metrics.Checks) []server.Check {
	list := []server.Check{
		{Name: "ping", Func: func(context.Context) error { return nil }},
		{Name: "syncloop", Func: func(context.Context) error {
			if pool.Heartbeat().IsZero() {
				return fmt.Errorf("waiting for container runtime: its pods aren't known yet: %s",
					runtime.Info().Message)
			}
			return pool.Healthy(time.Now())
		}},
		{Name: "pleg", Func: func(context.Context) error { return seen.Healthy(time.Now()) }},
		{Name: "runtime", Func: runtime.Check},
	}
	for i := range list {
		name, check := list[i].Name, list[i].Func
		list[i].Func = func(ctx context.Context) error {
			err := check(ctx)
			meter.Checked(name, err)
			return err
		}
	}
	return list
}

// ownNames returns the node's names and addresses: the configuration's, the machine's and those of the board of facts.
func ownNames(cfg *config.Config, facts *nodefacts.Board) func() []string {
	return func() []string {
		names := []string{cfg.NodeName}
		if host, err := os.Hostname(); err == nil {
			names = append(names, host)
		}
		for _, ip := range cfg.NodeIPs {
			names = append(names, ip.String())
		}
		for _, a := range facts.Now().Addresses {
			names = append(names, a.Address)
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
}

// listeners are the addresses that are served. certs is the directory of the agent's own certificate.
func listeners(cfg *config.Config, certs string, names func() []string, meter *metrics.Metrics, api nodeapi.Config,
	inCluster apiServer, tracer trace.TracerProvider) ([]server.Listener, error) {
	api.InCluster = cfg.Kubeconfig != ""
	var list []server.Listener
	if cfg.Healthz.Port() != 0 {
		list = append(list, server.Listener{Name: "healthz", Addr: cfg.Healthz,
			Setting: "healthzPort in the file of --config", Names: names, Handler: api.Health})
	}
	if cfg.ReadOnly.Port() != 0 {
		list = append(list, server.Listener{Name: "read-only", Addr: cfg.ReadOnly,
			Setting: "readOnlyPort in the file of --config", Names: names,
			Handler: meter.HTTP.ReadOnly(server.NewReadOnly(api.Log, api.Sources))})
	}
	if cfg.HTTPS.Port() == 0 {
		return list, nil
	}
	https, err := secureListener(cfg, certs, meter, api, inCluster, tracer)
	return append(list, https), err
}

// secureListener is the HTTPS server's.
func secureListener(cfg *config.Config, certs string, meter *metrics.Metrics, api nodeapi.Config, inCluster apiServer,
	tracer trace.TracerProvider) (server.Listener, error) {
	k, log := &cfg.Kubelet, api.Log
	api.Debugging, api.SystemLogs = ptr.Deref(k.EnableDebuggingHandlers, true),
		ptr.Deref(k.EnableSystemLogHandler, true)
	api.Profiling, api.DebugFlags = ptr.Deref(k.EnableProfilingHandler, true),
		ptr.Deref(k.EnableDebugFlagsHandler, true)
	api.SystemLogQuery, api.HostLogs = ptr.Deref(k.EnableSystemLogQuery, false), "/var/log"
	if !cfg.Gates.Enabled(gates.ContainerCheckpoint) {
		api.Checkpoints = ""
	}
	var ips []net.IP
	for _, ip := range cfg.NodeIPs {
		ips = append(ips, ip.AsSlice())
	}
	return secure.Listener(secure.Config{
		Addr: cfg.HTTPS, CipherSuites: k.TLSCipherSuites, Curves: k.TLSCurvePreferences, MinVersion: k.TLSMinVersion,
		Certificate: secure.NewCertificate(
			secure.CertConfig{CertFile: k.TLSCertFile, KeyFile: k.TLSPrivateKeyFile, Dir: certs,
				Issued: inCluster.IssuedCertificate(), Name: cfg.NodeName, IPs: ips, Log: log}),
		Access: secure.NewAccess(secure.AccessConfig{
			Node: cfg.NodeName, ClientCAFile: k.Authentication.X509.ClientCAFile,
			Anonymous:   ptr.Deref(k.Authentication.Anonymous.Enabled, false),
			Tokens:      ptr.Deref(k.Authentication.Webhook.Enabled, false),
			TokensFor:   k.Authentication.Webhook.CacheTTL.Duration,
			AlwaysAllow: k.Authorization.Mode == v1beta1.KubeletAuthorizationModeAlwaysAllow,
			AllowedFor:  k.Authorization.Webhook.CacheAuthorizedTTL.Duration,
			RefusedFor:  k.Authorization.Webhook.CacheUnauthorizedTTL.Duration,
			Reviewer:    inCluster.Reviewer(), Log: log}),
		Routes: nodeapi.Routes(api), Meter: meter.HTTP, Tracer: tracer, Log: log,
	})
}

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

// measuredBy is how the metrics call a way to find out what is in a directory.
func measuredBy(quota bool) string {
	if quota {
		return metrics.SourceQuota
	}
	return metrics.SourceDu
}

// collectPods has pods and events counted when metrics are scraped. alone says that there is no API server.
func collectPods(m *metrics.Metrics, merger *desired.Merger, seen *observed.Store, statuses *podstatus.Store,
	recorder *events.Recorder, logs *layout.Dirs, alone bool) {
	m.CollectPods(func() metrics.PodCounts {
		return countPods(merger.Current().Pods, seen.All(), statuses.List(), alone)
	})
	m.CollectEvents(func() metrics.EventStats { return metrics.EventStats(recorder.Stats()) })
	m.CollectLogs(func() []metrics.LogUse {
		var list []metrics.LogUse
		for _, e := range statuses.List() {
			for container, bytes := range logs.Used(
				layout.Pod{Namespace: e.Pod.Namespace, Name: e.Pod.Name, UID: e.Pod.UID}) {
				list = append(list, metrics.LogUse{UID: string(e.Pod.UID), Namespace: e.Pod.Namespace, Pod: e.Pod.Name,
					Container: container, Bytes: bytes})
			}
		}
		return list
	})
}

// countPods counts the pods that sources want, what the runtime has, and pods that have a worker.
func countPods(pods []*pod.Desired, seen []*pod.Observed, entries []*podstatus.Entry, alone bool) metrics.PodCounts {
	c := metrics.PodCounts{Desired: map[bool]int{}, Active: map[bool]int{}, Containers: map[pod.ContainerState]int{},
		PendingResizes: map[string]int{}, Working: map[metrics.WorkerState]int{}}
	wanted := map[types.UID]bool{}
	for _, d := range pods {
		wanted[d.Pod.UID] = true
		c.Desired[d.Source.Local()]++
	}
	for _, o := range seen {
		if len(o.Sandboxes) > 0 && o.Sandboxes[0].State == pod.SandboxReady {
			c.RunningPods++
		}
		for i := range o.Containers {
			c.Containers[o.Containers[i].State]++
		}
	}
	for _, e := range entries {
		w := metrics.WorkerState{Lifecycle: "sync", Orphan: !wanted[e.Pod.UID], Static: e.Report.Desired.Source.Local()}
		switch {
		case pod.Terminal(e.Pod.Status.Phase) != "":
			w.Lifecycle = "terminated"
		case e.Report.Stopping != "":
			w.Lifecycle = "terminating"
		}
		c.Working[w]++
		if w.Lifecycle != "terminated" && !w.Orphan {
			c.Active[w.Static]++
		}
		if w.Static && !alone {
			c.Mirrors++ // it is there until the pod has ended
		}
		c.EphemeralContainers += len(e.Pod.Spec.EphemeralContainers)
		for i := range e.Pod.Status.Conditions {
			switch o := &e.Pod.Status.Conditions[i]; o.Type {
			case v1.PodResizeInProgress:
				c.InProgressResizes++
			case v1.PodResizePending:
				c.PendingResizes[strings.ToLower(o.Reason)]++
			}
		}
	}
	return c
}

// collectVolumes has volumes, and what is on disk, counted when metrics are scraped.
func collectVolumes(m *metrics.Metrics, volumes *manager.Manager, stats *usage.StatsReader,
	limits *storagelimits.Manager) {
	m.CollectVolumes(func() metrics.VolumeCounts {
		desired, actual := volumes.Totals()
		return metrics.VolumeCounts{Desired: desired, Actual: actual}
	})
	m.CollectVolumeStats(func() []metrics.VolumeStats {
		var list []metrics.VolumeStats
		for _, s := range stats.Stats() {
			list = append(list, metrics.VolumeStats(s))
		}
		return list
	})
	m.CollectPodDisk(func() []metrics.PodDisk {
		var list []metrics.PodDisk
		for _, u := range limits.Uses() {
			list = append(list, metrics.PodDisk{Namespace: u.Namespace, Pod: u.Name, UID: string(u.UID),
				Bytes: u.Used.Bytes, Inodes: u.Used.Inodes})
		}
		return list
	})
}
