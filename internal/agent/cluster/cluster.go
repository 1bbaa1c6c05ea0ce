// Package cluster is the part of an agent that only runs in a cluster: it registers the node at the API server, and
// publishes the state of the node and its pods.
package cluster

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/certificates"
	"github.com/deckhand-node/deckhand/internal/cluster/clusterobjects"
	"github.com/deckhand-node/deckhand/internal/cluster/csinode"
	"github.com/deckhand-node/deckhand/internal/cluster/eventsink"
	"github.com/deckhand-node/deckhand/internal/cluster/lastknown"
	"github.com/deckhand-node/deckhand/internal/cluster/mirror"
	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/cluster/nodeobject"
	"github.com/deckhand-node/deckhand/internal/cluster/podobject"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/apisource"
	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/report/events"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/runtime/health"
)

// Config contains the inputs of a Cluster.
type Config struct {
	// Node is the node's configuration. It names a kubeconfig.
	Node *config.Config
	// Facts are the node facts; the Node object is the source of some of them.
	Facts   *nodefacts.Board
	Runtime *health.State
	// Info describes the machine and its programs, without the runtime's version.
	Info v1.NodeSystemInfo
	// Healthy returns the reason for which the node can't run pods, other than the state of the runtime; nil if
	// there is none.
	Healthy func(now time.Time) error
	// Desired receives the API server's pods, and lists the pods that can't run. Statuses has the statuses of all
	// pods.
	Desired  *desired.Merger
	Statuses *podstatus.Store
	// Observed is the runtime's state of pods; the caller calls PodsChanged after it has changed.
	Observed Observed
	// Events are the events of the node and its pods, which are sent to the API server. Cluster also records events
	// of the node.
	Events events.Node
	// Objects finds the objects that pods of other sources refer to. ObjectsChanged is called with objects of the
	// API server that have changed, so that their users read them again.
	Objects        object.Finder
	ObjectsChanged func(...pod.Object)
	// Files reports changes of files.
	Files *filewatch.Instance
	// PodsDir is the parent of the pods' directories. Known is the path of the file that stores the API server's
	// last objects.
	PodsDir, Known string
	// DiskFreed wakes parts whose writes failed when a disk can be written again; nil if nothing finds that out.
	DiskFreed *wake.Group
	Meter     Meter
	// ClientCertificate and ServingCertificate are the metrics of the node's certificates.
	ClientCertificate, ServingCertificate certificates.Meter
	Log                                   logr.Logger
}

// Observed is the runtime's state of pods. Listed reports whether it is complete.
type Observed interface {
	All() []*pod.Observed
	Listed() bool
}

// Meter counts requests and events to the API server.
type Meter interface {
	apiclient.Meter
	eventsink.Meter
}

// Cluster is the part of the agent that connects the node to a cluster.
type Cluster struct {
	conf   Config
	client *apiclient.Client
	node   *nodeobject.Node
	// csi is the object with the node's CSI drivers.
	csi   *csinode.Object
	lease *nodeobject.Lease
	// pods caches the API server's pods of this node; source reads the cache, publisher writes the pods' statuses.
	pods      *podobject.Cache
	source    *apisource.Source
	publisher *podobject.Publisher
	mirrors   *mirror.Mirrors
	events    *eventsink.Sink
	objects   *clusterobjects.Finder
	// known stores the API server's last objects for when the API server can't be reached.
	known *lastknown.Store
	// renewers keep the node's certificates valid. serving is the renewer of the HTTPS server's certificate, nil unless
	// the cluster issues that certificate.
	renewers []*certificates.Renewer
	serving  *certificates.Serving
	// changed wakes the computation of the node's status. reached wakes the parts that repeat failed requests, once
	// the API server can be reached.
	changed wake.Slot
	reached wake.Group
	// troubled wakes subscribers after Problems have changed.
	troubled wake.Group
}

// driversSettled is how long after the agent's start CSI drivers stay in the API server's objects if they haven't
// registered yet. Without a driver's entry, pods that use the driver would be scheduled to other nodes.
const driversSettled = time.Minute

