// Package cluster is what an agent of a cluster does beyond one that is alone: it registers its node at the API
// server, and tells it how the node is.
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
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/report/events"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/runtime/health"
)

// Config says what a Cluster works with.
type Config struct {
	// Node is the configuration; it names a kubeconfig.
	Node *config.Config
	// Facts are about the node, whose object writes some of them.
	Facts   *nodefacts.Board
	Runtime *health.State
	// Info is what is said of the machine and its programs, but for the runtime's version.
	Info v1.NodeSystemInfo
	// Healthy says what beside the runtime keeps the node from running pods; nil if nothing does.
	Healthy func(now time.Time) error
	// Desired takes the pods of the API server, and knows which can't be run; Statuses say how they are.
	Desired  *desired.Merger
	Statuses *podstatus.Store
	// Observed is what the runtime has; PodsChanged has to be called when that changes.
	Observed Observed
	// Events are those of the node and its pods, which the API server is told, and records the node's.
	Events events.Node
	// Objects finds what pods of other sources refer to. ObjectsChanged is told what those of the API server are to ask
	// for again.
	Objects        object.Finder
	ObjectsChanged func(...pod.Object)
	// PodsDir has a directory for each pod, Known is the file of what the API server said last.
	PodsDir, Known string
	Meter          Meter
	// ClientCertificate and ServingCertificate count what becomes of the node's certificates.
	ClientCertificate, ServingCertificate certificates.Meter
	Log                                   logr.Logger
}

// Observed is what the runtime has of pods, and whether that is known.
type Observed interface {
	All() []*pod.Observed
	Listed() bool
}

// Meter counts what is said to the API server.
type Meter interface {
	apiclient.Meter
	eventsink.Meter
}

// Cluster is an agent's side of a cluster.
type Cluster struct {
	conf   Config
	client *apiclient.Client
	node   *nodeobject.Node
	lease  *nodeobject.Lease
	// pods are what the API server has for this node, source and publisher what reads and what writes that.
	pods      *podobject.Cache
	source    *apisource.Source
	publisher *podobject.Publisher
	mirrors   *mirror.Mirrors
	events    *eventsink.Sink
	objects   *clusterobjects.Finder
	// known is what the API server said last, for when it is away.
	known *lastknown.Store
	// renewers keep the node's certificates valid; serving is that of the HTTPS server, nil unless the cluster issues
	// it.
	renewers []*certificates.Renewer
	serving  *certificates.Serving
	// changed has the status computed, reached what failed tried again.
	changed wake.Slot
	reached wake.Group
	// troubled wakes when Problems have changed.
	troubled wake.Group
}

