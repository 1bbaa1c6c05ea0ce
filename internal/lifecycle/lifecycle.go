package lifecycle

import (
	"time"

	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/lifecycle/resizing"
	"github.com/deckhand-node/deckhand/internal/lifecycle/termination"
	"github.com/deckhand-node/deckhand/internal/pod"
	v1 "k8s.io/api/core/v1"
)

// Input is everything a decision may depend on.
type Input struct {
	// Now is the time of the decision.
	Now time.Time
	// Pod is the desired pod; nil for one that runs but that no source has.
	Pod *v1.Pod
	// Base is Desired.Base where the manifest gives the pod's UID; empty otherwise.
	Base string
	// RequiresTerminalPhase is that of Desired.
	RequiresTerminalPhase bool
	// Stop is set once the pod has to be removed, and from then on never nil again.
	Stop *Stop
	// Termination says that the pod has to end though a source has it (eviction, preemption); nil if it hasn't.
	Termination *pod.PodTermination
	// Observed is the runtime's side; nil if it has nothing.
	Observed *pod.Observed
	// Probes are the current results of the probes that the last decision asked for.
	Probes []pod.ProbeResult
	// Allocation holds the resources allocated to the pod; nil before AdmitPod.
	Allocation *pod.Allocation
	// ExcessContainers holds the IDs of ended instances that are to be removed, whatever
	// Node.ContainerGC says.
	ExcessContainers []string
	// InFlight lists the actions under way.
	InFlight []pod.Action
	// Results lists the actions that ended since the last decision, oldest first.
	Results []pod.Result
	// Memory is what the last decision returned; at first its zero value, but with
	// Checkpoint and OnDisk as read from disk and Attempts as found from the logs on disk.
	Memory Memory
	// Node holds the facts and settings of this node.
	Node Node
}

// Stop says that a pod has to be removed.
type Stop struct {
	// At is when this agent first knew that; the grace counts from here.
	At time.Time
	// Grace overrides the pod's own termination grace; nil leaves it. It is 1 s at least, and SIGKILL comes 2 s after
	// the stop signal at the earliest.
	Grace *time.Duration
	// Why is the reason as people read it.
	Why string
}

// Node is what the core has to know of the node.
type Node struct {
	// HostIPs are the node's addresses, the primary one first.
	HostIPs []string
	// RuntimeName prefixes container IDs in the status ("containerd").
	RuntimeName string
	// ImagesAt is when images were last added to the node by other means than a
	// pull: a pull that failed before that is retried at once.
	ImagesAt time.Time
	// ResourcesFreedAt is when resources were last freed on the node: a resize
	// that was deferred before that, or an admission that waits, is retried at once.
	ResourcesFreedAt time.Time
	// ObjectsAt is when an object that pods refer to (ConfigMaps, Secrets, ...) was last
	// added, changed or removed: an action that waits for one is retried at once.
	ObjectsAt time.Time
	// ContainerGC says which ended instances are kept; nil is the default.
	ContainerGC *ContainerGC
	// FirstBackoff is what the crash-loop back-off begins with, after a first restart at once
	// (KEP-4603); 0 means 10 s.
	FirstBackoff time.Duration
	// MaxBackoff caps the crash-loop back-off
	// (KubeletConfiguration crashLoopBackOff.maxContainerRestartPeriod); 0 means 300 s.
	MaxBackoff time.Duration
}

// ContainerGC says how many ended instances are kept beside each container's newest
// (the kubelet's flags --maximum-dead-containers-per-container and
// --minimum-container-ttl-duration).
type ContainerGC struct {
	// PerContainer is how many; negative for all. The default is one: for
	// `logs --previous` and lastState.
	PerContainer int
	// MinAge is how long each is kept at least after it ended; 0 by default.
	MinAge time.Duration
}

func (n *Node) retryTriggers() plan.RetryTriggers {
	return plan.RetryTriggers{Images: n.ImagesAt, Room: n.ResourcesFreedAt, Objects: n.ObjectsAt}
}

