package nodeobject

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	netutils "k8s.io/utils/net"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Nodes are the node objects of an API server. Each call ends with its context, and returns the object as the server
// has it; errors are the server's (k8s.io/apimachinery/pkg/api/errors).
type Nodes interface {
	Get(ctx context.Context, name string) (*v1.Node, error)
	Create(ctx context.Context, n *v1.Node) (*v1.Node, error)
	// Patch applies a strategic merge patch to the object, PatchStatus to its status.
	Patch(ctx context.Context, name string, body []byte) (*v1.Node, error)
	PatchStatus(ctx context.Context, name string, body []byte) (*v1.Node, error)
	// Watch calls onChange with each state of one object, nil when it doesn't exist. It returns when ctx ends.
	Watch(ctx context.Context, name string, onChange func(*v1.Node))
}

// Known stores the parts of the node's object that decide where its pods may run and which addresses they have.
type Known interface {
	// Node returns the stored object; nil for none.
	Node() *v1.Node
	SetNode(*v1.Node)
}

// Config configures a Node.
type Config struct {
	Identity Identity
	// Register says that the agent creates the node's object (registerNode). Otherwise an administrator has to.
	Register bool
	API      Nodes
	// Status computes the current status, without heartbeat times. Changed receives when it may have changed.
	Status  func() v1.NodeStatus
	Changed <-chan struct{}
	// Drivers returns the registered CSI drivers, sorted by name; Changed receives when they may have changed. Drivers
	// that haven't registered Settled after the start are removed from the object. If Drivers is nil, the drivers in
	// the object stay unchanged.
	Drivers func() []nodefacts.CSIDriver
	Settled time.Duration
	Volumes Volumes
	// Every is the interval at which an unchanged status is sent (nodeStatusReportFrequency).
	Every time.Duration
	// Facts writes Fields and, if a cloud controller sets the node's addresses, HostIPs.
	Facts *nodefacts.Writer
	// Known stores the object for times when the API server is unreachable.
	Known Known
	// Reached receives when the API server has recovered: calls that failed because of it are retried soon
	// (apiclient.Client.Recovered).
	Reached <-chan struct{}
	// Event records an event of the node.
	Event func(pod.Event)
	Log   logr.Logger
}

// Fields are the facts that a Node always writes.
const Fields = nodefacts.Addresses | nodefacts.Labels | nodefacts.Taints | nodefacts.UID | nodefacts.PodCIDRs |
	nodefacts.ObjectTTL | nodefacts.Advertised | nodefacts.CSILabels | nodefacts.ReportedInUse |
	nodefacts.VolumesAttached

// Node maintains the object of this node.
type Node struct {
	conf Config
	// seen is the watch's newest state that isn't processed yet. Its node is nil if there is no object.
	seen    atomic.Pointer[state]
	woken   wake.Slot
	volumes volumesInUse

	// The rest belongs to Run. object is the newest state; nil while there is none.
	object *v1.Node
	// reconciled says that the object agrees with Identity.
	reconciled bool
	status     v1.NodeStatus
	sent       time.Time
	// hurried says that the last status was sent sooner than minGap after the one before it, although the status of no
	// condition had changed.
	hurried bool
	// acknowledged is the server's version of the status that was sent, which may be missing fields that the server
	// doesn't have; nil if there is none.
	acknowledged *v1.NodeStatus
	// gone says that the server answered the last status with NotFound.
	gone bool
	// every is conf.Every with a random delay added (jitter).
	every time.Duration
	// drivers are the results of writing CSI drivers to the object. unchanged is the annotation's value when drivers
	// were last removed from it. If the annotation has this value still, or again, their removal isn't repeated: the
	// server rejected it, or another client has undone it.
	drivers   map[string]nodefacts.CSIEntry
	unchanged string
	// began is when Run began, found when it got the object first.
	began, found time.Time
}

type state struct{ node *v1.Node }

// New returns a Node. It does nothing before Run.
func New(c Config) *Node {
	c.Every = min(c.Every, longest) // so that no jitter overflows
	return &Node{conf: c, woken: wake.NewSlot(), volumes: volumesInUse{conf: c, woken: wake.NewSlot()}}
}

const (
	// callLimit is the time limit of the calls of one step.
	callLimit = 10 * time.Second
	// jitter is the largest fraction of Every by which an unchanged status is delayed.
	jitter = 0.5
	// firstLook is how long a new agent leaves the object's condition Ready true, if it finds it so, while the agent
	// hasn't determined yet that the node is ready. The runtime keeps running between two agents, the CSINode object is
	// read only after the node's object, and a readiness that changes twice would move traffic and pods.
	firstLook = 5 * time.Second
	// longest is the upper bound of Every.
	longest = 365 * 24 * time.Hour
)

