package agent

import (
	"context"
	"net"
	"os"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/gates"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/server"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/server/local/view"
	"github.com/deckhand-node/deckhand/internal/server/nodeapi"
	"github.com/deckhand-node/deckhand/internal/server/podresources"
	"github.com/deckhand-node/deckhand/internal/server/secure"
)

// servingParts answer the requests of local commands, of the API server and of other programs.
type servingParts struct {
	shown     view.View
	api       *local.Server
	web       *server.Server
	resources *podresources.Server
	announcer *desired.Announcer
}

func newServing(b *foundation, r *runtimeParts, d *desiredParts, i *imageParts, s *resourceParts, v *volumeParts,
	inCluster apiServer, w *workerParts) (*servingParts, error) {
	log := b.log
	shown := view.New(view.Config{Node: b.cfg.NodeName, Started: b.began, Desired: d.Merger, Runs: d.runs,
		Stops:   w.stops,
		Stopper: w.stopper, Additions: w.additions, Observed: r.seen, Runtime: r.state,
		RuntimeProblems: r.engine.Problems, Reload: w.reporting.failure.get,
		NodeProblems: func() []pod.Problem { return append(b.unwatched(), s.cpus.Problems()...) },
		Cluster:      inCluster, Statuses: b.statuses, Events: b.history, Probes: w.probes, Journal: w.diaries,
		Facts: r.host.facts.Now, Capacity: r.host.capacity,
		Holdings: s.allocations.Holdings, Devices: s.allocations.Health, CPUs: s.cpus.Status, Pulls: i.images.Pulls,
		Volumes: v.volumes, Forgotten: func() { b.wakes.objectsChanged(pod.Object{Kind: pod.CSIDriver}) },
		Disks: v.sampler, Hanging: b.writes.Hanging, Tasks: v.sampler.Tasks,
		Pressure: w.pressure.Status, Thrashing: thrashing,
		Evictions: w.pressure.Transcript,
		Rank:      w.pressure.Rank, Current: w.reloader.Current, Exposures: d.Exposures, Modules: b.runner.States,
		MissingPullSecrets: func(ctx context.Context, p *pod.Desired) []string {
			return i.keyring.MissingSecrets(ctx, p.Pod, inCluster.Finder().For(p))
		}})
	served := pages(b.cfg.Flags, w.reloader, b.began)
	machine := server.NewMachineReader("/")
	measured := statsPages(v.sampler, machine, b.meter, log)
	offered := nodeapi.Config{
		Sources: server.Sources{Pods: b.statuses, Running: r.seen, Machine: machine,
			Health:  server.Health(checks(w.pool, r.seen, r.state, b.meter.Checks)...),
			Metrics: b.meter.Handler(), Stats: measured, Pages: served},
		Statuses: b.statuses, Observed: r.seen, Synced: d.pods.Synced, Logs: r.logs, Runtime: r.conn,
		Checkpoints: b.dirs.Checkpoints(), SetVerbosity: levelSetter(b.o.SetVerbosity, w.reloader),
		Log: log.WithName("server")}
	listening, err := listeners(b, ownNames(b.cfg, r.host.facts), offered, inCluster)
	if err != nil {
		return nil, err
	}
	return &servingParts{shown: shown,
		api: local.NewServer(shown, i.images, r.logs, nodeapi.Sessions(offered), localPages(served, measured),
			log.WithName("local")),
		web: server.New(log.WithName("server"), listening...),
		resources: podresources.New(podresources.Config{Dir: b.dirs.PodResources(), Statuses: b.statuses,
			Devices: s.assigned, CPUs: s.cpus, Ready: b.workersReady, Meter: b.meter.PodResources,
			Log: log.WithName("podresources")}),
		announcer: desired.NewAnnouncer(d.Merger, b.recorder, func(p *v1.Pod) []string {
			return translate.UnsupportedFields(p, r.engine.Traits().NoSELinux)
		}, log.WithName("desired")),
	}, nil
}

// ownNames returns a function that lists the node's names and addresses. They come from the configuration, the
// hostname and the node facts.
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

// listeners returns the enabled TCP listeners: healthz, read-only and HTTPS.
func listeners(b *foundation, names func() []string, api nodeapi.Config,
	inCluster apiServer) ([]server.Listener, error) {
	cfg := b.cfg
	api.InCluster = cfg.Kubeconfig != ""
	var list []server.Listener
	if cfg.Healthz.Port() != 0 {
		list = append(list, server.Listener{Name: "healthz", Addr: cfg.Healthz,
			Setting: "healthzPort in the file of --config", Names: names, Handler: api.Health})
	}
	if cfg.ReadOnly.Port() != 0 {
		list = append(list, server.Listener{Name: "read-only", Addr: cfg.ReadOnly,
			Setting: "readOnlyPort in the file of --config", Names: names,
			Handler: b.meter.HTTP.ReadOnly(server.NewReadOnly(api.Log, api.Sources))})
	}
	if cfg.HTTPS.Port() == 0 {
		return list, nil
	}
	https, err := secureListener(b, api, inCluster)
	return append(list, https), err
}

// secureListener returns the listener of the HTTPS server.
func secureListener(b *foundation, api nodeapi.Config, inCluster apiServer) (server.Listener, error) {
	cfg, k, log := b.cfg, b.kubelet(), api.Log
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
			secure.CertConfig{CertFile: k.TLSCertFile, KeyFile: k.TLSPrivateKeyFile, Dir: b.dirs.Certs,
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
		Routes: nodeapi.Routes(api), Meter: b.meter.HTTP, Tracer: b.traces.provider(), Log: log,
	})
}
