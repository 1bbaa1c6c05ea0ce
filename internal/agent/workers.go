package agent

import (
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/allocation"
	"github.com/deckhand-node/deckhand/internal/dns"
	"github.com/deckhand-node/deckhand/internal/effects"
	"github.com/deckhand-node/deckhand/internal/events"
	"github.com/deckhand-node/deckhand/internal/handler"
	"github.com/deckhand-node/deckhand/internal/journal"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/observed"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/podlogdirs"
	"github.com/deckhand-node/deckhand/internal/podlogs"
	"github.com/deckhand-node/deckhand/internal/podstate"
	"github.com/deckhand-node/deckhand/internal/probe"
	"github.com/deckhand-node/deckhand/internal/termination"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// buildWorkers makes the observed state, what comes to verdicts, the effects, and
// the workers between them.
func (a *Agent) buildWorkers() error {
	k := &a.cfg.Kubelet
	wake := func(uid types.UID) { a.pool.Wake(uid) }
	seen := func(uid types.UID) {
		a.pool.Wake(uid)
		a.remains.changed()
		a.limits.Changed()
	}
	a.runtime = newRuntimeState(a.conn)
	a.logs = podlogs.New(k.PodLogsDir, a.log.WithName("logs"))
	messages := termination.New(a.dirs.Pods(), a.logs, a.log.WithName("termination"))
	a.observed = observed.New(a.conn, observed.Options{Wake: seen, Log: a.log.WithName("observed"), Observer: plegMeter{a.metrics.PLEG, a.runtime}, Message: messages.Message})
	hostIPs := make([]string, len(a.cfg.NodeIPs))
	for i, ip := range a.cfg.NodeIPs {
		hostIPs[i] = ip.String()
	}
	records := podstate.New(filepath.Join(a.dirs.Checkpoints(), "pods"))
	a.grants = allocation.New(allocation.Config{Store: records, Allocatable: a.node.allocatable(), Wake: wake, Log: a.log.WithName("allocation")})
	handlers := handler.New(handler.Config{Exec: execer{a.conn}, Log: a.log.WithName("handler")})
	a.probes = probe.New(probe.Options{Handler: tries{handlers}, Recorder: a.events, Meter: probeMeter{a.metrics.Probes}, Wake: wake, Log: a.log.WithName("probe")})
	a.journal = journal.New(journal.Config{Dir: filepath.Join(a.cfg.RootDir, "journal"), Limit: a.cfg.JournalBytes, Version: version(), Log: a.log.WithName("journal")})
	names, err := dns.New(dns.Config{ClusterDNS: k.ClusterDNS, ClusterDomain: k.ClusterDomain, ResolvConf: ptr.Deref(k.ResolverConfig, ""),
		TellNode: a.tellNode, Log: a.log.WithName("dns")})
	if err != nil {
		return err
	}
	a.buildVolumes()
	a.buildLimits()
	dead := &lifecycle.Dead{PerContainer: a.cfg.DeadContainers.PerContainer, MinAge: a.cfg.DeadContainers.MinAge}
	c := worker.Config{
		Desired: newWanted(a.merger), Observed: settledState{a.observed, a.settled}, Effects: a.buildEffects(hostIPs, handlers, names, records),
		Probes: a.probes, Allocations: a.grants, Journal: diary{a.journal}, Statuses: a.status, Recorder: a.events,
		Meter: podMeter{a.metrics.Pods},
		Node: func() lifecycle.Node {
			name, _, _, _ := a.runtime.now()
			return lifecycle.Node{HostIPs: hostIPs, RuntimeName: name, FirstBackoff: firstBackoff(a.cfg), MaxBackoff: maxBackoff(&a.reloader.Current().Kubelet), Dead: dead,
				ImagesAt: a.imagesAt.time(), RoomAt: a.grants.RoomAt(), ObjectsAt: a.objectsAt.time()}
		},
		SparesOthers: !a.cfg.Standalone,
		Ending:       a.limits.Ending,
		Gone:         a.limits.Forget,
		Surplus:      func(uid types.UID) []string { return a.remains.keeper.Surplus(uid) },
		Resync:       k.SyncFrequency.Duration, Log: a.log.WithName("worker"),
	}
	if a.options.between != nil {
		a.options.between(&c)
	}
	a.pool = worker.New(c)
	a.remains = a.newRemains()
	return nil
}

func (a *Agent) buildEffects(hostIPs []string, handlers *handler.Handlers, names *dns.Configurer, records *podstate.Store) *effects.Runner {
	k := &a.cfg.Kubelet
	a.logDirs = podlogdirs.New(podlogdirs.Config{PodLogsDir: k.PodLogsDir, LinksDir: a.cfg.ContainerLogLinksDir})
	return effects.New(effects.Config{
		Runtime: a.conn,
		Facts:   a.observed,
		Volumes: podVolumes{a.volumes, a.claims},
		Cgroups: a.node.cgroups,
		Users:   a.node.users,
		Devices: noDevices{},
		Objects: a.objects,
		DNS:     names,
		Images:  a.images,
		Logs:    a.logDirs,
		Meter:   startMeter{a.metrics.Pods, a.metrics.Garbage, a.metrics.Volumes},
		Tasks:   a.lostTasks(),
		Hooks:   handlers, Recorder: a.events, Allocations: grants{a.grants, a.lookAtVolumes}, Records: records,
		Settings: a.node.settings, Features: a.runtime.features,
		HostIPs: hostIPs, Allocatable: a.node.allocatable, Parallel: parallelStarts, Log: a.log.WithName("effects"),
	})
}

// tellNode records an event about the node.
func (a *Agent) tellNode(e pod.Event) {
	a.events.Add(events.Entry{Type: e.Type, Reason: e.Reason, Message: e.Message,
		Object: v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: a.cfg.NodeName, UID: types.UID(a.cfg.NodeName)}})
}

// restoreGrants reads what resources pods had when the agent last ran. What can't
// be read is admitted anew: no pod is kept from running for that.
func (a *Agent) restoreGrants() error {
	if err := a.grants.Restore(); err != nil {
		a.log.Error(err, "Some records of granted resources can't be used; those pods are admitted anew")
	}
	return nil
}