// New returns a Cluster. It sends no requests before the modules run.
func New(c Config) (*Cluster, error) {
	cfg, k := c.Node, &c.Node.Kubelet
	calls, events := Rates(k)
	lease := pod.Seconds(k.NodeLeaseDurationSeconds)
	build := buildinfo.Get()
	talk := apiclient.Config{
		Kubeconfig: cfg.Kubeconfig, Awaited: cfg.BootstrapKubeconfig != "", ContentType: k.ContentType,
		UserAgent:     apiclient.UserAgent(cfg.KubeletVersion, build.Commit),
		LeaseDuration: lease, Calls: calls, Events: events, Files: c.Files, Meter: c.Meter,
		Log: c.Log.WithName("apiserver"),
	}
	if k.RotateCertificates {
		talk.Rotated = certificates.ClientFile(cfg.CertDir)
	}
	client, err := apiclient.New(talk)
	if err != nil {
		return nil, err
	}
	owned, identity := nodeobject.Fields, nodeobject.Identity{
		Name: cfg.NodeName, Labels: cfg.NodeLabels, Arch: c.Info.Architecture, Taints: k.RegisterWithTaints,
		ProviderID:    k.ProviderID,
		ExternalCloud: cfg.ExternalCloud, ControllerAttaches: ptr.Deref(k.EnableControllerAttachDetach, true),
	}
	var given []string
	for _, ip := range cfg.NodeIPs {
		given = append(given, ip.String())
	}
	identity.ProvidedIPs = strings.Join(given, ",")
	if len(given) == 0 {
		owned |= nodefacts.HostIPs
	}
	facts, err := c.Facts.Writer("the node's object", owned)
	if err != nil {
		return nil, err
	}
	csiFacts, err := c.Facts.Writer("the CSINode object", csinode.Fields)
	if err != nil {
		return nil, err
	}
	cl := &Cluster{conf: c, client: client, known: lastknown.New(c.Known, cfg.OfflineSecretsKey, client),
		changed: wake.NewSlot()}
	if c.DiskFreed != nil {
		cl.known.DiskFreed = c.DiskFreed
	}
	again := func() <-chan struct{} {
		woken, _ := cl.reached.Subscribe() // never unsubscribed: used as long as the Cluster
		return woken
	}
	recovered := func() <-chan struct{} {
		woken, _ := client.Recovered()
		return woken
	}
	woken, _ := client.Subscribe()
	expires := func(message string) {
		c.Events.NodeEvent(v1.EventTypeWarning, pod.ReasonCertificateExpires, message)
	}
	cl.renewers = append(cl.renewers, certificates.NewClient(certificates.ClientConfig{
		Node: cfg.NodeName, Dir: cfg.CertDir, Kubeconfig: cfg.Kubeconfig, Bootstrap: cfg.BootstrapKubeconfig,
		Rotate:   k.RotateCertificates,
		Requests: certificates.RequestsOf(client), AsBootstrap: bootstrap(talk, cfg.BootstrapKubeconfig).ask,
		Refused: cl.refused, Changed: woken, Meter: c.ClientCertificate, Troubled: cl.troubled.Wake,
		Expires: expires, Log: c.Log.WithName("certificates"),
	}))
	if k.ServerTLSBootstrap {
		addresses, _ := c.Facts.Watch(nodefacts.Addresses) // never unsubscribed: used as long as the Cluster
		cl.serving = certificates.NewServing(certificates.ServingConfig{
			Node: cfg.NodeName, Dir: cfg.CertDir, Addresses: func() []v1.NodeAddress { return c.Facts.Now().Addresses },
			Requests: certificates.RequestsOf(client), Changed: addresses, Meter: c.ServingCertificate,
			Troubled: cl.troubled.Wake, Expires: expires, Log: c.Log.WithName("certificates"),
		})
		cl.renewers = append(cl.renewers, cl.serving.Renewer)
	}
	inUse, _ := c.Facts.Watch(nodefacts.InUse) // never unsubscribed: used as long as the Cluster
	cl.node = nodeobject.New(nodeobject.Config{
		Identity: identity, Register: ptr.Deref(k.RegisterNode, true), API: nodeobject.NodesOf(client),
		Status: cl.status, Changed: cl.changed,
		Drivers: func() []nodefacts.CSIDriver { return c.Facts.Now().CSIDrivers }, Settled: driversSettled,
		Volumes: nodeobject.Volumes{InUse: func() []v1.UniqueVolumeName { return c.Facts.Now().InUse }, Changed: inUse,
			Reached: recovered()},
		Every: k.NodeStatusReportFrequency.Duration, Facts: facts, Known: cl.known, Reached: recovered(),
		Event: c.Events.Event, Log: c.Log.WithName("node"),
	})
	cl.csi = csinode.New(csinode.Config{
		Node: cfg.NodeName, Board: c.Facts, Facts: csiFacts, API: csinode.CSINodesOf(client), Settled: driversSettled,
		Reached: recovered(), Log: c.Log.WithName("csi"),
	})
	cl.events = eventsink.New(
		eventsink.Config{Ring: c.Events.Recorder, API: eventsink.EventsOf(client), Node: cfg.NodeName,
			Reached: again(), Meter: c.Meter, Log: c.Log.WithName("events")})
	cl.lease = nodeobject.NewLease(
		nodeobject.LeaseConfig{Name: cfg.NodeName, Duration: lease, API: nodeobject.LeasesOf(client), Facts: c.Facts,
			Log: c.Log.WithName("lease")})
	objects := podobject.PodsOf(client, cfg.NodeName)
	cl.pods = podobject.NewCache(objects, c.Log.WithName("pods"))
	cl.source = apisource.New(
		apisource.Config{Objects: cl.pods, Sink: c.Desired, Known: cl.known, Reach: client.Subscribe,
			NodeUID: func() types.UID {
				return c.Facts.Now().UID
			}, Ask: cl.ask, Hold: cfg.HoldPodsFor, Event: c.Events.Event, Phase: phases(c.Statuses),
			Log: c.Log.WithName("desired")})
	cl.publisher = podobject.NewPublisher(
		podobject.PublisherConfig{Cache: cl.pods, Statuses: c.Statuses, Refusals: refusals{c.Desired},
			Reached: recovered(), Log: c.Log.WithName("pods")})
	cl.mirrors = mirror.New(
		mirror.Config{Node: cfg.NodeName, Facts: c.Facts, API: objects, Objects: cl.pods, Statuses: c.Statuses,
			Awaited: cl.awaited, Reached: recovered(), Log: c.Log.WithName("mirrors")})
	cl.objects = clusterobjects.New(clusterobjects.Config{
		API: client, Strategy: k.ConfigMapAndSecretChangeDetectionStrategy, Period: k.SyncFrequency.Duration,
		TTL:     func() time.Duration { return pod.Seconds(c.Facts.Now().ObjectTTL) },
		Changed: c.ObjectsChanged, Known: cl.known, StoredToken: storedTokens(c.PodsDir).read, Others: c.Objects,
	})
	return cl, nil
}

