package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// ProbeKind is one of the three probes of a container.
type ProbeKind string

const (
	ProbeStartup   ProbeKind = "startup"
	ProbeLiveness  ProbeKind = "liveness"
	ProbeReadiness ProbeKind = "readiness"
)

// Probe names one probe of one instance of a container.
type Probe struct {
	Container string    `json:"container"`
	ID        string    `json:"id"`
	Kind      ProbeKind `json:"kind"`
}

// ProbeResult is the result of a probe by its thresholds: it changes when
// failureThreshold or successThreshold is reached, not with every single try.
type ProbeResult struct {
	Probe
	OK bool `json:"ok"`
	// At is when it became the result.
	At time.Time `json:"at"`
	// Message says how the last try failed; it has nothing that the container printed.
	Message string `json:"message,omitempty"`
}

// ProbeFailures are those of a probe since it succeeded last: every try counts, also below failureThreshold.
type ProbeFailures struct {
	Probe
	Count int `json:"count"`
	// Since is when the first of them was, Last when the last.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	// Message says how the last try failed; it has nothing that the container printed.
	Message string `json:"message,omitempty"`
}

// PodTermination says that a pod has to end though a source has it (eviction, preemption,
// node shutdown): it isn't started again, and its phase becomes Failed.
type PodTermination struct {
	// At is when that was decided; the grace counts from here.
	At time.Time `json:"at"`
	// Grace shortens the pod's own termination grace; nil leaves it.
	Grace *time.Duration `json:"grace,omitempty"`
	// Reason and Message go into the pod's status ("Evicted", "NodeShutdown", ...).
	Reason  Reason `json:"reason"`
	Message string `json:"message,omitempty"`
	// Rejected says that the node never admitted the pod, so that it has no container.
	Rejected bool `json:"rejected,omitempty"`
	// Generation is that of the spec which was rejected: nothing holds for another one.
	Generation int64 `json:"generation,omitempty"`
	// ByExit says that the phase follows from how the containers end instead: Succeeded if all main ones end with code
	// 0.
	ByExit bool `json:"byExit,omitempty"`
	// Disruption sets the condition DisruptionTarget with reason TerminationByKubelet (KEP-3329).
	Disruption bool `json:"disruption,omitempty"`
}

// Terminal returns a phase if it is final, else none.
func Terminal(p v1.PodPhase) v1.PodPhase {
	if p == v1.PodSucceeded || p == v1.PodFailed {
		return p
	}
	return ""
}

// Allocation is the resources that this node has allocated to a pod; its spec may
// request others already (KEP-1287). It is immutable.
type Allocation struct {
	// Generation is that of the spec that the allocation is for.
	Generation int64 `json:"generation,omitempty"`
	// Containers holds requests and limits by container name, init containers included.
	Containers map[string]v1.ResourceRequirements `json:"containers,omitempty"`
	// Pod is spec.resources (KEP-2837); nil if the pod has none.
	Pod *v1.ResourceRequirements `json:"pod,omitempty"`
	// Overhead is the pod's use of resources beside its containers (spec.overhead).
	Overhead v1.ResourceList `json:"overhead,omitempty"`
	// Total is the request of the pod as a whole, overhead included.
	Total v1.ResourceList `json:"total,omitempty"`
}

// Checkpoint is the state of one pod that has to outlive the agent and isn't recorded on its containers. It is
// immutable: a change makes another one.
type Checkpoint struct {
	// Base is Desired.Base of the pod that all this is about, for one whose manifest
	// gives its UID: another pod may come under the same UID. Empty for others.
	Base string `json:"base,omitempty"`
	// StartTime is when this node first saw the pod (PodStatus.startTime).
	StartTime time.Time `json:"startTime,omitzero"`
	// Termination is set once the pod has to end though a source has it.
	Termination *PodTermination `json:"ending,omitempty"`
	// EndBy is when the containers of a pod that has to end are killed: it only ever comes nearer. It is set for
	// one whose source still has it.
	EndBy time.Time `json:"endBy,omitzero"`
	// Terminal is the pod's final phase, once reached.
	Terminal v1.PodPhase `json:"terminal,omitempty"`
	// Final is the final status of a pod whose object is being deleted: it is reported until the object is removed.
	Final *v1.PodStatus `json:"final,omitempty"`
	// PostStartDone, Started and Ready hold instance IDs whose postStart hook is done, which
	// have passed their startup probe, which were ready last: only of containers that
	// have such a hook or probe.
	PostStartDone []string `json:"hooked,omitempty"`
	Started       []string `json:"started,omitempty"`
	Ready         []string `json:"ready,omitempty"`
	// Failed holds, by instance ID, for which failure it has to end, or had to.
	Failed map[string]Failed `json:"failed,omitempty"`
	// Renew holds the IDs of instances that were killed for a new image or for new resources: another instance follows
	// them under every restart policy.
	Renew []string `json:"renew,omitempty"`
	// Resizing holds the IDs of instances that are being resized: their resources are unknown until that has succeeded.
	Resizing []string `json:"resizing,omitempty"`
	// Resized holds, by instance ID, the resources it was given after its creation.
	Resized map[string]v1.ResourceRequirements `json:"resized,omitempty"`
	// ResizedUnder holds, by instance ID, the limits of the pod as a whole at that time.
	ResizedUnder map[string]v1.ResourceList `json:"resizedUnder,omitempty"`
	// RestartAll is set while all containers are removed to be started again (KEP-5532).
	RestartAll *RestartAll `json:"restartAll,omitempty"`
	// Carried holds, by container, the state with which its next instance continues after its instances were removed.
	Carried map[string]Carried `json:"carried,omitempty"`
}

// Failed is a failure for which a container has to end: of its startup or liveness probe, or of its postStart hook.
type Failed struct {
	Cause StopCause `json:"cause"`
	Probe ProbeKind `json:"probe,omitempty"`
	// Message says how that failed; it has nothing that the container printed.
	Message string `json:"message,omitempty"`
}

// RestartAll says why all containers of a pod are restarted.
type RestartAll struct {
	At        time.Time `json:"at"`
	Container string    `json:"container"`
	ExitCode  int32     `json:"exitCode"`
}

// Carried is the remembered state of a container's last instance after its removal.
type Carried struct {
	// Attempt is the next instance's number, Backoff what is recorded on it.
	Attempt int           `json:"attempt"`
	Backoff time.Duration `json:"backoff,omitempty"`
	// Last is how the last one ended; nil if it never ran.
	Last *v1.ContainerStateTerminated `json:"last,omitempty"`
}
