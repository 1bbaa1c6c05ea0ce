// Package lifecycle decides what to do for one pod. It is a pure function: the
// desired pod, what the runtime has of it, verdicts, what came of earlier actions
// and the time go in; actions, the API status, reasons in words and the next
// wake-up time come out. It does no I/O, reads no clock, takes no lock and knows no
// client (a test in internal/archtest holds it to that), so that every race is
// a test and every decision can be replayed and explained.
//
// What must outlive the agent is on the containers themselves (attempt, back-off,
// resources) or in pod.Kept, which the core has written to disk; the rest of
// Memory may be forgotten at a restart.
package lifecycle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/ending"
	"github.com/deckhand-node/deckhand/internal/lifecycle/kept"
	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/lifecycle/probing"
	"github.com/deckhand-node/deckhand/internal/lifecycle/resizing"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Input is everything a decision may depend on.
type Input struct {
	// Now is the time of the decision.
	Now time.Time
	// Pod is the desired pod; nil for one that is found running but wanted by nobody.
	Pod *v1.Pod
	// Base is Desired.Base where the manifest gives the pod's UID; empty otherwise.
	Base string
	// Stop is set once the pod has to go, and from then on never nil again.
	Stop *Stop
	// Ending is the verdict that the pod has to end though it is wanted; nil if there is none.
	Ending *pod.Ending
	// Observed is the runtime's side; nil if it has nothing.
	Observed *pod.Observed
	// Probes are the present results of the probes that the last decision asked for.
	Probes []pod.ProbeResult
	// Allocation is what the node has granted to the pod; nil before PreparePod.
	Allocation *pod.Allocation
	// Surplus holds the IDs of instances that ended and that the node doesn't keep any
	// longer, whatever Node.Dead says.
	Surplus []string
	// InFlight lists the actions begun and not yet ended.
	InFlight []pod.Action
	// Results lists what ended since the last decision, oldest first.
	Results []pod.Result
	// Memory is what the last decision returned; at first its zero value, but with
	// Kept and Saved as read from disk and Attempts as the logs on disk tell.
	Memory Memory
	// Node holds the facts and settings of this node.
	Node Node
}

// Stop says that a pod has to go.
type Stop struct {
	// At is when that became known; the grace counts from here.
	At time.Time
	// Grace overrides the pod's own termination grace; nil leaves it, 0 kills at once.
	Grace *time.Duration
	// Why is told to people.
	Why string
}

// Node is what the core has to know of the node.
type Node struct {
	// HostIPs are the node's addresses, the primary one first.
	HostIPs []string
	// RuntimeName prefixes container IDs in the status ("containerd").
	RuntimeName string
	// ImagesAt is when images were last brought to the node by other means than a
	// pull: a pull that failed before that is tried again at once.
	ImagesAt time.Time
	// RoomAt is when room for more resources last appeared on the node: a resize
	// that was deferred before that is tried again at once.
	RoomAt time.Time
	// ObjectsAt is when an object that pods refer to (ConfigMaps, Secrets, ...) last
	// came, changed or went: what waits for one is tried again at once.
	ObjectsAt time.Time
	// Dead says which instances that ended are kept; nil is the default.
	Dead *Dead
	// FirstBackoff is what the crash-loop back-off begins with, after a first restart at once
	// (KEP-4603); 0 means 10 s.
	FirstBackoff time.Duration
	// MaxBackoff caps the crash-loop back-off
	// (KubeletConfiguration crashLoopBackOff.maxContainerRestartPeriod); 0 means 300 s.
	MaxBackoff time.Duration
}

// Dead says which instances that have ended are kept beside each container's newest
// (the kubelet's flags --maximum-dead-containers-per-container and
// --minimum-container-ttl-duration).
type Dead struct {
	// PerContainer is how many; negative for all. The default is one: for
	// `logs --previous` and lastState.
	PerContainer int
	// MinAge is how long each is kept at least after it ended; 0 by default.
	MinAge time.Duration
}

func (n *Node) news() plan.News {
	return plan.News{Images: n.ImagesAt, Room: n.RoomAt, Objects: n.ObjectsAt}
}