// refused reports whether the API server rejects the node's credentials.
func (c *Cluster) refused() bool {
	_, _, err := c.client.Reached()
	return apiclient.Refused(err)
}

// ask requests the UID of the Node object, which is empty if the object doesn't exist, and then the UIDs of the
// node's pods.
func (c *Cluster) ask(ctx context.Context) (node types.UID, pods []types.UID, err error) {
	n, err := nodeobject.NodesOf(c.client).Get(ctx, c.conf.Node.NodeName)
	switch {
	case err == nil:
		node = n.UID
	case !apierrors.IsNotFound(err):
		return "", nil, err
	}
	pods, err = podobject.UIDs(ctx, c.client, c.conf.Node.NodeName)
	return node, pods, err
}

// awaited reports whether a static pod of that name may exist on the node: a manifest defines it, the runtime still
// has it, or one of the two lists isn't complete.
func (c *Cluster) awaited(namespace, name string) bool {
	wanted := c.conf.Desired.Current()
	if !wanted.Synced || !c.conf.Observed.Listed() {
		return true
	}
	return slices.ContainsFunc(wanted.Pods, func(d *pod.Desired) bool {
		return d.Source.Local() && d.Pod.Namespace == namespace && d.Pod.Name == name
	}) || slices.ContainsFunc(c.conf.Observed.All(), func(o *pod.Observed) bool {
		return o.Namespace == namespace && o.Name == name && !o.Empty()
	})
}