// Run registers the node and sends its status until ctx ends. It creates a deleted object again immediately.
func (n *Node) Run(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() {
		n.conf.API.Watch(watching, n.conf.Identity.Name, func(o *v1.Node) {
			n.volumes.observe(o)
			n.seen.Store(&state{o})
			n.woken.Wake()
		})
	})
	if n.conf.Volumes.InUse != nil {
		beside.Go(func() { n.volumes.run(watching) })
	}
	defer func() { stop(); beside.Wait() }()
	var failing apiclient.Backoff
	reported := false
	n.began = time.Now()
	for {
		next, err := n.step(ctx)
		if err == nil {
			next, err = n.publishDrivers(ctx, next)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if !reported && !apiclient.Unusable(err) {
				reported = true
				n.conf.Log.Error(err, "The node's object isn't up to date")
			}
			failing.Failed(err)
			if !n.retry(ctx, &failing) {
				return nil
			}
			continue
		case reported:
			n.conf.Log.Info("The node's object is up to date again", "failures", failing.Failures())
			reported = false
		}
		failing.Succeeded()
		if !n.await(ctx, next) {
			return nil
		}
	}
}

// retry waits until the failed call may be tried again. It returns false when ctx ended.
func (n *Node) retry(ctx context.Context, failing *apiclient.Backoff) bool {
	timer := time.NewTimer(time.Until(failing.Due()))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-n.conf.Reached:
			failing.Recovered()
			timer.Reset(time.Until(failing.Due()))
		}
	}
}

// await waits until there may be something to do, at most until next (zero for no limit). It returns false when
// ctx ended.
func (n *Node) await(ctx context.Context, next time.Time) bool {
	var due <-chan time.Time
	if !next.IsZero() {
		due = time.After(time.Until(next))
	}
	select {
	case <-ctx.Done():
		return false
	case <-due:
	case <-n.conf.Reached:
	case <-n.conf.Changed:
	case <-n.woken:
	}
	return true
}

// step makes the calls that are due, and returns when the next one is due; zero for never.
func (n *Node) step(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if s := n.seen.Swap(nil); s != nil {
		n.setObject(s.node)
	}
	status := n.conf.Status()
	if n.conf.Identity.ExternalCloud && n.object != nil && len(n.object.Status.Addresses) > 0 {
		status.Addresses = nil // the cloud controller writes them
	}
	if n.object == nil || !n.reconciled {
		if err := n.register(ctx, status); err != nil || n.object == nil {
			return time.Time{}, err
		}
	}
	fresh := n.sent.IsZero()
	if known := n.found.Add(firstLook); fresh && readiness(&n.object.Status) == v1.ConditionTrue &&
		readiness(&status) != v1.ConditionTrue && time.Now().Before(known) {
		return known, nil
	}
	target := withStatus(n.object, &status, fresh)
	next := due(&n.status, &status, n.sent, n.hurried, n.every)
	written := n.acknowledged == nil || changed(&n.object.Status, n.acknowledged)
	if soon := n.sent.Add(minGap); written && changed(&n.object.Status, &target.Status) && next.After(soon) {
		next = soon // another client has changed the agent's fields
	}
	now := time.Now()
	if now.Before(next) {
		return next, nil
	}
	heartbeat(&status, now)
	body, err := patch(n.object, withStatus(n.object, &status, fresh))
	if err != nil || body == nil {
		n.status = status
		return now.Add(n.conf.Every), err
	}
	object, err := n.conf.API.PatchStatus(ctx, n.conf.Identity.Name, body)
	if errors.IsNotFound(err) && !n.gone {
		n.gone = true
		n.setObject(nil)
		return now, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("patch the status of node %s: %w", n.conf.Identity.Name, err)
	}
	for _, e := range statusEvents(n.object, object) {
		n.conf.Event(e)
	}
	n.setObject(object)
	n.acknowledged, n.gone = &object.Status, false
	n.hurried = !turned(&n.status, &status) && now.Before(n.sent.Add(minGap))
	n.status, n.sent, n.every = status, now, wait.Jitter(n.conf.Every, jitter)
	return n.sent.Add(n.every), nil
}