// New returns an agent's side of a cluster. Nothing is asked before Run.
func New(c Config) (*Cluster, error) {
	cfg, k := c.Node, &c.Node.Kubelet
	calls, events := Rates(k)
	lease := pod.Seconds(k.NodeLeaseDurationSeconds)
	build := buildinfo.Get()
	talk := apiclient.Config{
		Kubeconfig: cfg.Kubeconfig, Awaited: cfg.BootstrapKubeconfig != "", ContentType: k.ContentType,
		UserAgent:     apiclient.UserAgent(cfg.KubeletVersion, build.Commit),
		LeaseDuration: lease, Calls: calls, Events: events, Meter: c.Meter, Log: c.Log.WithName("apiserver"),
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
	cl := &Cluster{conf: c, client: client, known: lastknown.New(c.Known, cfg.OfflineSecretsKey, client),
		changed: wake.NewSlot()}
	again := func() <-chan struct{} {
		woken, _ := cl.reached.Subscribe() // as long as the cluster itself
		return woken
	}
	recovered := func() <-chan struct{} {
		woken, _ := client.Recovered()
		return woken
	}
	woken, _ := client.Subscribe()
	cl.renewers = append(cl.renewers, certificates.NewClient(certificates.ClientConfig{
		Node: cfg.NodeName, Dir: cfg.CertDir, Kubeconfig: cfg.Kubeconfig, Bootstrap: cfg.BootstrapKubeconfig,
		Rotate:   k.RotateCertificates,
		Requests: certificates.RequestsOf(client), AsBootstrap: bootstrap(talk, cfg.BootstrapKubeconfig).ask,
		Refused: cl.refused, Changed: woken, Meter: c.ClientCertificate, Troubled: cl.troubled.Wake,
		Log: c.Log.WithName("certificates"),
	}))
	if k.ServerTLSBootstrap {
		addresses, _ := c.Facts.Watch(nodefacts.Addresses) // as long as the cluster itself
		cl.serving = certificates.NewServing(certificates.ServingConfig{
			Node: cfg.NodeName, Dir: cfg.CertDir, Addresses: func() []v1.NodeAddress { return c.Facts.Now().Addresses },
			Requests: certificates.RequestsOf(client), Changed: addresses, Meter: c.ServingCertificate,
			Troubled: cl.troubled.Wake, Log: c.Log.WithName("certificates"),
		})
		cl.renewers = append(cl.renewers, cl.serving.Renewer)
	}
	cl.node = nodeobject.New(nodeobject.Config{
		Identity: identity, Register: ptr.Deref(k.RegisterNode, true), API: nodeobject.NodesOf(client),
		Status: cl.status, Changed: cl.changed,
		Every: k.NodeStatusReportFrequency.Duration, Facts: facts, Known: cl.known, Reached: recovered(),
		Event: c.Events.Event, Log: c.Log.WithName("node"),
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
		Changed: c.ObjectsChanged, Known: cl.known, KeptToken: keptTokens(c.PodsDir).read, Others: c.Objects,
	})
	return cl, nil
}

// refused reports whether the API server doesn't accept the node's credentials.
func (c *Cluster) refused() bool {
	_, _, err := c.client.Reached()
	return apiclient.Refused(err)
}

// ask asks for the UID of the node's object, which is empty if the object isn't there, and then for the pods of the
// node.
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

// awaited reports whether a static pod of that name may be here: a manifest defines it, it hasn't ended yet, or that
// isn't known.
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

// PodsChanged says that what the runtime has of pods has changed.
func (c *Cluster) PodsChanged() { c.mirrors.Wake() }

// Finder finds what pods refer to, those of the API server and others.
func (c *Cluster) Finder() object.Finder { return c.objects }

// phases are what this node tells of pods.
func phases(s *podstatus.Store) func(types.UID) v1.PodPhase {
	return func(uid types.UID) v1.PodPhase {
		if e := s.Get(uid); e != nil {
			return e.Pod.Status.Phase
		}
		return ""
	}
}

// refusals are the pods that can't be run.
type refusals struct{ *desired.Merger }

func (r refusals) Refused() []pod.Refusal { return r.Current().Refused }

// Rates are how often the API server is asked, and told events. Less than none of either is any number.
func Rates(k *v1beta1.KubeletConfiguration) (calls, events apiclient.Rate) {
	return apiclient.Rate{PerSecond: float64(ptr.Deref(k.KubeAPIQPS, 0)), Burst: int(k.KubeAPIBurst)},
		apiclient.Rate{PerSecond: float64(ptr.Deref(k.EventRecordQPS, 0)), Burst: int(k.EventBurst)}
}

// SetLimits changes how often the API server is asked.
func (c *Cluster) SetLimits(k *v1beta1.KubeletConfiguration) { c.client.SetRates(Rates(k)) }

// Reached says since when the API server answers, or since when and why it doesn't.
func (c *Cluster) Reached() (ok bool, since time.Time, err error) { return c.client.Reached() }

// Problems are what is wrong with the node's part in the cluster.
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

// ProblemsChanged returns a channel that receives after Problems have changed. stop ends that.
func (c *Cluster) ProblemsChanged() (changed <-chan struct{}, stop func()) {
	return c.troubled.Subscribe()
}

// Modules keep the node's object and lease, and its pods' objects, up to date. What fails is tried again, and never
// ends a module.
func (c *Cluster) Modules() []modules.Module {
	list := []modules.Module{
		// First, so that it stops after all that call it.
		{Name: "API server", Start: c.start, Run: c.client.Run},
		{Name: "last known objects", Run: c.known.Run},
		{Name: "node object", Run: c.node.Run},
		{Name: "lease", Run: c.lease.Run},
		{Name: "pod objects", Run: c.pods.Run},
		{Name: "pods of the API server", Run: c.source.Run},
		{Name: "pod statuses", Run: c.publisher.Run},
		{Name: "events for the API server", Run: c.events.Run},
		{Name: "mirror pods", Run: c.mirrors.Run},
		{Name: "objects of pods", Run: c.objects.Run},
	}
	for _, r := range c.renewers {
		list = append(list, modules.Module{Name: "certificate " + r.Name(), Run: r.Run})
	}
	return append(list, modules.Module{Name: "node status", Run: c.follow})
}

// start announces the node, and reads what the API server answered earlier agents.
func (c *Cluster) start(context.Context) error {
	c.conf.Log.Info("Joins a cluster", "node", klog.KRef("", c.conf.Node.NodeName), "path", c.conf.Node.Kubeconfig)
	c.conf.Events.NodeEvent(v1.EventTypeNormal, pod.ReasonStarting, "Starting kubelet.")
	c.known.Open(c.conf.Node.NodeName)
	c.node.Restore()
	return nil
}

// follow has the status computed when something it says may have changed, and every nodeStatusUpdateFrequency, as some
// of that is only known by asking.
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

// status computes the node's status at the moment.
func (c *Cluster) status() v1.NodeStatus {
	facts, info, runtime := c.conf.Facts.Now(), c.conf.Info, c.conf.Runtime.Info()
	r := nodeobject.Report{
		Hostname: c.conf.Node.NodeName, HostIPs: facts.HostIPs, Info: info, Capacity: facts.Capacity,
		Allocatable:      facts.Allocatable,
		DeclaredFeatures: facts.DeclaredFeatures, Images: facts.Images,
		MaxImages: int(ptr.Deref(c.conf.Node.Kubelet.NodeStatusMaxImages, -1)),
		NotReady:  c.conf.Runtime.NotReady(), Port: int32(c.conf.Node.HTTPS.Port()),
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
	return r.Status()
}