// PodsChanged has to be called after the runtime's state of pods has changed.
func (c *Cluster) PodsChanged() { c.mirrors.Wake() }

// ClockChanged renews everything that other components compare with the clock, after the clock was set or the machine
// was suspended: the lease now, certificates and tokens when they are due according to the new time.
func (c *Cluster) ClockChanged() {
	c.lease.ClockChanged()
	for _, r := range c.renewers {
		r.ClockChanged()
	}
	c.objects.ClockChanged()
}

// Finder finds the objects that pods refer to, in the API server and in manifests.
func (c *Cluster) Finder() object.Finder { return c.objects }

// phases returns a function that returns a pod's phase according to this node's statuses; empty for a pod without a
// status.
func phases(s *podstatus.Store) func(types.UID) v1.PodPhase {
	return func(uid types.UID) v1.PodPhase {
		if e := s.Get(uid); e != nil {
			return e.Pod.Status.Phase
		}
		return ""
	}
}

// refusals lists the pods that can't run.
type refusals struct{ *desired.Merger }

func (r refusals) Refused() []pod.Refusal { return r.Current().Refused }

// Rates returns the rate limits of requests (kubeAPIQPS) and of events (eventRecordQPS). A rate of 0 or less is
// unlimited.
func Rates(k *v1beta1.KubeletConfiguration) (calls, events apiclient.Rate) {
	return apiclient.Rate{PerSecond: float64(ptr.Deref(k.KubeAPIQPS, 0)), Burst: int(k.KubeAPIBurst)},
		apiclient.Rate{PerSecond: float64(ptr.Deref(k.EventRecordQPS, 0)), Burst: int(k.EventBurst)}
}

// SetLimits changes the rate limits of requests and events.
func (c *Cluster) SetLimits(k *v1beta1.KubeletConfiguration) { c.client.SetRates(Rates(k)) }

// Reached reports whether the API server answers, since when, and if it doesn't answer, why.
func (c *Cluster) Reached() (ok bool, since time.Time, err error) { return c.client.Reached() }

// Problems lists the problems of the node's connection to the cluster: of the API server, its pods and the
// certificates.
func (c *Cluster) Problems() []pod.Problem {
	var list []pod.Problem
	if ok, since, err := c.client.Reached(); !ok && !since.IsZero() {
		list = append(list, pod.Problem{Source: pod.SourceAPI, Origin: c.conf.Node.Kubeconfig, Message: err.Error() +
			"; meanwhile what runs goes on" + waiting(c.conf.Statuses.List(), c.objects.Expired()), Since: since})
	}
	for _, p := range c.pods.Problems() {
		p.Origin = c.conf.Node.Kubeconfig
		list = append(list, p)
	}
	for _, r := range c.renewers {
		if p := r.Problem(); p.Message != "" {
			list = append(list, p)
		}
	}
	return list
}

// ProblemsChanged returns a channel that receives after Problems have changed. stop ends the subscription.
func (c *Cluster) ProblemsChanged() (changed <-chan struct{}, stop func()) {
	return c.troubled.Subscribe()
}

// Modules returns the modules that keep the Node object, the lease and the pods' objects up to date. They repeat
// failed requests; a failed request never ends a module.
func (c *Cluster) Modules() []modules.Module {
	list := []modules.Module{
		// The client is the first module, because modules stop in reverse order: the modules that send requests stop
		// before it.
		{Name: "API server", Start: c.start, Run: c.client.Run},
		{Name: "last known objects", Run: c.known.Run},
		{Name: "node object", Run: c.node.Run},
		{Name: "CSINode object", Run: c.csi.Run},
		{Name: "lease", Run: c.lease.Run},
		{Name: "pod objects", Run: c.pods.Run},
		{Name: "pods of the API server", Run: c.source.Run},
		{Name: "pod statuses", Run: c.publisher.Run},
		{Name: "events for the API server", Run: c.events.Run},
		{Name: "mirror pods", Run: c.mirrors.Run},
		{Name: "objects of pods", Run: c.objects.Run},
		{Name: "attachments of volumes", Run: func(ctx context.Context) error {
			return c.objects.FollowAttachments(ctx, c.conf.Facts, c.conf.Node.NodeName)
		}},
	}
	for _, r := range c.renewers {
		list = append(list, modules.Module{Name: "certificate " + r.Name(), Run: r.Run})
	}
	return append(list, modules.Module{Name: "node status", Run: c.follow})
}