// register creates the object, or reconciles an existing one.
func (n *Node) register(ctx context.Context, status v1.NodeStatus) error {
	name := n.conf.Identity.Name
	if n.object == nil && n.conf.Register {
		now := time.Now()
		heartbeat(&status, now)
		first := status
		if n.conf.Volumes.InUse != nil {
			first.VolumesInUse = n.conf.Volumes.InUse()
		}
		object, err := n.conf.API.Create(ctx, registration(&n.conf.Identity, first))
		if err == nil {
			n.setObject(object)
			n.acknowledged = &object.Status
			n.reconciled, n.status, n.sent, n.every = true, status, now, wait.Jitter(n.conf.Every, jitter)
			return nil
		}
		if !errors.IsAlreadyExists(err) {
			return fmt.Errorf("register node %s: %w", name, err)
		}
	}
	if n.object == nil {
		object, err := n.conf.API.Get(ctx, name)
		if errors.IsNotFound(err) && !n.conf.Register {
			return nil // the watch reports when it exists
		}
		if err != nil {
			return fmt.Errorf("get node %s: %w", name, err)
		}
		n.setObject(object)
	}
	if !n.conf.Register {
		n.reconciled = true
		return nil
	}
	body, err := patch(n.object, reconciled(n.object, &n.conf.Identity))
	if err == nil && body != nil {
		var object *v1.Node
		if object, err = n.conf.API.Patch(ctx, name, body); err == nil {
			n.setObject(object)
		}
	}
	if err != nil {
		if errors.IsNotFound(err) {
			n.setObject(nil)
		}
		return fmt.Errorf("reconcile node %s: %w", name, err)
	}
	n.reconciled = true
	return nil
}

// setObject processes the object's newest state; nil if there is no object.
func (n *Node) setObject(object *v1.Node) {
	if object == nil || n.object != nil && n.object.UID != object.UID {
		n.reconciled, n.status, n.sent, n.acknowledged = false, v1.NodeStatus{}, time.Time{}, nil
		n.drivers, n.unchanged = nil, ""
	}
	if e, happened := cordoned(n.object, object); happened {
		n.conf.Event(e)
	}
	n.object = object
	if object != nil && n.found.IsZero() {
		n.found = time.Now()
	}
	n.conf.Facts.Set(func(f *nodefacts.Facts) {
		f.CSILabels = n.drivers
		if object == nil {
			f.UID = ""
			return
		}
		f.UID = object.UID
		learn(f, object)
	})
	if object != nil {
		n.conf.Known.SetNode(object)
	}
}

// Restore sets the facts from the stored object, until the API server returns the current one. It doesn't set the
// object's UID.
func (n *Node) Restore() {
	if object := n.conf.Known.Node(); object != nil {
		n.conf.Facts.Set(func(f *nodefacts.Facts) { learn(f, object) })
	}
}

// learn copies the facts that the object determines.
func learn(f *nodefacts.Facts, object *v1.Node) {
	f.Addresses, f.Labels, f.Taints, f.PodCIDRs, f.ObjectTTL = object.Status.Addresses, object.Labels,
		object.Spec.Taints, object.Spec.PodCIDRs, objectTTL(object)
	f.Advertised = maps.Clone(object.Status.Allocatable)
	maps.DeleteFunc(f.Advertised, func(name v1.ResourceName, _ resource.Quantity) bool { return !extended(name) })
	if ips := hostIPs(object); len(ips) > 0 {
		f.HostIPs = ips
	}
}

// hostIPs returns the addresses of pods in the host's network: one address, or one of each IP family. Internal
// addresses are preferred to external ones.
func hostIPs(n *v1.Node) []string {
	var list []string
	for _, kind := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, a := range n.Status.Addresses {
			if a.Type == kind && (len(list) == 0 || len(list) == 1 &&
				netutils.IsIPv6String(a.Address) != netutils.IsIPv6String(list[0])) {
				list = append(list, a.Address)
			}
		}
	}
	return list
}

// heartbeat sets both times of each condition (heartbeat and transition) to now.
func heartbeat(s *v1.NodeStatus, now time.Time) {
	for i := range s.Conditions {
		c := &s.Conditions[i]
		c.LastHeartbeatTime, c.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
	}
}

// objectTTL is how many seconds a ConfigMap or Secret counts as current after it was read. A controller sets it as an
// annotation of the node; without the annotation it is a minute.
func objectTTL(object *v1.Node) int {
	seconds, err := strconv.Atoi(object.Annotations[v1.ObjectTTLAnnotationKey])
	if err != nil || seconds < 0 {
		return int(time.Minute / time.Second)
	}
	return seconds
}