// Decision is what follows from an Input.
type Decision struct {
	// Actions are to be begun now, each in parallel with whatever is under way.
	Actions []pod.Action
	// Cancel names targets whose actions under way are to be cancelled.
	Cancel []string
	// Probes are to run from now on, and no others.
	Probes []pod.Probe
	// Status is the pod's API status; nil for a pod without a spec.
	Status *v1.PodStatus
	// Wake is when to decide again if nothing happens before; zero for never.
	Wake time.Time
	// Waits say what the pod is waiting for.
	Waits []pod.Wait
	// Events are to be recorded; each is returned once.
	Events []pod.Event
	// Memory goes into the next Input.
	Memory Memory
	// Gone says that a pod has ended whose object is still there: Status is final, and only records and logs of its
	// containers are left.
	Gone bool
	// Done says that nothing is left of the pod and nothing to do.
	Done bool
}

// Decide is the core. It never changes what Input points to.
func Decide(in Input) Decision {
	d := newDecider(in)
	d.applyResults(in.Results)
	d.forget()
	if in.Pod != nil {
		d.adoptStatus()
		d.dateStart()
	}
	container.SetReadiness(d.containers, in.Probes, &d.draft)
	d.noteInitialized()
	switch {
	case in.Stop != nil:
		d.stop()
	case in.Pod != nil: // without a spec nothing says what to do
		d.proceed()
	}
	out := Decision{Gone: d.gone, Done: d.done}
	if in.Pod != nil {
		out.Probes = d.probes()
		out.Status = d.buildStatus()
		d.save()
	}
	d.mem.Since, d.mem.AllBy = d.plan.Date(d.mem.Since), d.terminator.AllBy
	d.mem.Checkpoint, d.mem.OnDisk = d.draft.Now, d.draft.Disk
	out.Actions, out.Cancel, out.Events, out.Waits, out.Wake = d.plan.Actions, d.plan.Cancel, d.plan.Events,
		d.plan.Waiting, d.plan.Wake
	out.Memory = d.mem
	return out
}

// proceed decides for a pod that is wanted.
func (d *decider) proceed() {
	d.recordOutcome()
	if d.finished = d.terminal() != ""; d.finished {
		d.finish()
		return
	}
	d.recordTermination()
	if d.checkpoint().Termination != nil {
		d.terminate()
		return
	}
	d.run()
}

// decider is one decision in the making.
type decider struct {
	in    Input
	mem   Memory
	plan  *plan.Plan
	draft container.Draft
	// terminator stops containers.
	terminator termination.Terminator
	// sandbox is the one that counts: the newest, if it is ready.
	sandbox *pod.Sandbox
	// containers are those of the spec; none for a pod without one.
	containers container.List
	// abortedStarts are instances whose start was aborted.
	abortedStarts []pod.Container
	// started is when this node first saw the pod.
	started time.Time
	// finished says that no container will be started again: the pod has succeeded or failed.
	finished bool
	// resizing says what a resize still has to do.
	resizing resizing.State
	// stopped says that nothing of a pod runs any more whose object is being deleted, gone that it may go.
	stopped, gone bool
	done          bool
}

func newDecider(in Input) *decider {
	d := &decider{in: in, mem: in.Memory.clone()}
	d.plan = plan.New(in.Now, in.InFlight, d.mem.Retries, d.mem.Asked, in.Node.retryTriggers())
	d.draft = container.Draft{Now: in.Memory.Checkpoint, Disk: in.Memory.OnDisk}
	d.noteAbortedStarts()
	box := ""
	if o := d.in.Observed; o != nil && len(o.Sandboxes) > 0 && o.Sandboxes[0].State == pod.SandboxReady {
		d.sandbox = &o.Sandboxes[0]
		box = d.sandbox.ID
	}
	if in.Pod != nil {
		d.containers = container.Of(in.Pod, d.in.Observed, box)
	}
	d.terminator = termination.Terminator{Plan: d.plan, Kills: d.mem.Kills, Pod: in.Pod, Containers: d.containers,
		Instances: d.instances(), AllBy: d.mem.AllBy}
	if !d.anyRuns() {
		d.terminator.AllBy = time.Time{} // nothing that was stopped so is left
	}
	return d
}

func (d *decider) checkpoint() *pod.Checkpoint { return d.draft.Get() }

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

// probes returns the probes that have to run.
func (d *decider) probes() []pod.Probe {
	ends := d.in.Stop != nil || d.finished || d.checkpoint().Termination != nil || !d.mem.Ending.IsZero()
	return container.WantedProbes(d.containers, ends, func(name string) bool {
		_, busy := d.plan.Busy("container/" + name)
		return busy
	})
}