// start records the agent's start, logs it, and reads the API server's objects that an earlier agent stored.
func (c *Cluster) start(context.Context) error {
	c.conf.Log.Info("Joins a cluster", "node", klog.KRef("", c.conf.Node.NodeName), "path", c.conf.Node.Kubeconfig)
	c.conf.Events.NodeEvent(v1.EventTypeNormal, pod.ReasonStarting, "Starting kubelet.")
	c.known.Open(c.conf.Node.NodeName)
	c.node.Restore()
	return nil
}

// follow wakes the computation of the node's status when one of its inputs may have changed, and every
// nodeStatusUpdateFrequency because some inputs don't report changes.
func (c *Cluster) follow(ctx context.Context) error {
	facts, stopFacts := c.conf.Facts.Watch(nodefacts.All)
	defer stopFacts()
	runtime, stopRuntime := c.conf.Runtime.Subscribe()
	defer stopRuntime()
	reached, stopReached := c.client.Subscribe()
	defer stopReached()
	pods, stopPods := c.pods.ProblemsChanged()
	defer stopPods()
	wanted, stopWanted := c.conf.Desired.Subscribe()
	defer stopWanted()
	every := time.NewTicker(c.conf.Node.Kubelet.NodeStatusUpdateFrequency.Duration)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-facts:
		case <-runtime:
		case <-every.C:
		case <-wanted:
			c.mirrors.Wake()
			continue
		case <-pods:
			c.troubled.Wake()
			continue
		case <-reached:
			c.troubled.Wake()
			if ok, _, _ := c.client.Reached(); ok {
				c.reached.Wake()
			}
			continue
		}
		c.changed.Wake()
	}
}

// Conditions implements view.Cluster.
func (c *Cluster) Conditions() []v1.NodeCondition { return c.status().Conditions }

// status computes the node's current status.
func (c *Cluster) status() v1.NodeStatus {
	facts, info, runtime := c.conf.Facts.Now(), c.conf.Info, c.conf.Runtime.Info()
	r := nodeobject.Report{
		Hostname: c.conf.Node.NodeName, HostIPs: facts.HostIPs, Info: info, Capacity: facts.Capacity,
		Allocatable:      facts.Allocatable,
		DeclaredFeatures: facts.DeclaredFeatures, Images: facts.Images,
		MaxImages: int(ptr.Deref(c.conf.Node.Kubelet.NodeStatusMaxImages, -1)),
		NotReady:  c.conf.Runtime.NotReady(), Port: int32(c.conf.Node.HTTPS.Port()),
		Pressure: facts.Pressure, StorageFailed: facts.StorageFailed,
	}
	if runtime.Version != "" {
		r.Info.ContainerRuntimeVersion = runtime.Name + "://" + runtime.Version
	}
	if can := c.conf.Runtime.Features(); can != nil {
		r.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &can.SupplementalGroupsPolicy}
		for name, h := range can.Handlers {
			r.RuntimeHandlers = append(r.RuntimeHandlers,
				v1.NodeRuntimeHandler{Name: name, Features: &v1.NodeRuntimeHandlerFeatures{
					RecursiveReadOnlyMounts: &h.RecursiveReadOnlyMounts, UserNamespaces: &h.UserNamespaces}})
		}
		slices.SortFunc(r.RuntimeHandlers, func(a, b v1.NodeRuntimeHandler) int {
			return strings.Compare(a.Name, b.Name)
		})
	}
	if err := c.conf.Healthy(time.Now()); err != nil && len(r.NotReady) == 0 {
		r.NotReady = append(r.NotReady, err.Error())
	}
	if facts.CSINodeMissing != "" {
		r.NotReady = append(slices.Clip(r.NotReady), facts.CSINodeMissing)
	}
	return r.Status()
}