// Decision is what follows from an Input.
type Decision struct {
	// Actions are to be begun now, each in parallel with whatever is under way.
	Actions []pod.Action
	// Cancel names targets whose actions under way are no longer wanted.
	Cancel []string
	// Probes are to run from now on, and no others.
	Probes []pod.Probe
	// Status is the pod's API status; nil for a pod without a spec.
	Status *v1.PodStatus
	// Wake is when to decide again if nothing happens before; zero for never.
	Wake time.Time
	// Reasons say what the pod is waiting for.
	Reasons []pod.Reason
	// Events are worth telling; each is told once.
	Events []pod.Event
	// Memory goes into the next Input.
	Memory Memory
	// Done says that nothing is left of the pod and nothing to do.
	Done bool
}

// Decide is the core. It never changes what Input points to.
func Decide(in Input) Decision {
	d := newDecider(in)
	d.fold(in.Results)
	d.forget()
	if in.Pod != nil {
		d.dateStart()
	}
	probing.Judge(d.members, in.Probes, &d.book)
	switch {
	case in.Stop != nil:
		d.stop()
	case in.Pod == nil: // nobody says what should become of it
	case d.settle():
		d.finish()
	case d.ending():
		d.end()
	default:
		d.run()
	}
	out := Decision{Done: d.done}
	if in.Pod != nil {
		out.Probes = d.probes()
		out.Status = d.status()
		d.save()
	}
	d.mem.Since = d.plan.Date(d.mem.Since)
	d.mem.Kept, d.mem.Saved = d.book.Now, d.book.Disk
	out.Actions, out.Cancel, out.Events, out.Reasons, out.Wake = d.plan.Actions, d.plan.Cancel, d.plan.Events, d.plan.Reasons, d.plan.Wake
	out.Memory = d.mem
	return out
}

// decider is one decision in the making.
type decider struct {
	in   Input
	mem  Memory
	plan *plan.Plan
	book kept.Book
	// ender ends containers.
	ender ending.Ender
	// sandbox is the one that counts: the newest, if it is ready.
	sandbox *pod.Sandbox
	// members are the containers of the spec; none for a pod without one.
	members member.List
	// aside are instances whose start was cut off.
	aside []pod.Container
	// started is when this node first saw the pod.
	started time.Time
	// finished says that no container will be started again: the pod has run to its end.
	finished bool
	// resizing says what is still to be done of a resize.
	resizing resizing.State
	done     bool
}

func newDecider(in Input) *decider {
	d := &decider{in: in, mem: in.Memory.clone()}
	d.plan = plan.New(in.Now, in.InFlight, d.mem.Retries, d.mem.Asked, in.Node.news())
	d.book = kept.Book{Now: in.Memory.Kept, Disk: in.Memory.Saved}
	d.setAside()
	box := ""
	if o := d.in.Observed; o != nil && len(o.Sandboxes) > 0 && o.Sandboxes[0].State == pod.SandboxReady {
		d.sandbox = &o.Sandboxes[0]
		box = d.sandbox.ID
	}
	if in.Pod != nil {
		d.members = member.Of(in.Pod, d.in.Observed, box)
	}
	d.ender = ending.Ender{Plan: d.plan, Kills: d.mem.Kills, Pod: in.Pod, Members: d.members, Instances: d.instances()}
	return d
}

func (d *decider) kept() *pod.Kept { return d.book.Get() }

func (d *decider) sandboxes() []pod.Sandbox {
	if d.in.Observed == nil {
		return nil
	}
	return d.in.Observed.Sandboxes
}

func (d *decider) instances() []pod.Container {
	if d.in.Observed == nil {
		return nil
	}
	return d.in.Observed.Containers
}

// probes says which probes are to run.
func (d *decider) probes() []pod.Probe {
	ends := d.in.Stop != nil || d.finished || d.kept().Ending != nil
	return probing.Wanted(d.members, ends, func(name string) bool {
		_, busy := d.plan.Busy("container/" + name)
		return busy
	})
}
