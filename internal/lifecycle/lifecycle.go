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

// Input holds everything that a decision depends on.
type Input struct {
	// Now is the time of the decision.
	Now time.Time
	// Pod is the desired pod; nil for a pod that runs but isn't in any source.
	Pod *v1.Pod
	// Base is Desired.Base if the manifest sets the pod's UID; empty otherwise.
	Base string
	// RequiresTerminalPhase is Desired.RequiresTerminalPhase.
	RequiresTerminalPhase bool
	// Stop is set once the pod has to be removed, and is never nil again after that.
	Stop *Stop
	// Termination says why the pod has to end although its source still has it (eviction, preemption); nil if it
	// doesn't have to.
	Termination *pod.PodTermination
	// Observed is the pod's state in the runtime; nil if the runtime has nothing of it.
	Observed *pod.Observed
	// Probes are the current results of the probes that the last decision asked for.
	Probes []pod.ProbeResult
	// Allocation holds the resources allocated to the pod; nil before AdmitPod.
	Allocation *pod.Allocation
	// ExcessContainers holds the IDs of ended instances to remove, regardless of Node.ContainerGC.
	ExcessContainers []string
	// InFlight lists the actions under way.
	InFlight []pod.Action
	// Results lists the actions that ended since the last decision, oldest first.
	Results []pod.Result
	// Memory is the Memory of the last decision. For the first decision it is zero, except for Checkpoint and OnDisk as
	// read from disk, ClockStep at that time, and Attempts as derived from the logs on disk.
	Memory Memory
	// Node holds the facts and settings of this node.
	Node Node
}

// Stop says that a pod has to be removed.
type Stop struct {
	// At is when this agent first saw that the pod has to be removed; the grace period starts then.
	At time.Time
	// Grace overrides the pod's own termination grace period; nil doesn't. The grace period is at least 1 s, and
	// SIGKILL comes at least 2 s after the stop signal.
	Grace *time.Duration
	// Why is the reason for the removal, as users see it.
	Why string
}

// Node holds the facts and settings of the node that decisions depend on.
type Node struct {
	// HostIPs are the node's addresses, the primary one first.
	HostIPs []string
	// RuntimeName is the prefix of container IDs in the status ("containerd").
	RuntimeName string
	// ImagesAt is when images were last added to the node by other means than a pull: pulls that failed before are
	// retried at once.
	ImagesAt time.Time
	// ResourcesFreedAt is when resources were last freed on the node: deferred resizes and waiting admissions from
	// before are retried at once.
	ResourcesFreedAt time.Time
	// ObjectsAt is when an object that pods refer to (ConfigMaps, Secrets, ...) was last added, changed or removed:
	// actions that wait for an object are retried at once.
	ObjectsAt time.Time
	// DiskFreedAt is when a disk that was full, or couldn't be written, last became usable: actions that failed because
	// of such a disk are retried at once.
	DiskFreedAt time.Time
	// RuntimeAnsweredAt is when the container runtime last answered again: actions that it didn't answer are retried at
	// once.
	RuntimeAnsweredAt time.Time
	// ContainerGC says which ended instances of containers are kept; nil for the default.
	ContainerGC *ContainerGC
	// FirstBackoff is the first delay of the crash-loop back-off, after a first restart without delay (KEP-4603); 0
	// means 10 s.
	FirstBackoff time.Duration
	// MaxBackoff caps the crash-loop back-off (KubeletConfiguration crashLoopBackOff.maxContainerRestartPeriod); 0
	// means 300 s.
	MaxBackoff time.Duration
	// ClockSteps are the latest steps of the machine's clock, oldest first: times of the runtime and the checkpoint may
	// be from before them.
	ClockSteps []pod.ClockStep
}

// ContainerGC says how many ended instances are kept in addition to each container's newest instance (the kubelet's
// flags --maximum-dead-containers-per-container and --minimum-container-ttl-duration).
type ContainerGC struct {
	// PerContainer is the number to keep; negative for all. The default is one, for `logs --previous` and lastState.
	PerContainer int
	// MinAge is the minimum time that an instance is kept after its end; 0 by default.
	MinAge time.Duration
}

func (n *Node) retryTriggers() plan.RetryTriggers {
	return plan.RetryTriggers{Images: n.ImagesAt, Room: n.ResourcesFreedAt, Objects: n.ObjectsAt,
		Disk: n.DiskFreedAt, Runtime: n.RuntimeAnsweredAt}
}

// Decision is the result of Decide for an Input.
type Decision struct {
	// Actions start now, in parallel with the actions under way.
	Actions []pod.Action
	// Cancel names the targets whose actions under way are cancelled.
	Cancel []string
	// Probes are all probes that run from now on.
	Probes []pod.Probe
	// Status is the pod's API status; nil for a pod without a spec.
	Status *v1.PodStatus
	// Wake is when to decide again if nothing happens before; zero for never.
	Wake time.Time
	// Waits are the reasons why the pod waits.
	Waits []pod.Wait
	// Events are to be recorded; each is returned only once.
	Events []pod.Event
	// Memory goes into the next Input.
	Memory Memory
	// Gone says that the pod has ended and its object still exists: Status is final, and only container records and
	// logs are left.
	Gone bool
	// Done says that nothing of the pod is left and nothing remains to be done.
	Done bool
}

// Decide makes one decision. It never changes the data that Input points to.
func Decide(in Input) Decision {
	d := newDecider(in)
	d.applyResults(in.Results)
	d.forget()
	d.forgetRestartAll()
	if in.Pod != nil {
		d.adoptStatus()
		d.dateStart()
		if d.mem.Started.IsZero() {
			d.mem.Started = pod.Anchored(d.deadlineFrom(), d.in.Now)
		}
	}
	container.SetReadiness(d.containers, in.Probes, &d.draft)
	d.noteInitialized()
	switch {
	case in.Stop != nil:
		d.stop()
	case in.Pod != nil: // without a spec only a stop is possible
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
	if len(d.mem.Asked) == 0 {
		d.mem.Asked = nil // an empty map would keep its memory allocated for every running pod
	}
	out.Memory = d.mem
	return out
}

// proceed decides for a pod that isn't being removed.
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

// decider holds the state of one call of Decide.
type decider struct {
	in    Input
	mem   Memory
	plan  *plan.Plan
	draft container.Draft
	// terminator stops containers.
	terminator termination.Terminator
	// sandbox is the newest sandbox if it is ready, else nil.
	sandbox *pod.Sandbox
	// containers are the containers of the spec; empty without a spec.
	containers container.List
	// abortedStarts are instances whose start was aborted.
	abortedStarts []pod.Container
	// started is when this node first saw the pod.
	started time.Time
	// finished says that no container will be restarted: the pod has succeeded or failed.
	finished bool
	// resizing is the work that remains until the containers have the resources of the spec.
	resizing resizing.State
	// stopped says that no container of the pod runs any more, and that its final status has to be recorded: its
	// object is being deleted, or its containers are to be removed. gone says that the object may be removed.
	stopped, gone bool
	done          bool
}

func newDecider(in Input) *decider {
	d := &decider{in: in, mem: in.Memory.clone()}
	d.plan = plan.New(in.Now, in.InFlight, d.mem.Retries, d.mem.Asked, in.Node.retryTriggers())
	d.draft = container.Draft{Now: in.Memory.Checkpoint, Disk: in.Memory.OnDisk}
	d.followClock()
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
		d.terminator.AllBy = time.Time{} // no instance that StopAll stopped is left
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

// probes returns the probes that have to run from now on.
func (d *decider) probes() []pod.Probe {
	ends := d.in.Stop != nil || d.finished || d.checkpoint().Termination != nil || !d.mem.Ending.IsZero()
	return container.WantedProbes(d.containers, ends, func(name string) bool {
		_, busy := d.plan.Busy("container/" + name)
		return busy
	})
}
