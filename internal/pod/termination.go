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

// Probe identifies one probe of one instance of a container. ID is the instance's ID.
type Probe struct {
	Container string    `json:"container"`
	ID        string    `json:"id"`
	Kind      ProbeKind `json:"kind"`
}

// ProbeResult is the result of a probe according to its thresholds: it changes when failureThreshold or
// successThreshold is reached, not with every single try.
type ProbeResult struct {
	Probe
	OK bool `json:"ok"`
	// At is when the result changed to this one.
	At time.Time `json:"at"`
	// Message says how the last try failed. It contains nothing that the container printed.
	Message string `json:"message,omitempty"`
}

// ProbeFailures counts the failures of a probe since its last success. Every failed try counts, even if
// failureThreshold isn't reached.
type ProbeFailures struct {
	Probe
	Count int `json:"count"`
	// Since is the time of the first of these failures, Last the time of the last one.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	// Message says how the last try failed. It contains nothing that the container printed.
	Message string `json:"message,omitempty"`
}

// PodTermination says that a pod has to end although a source still has it (eviction, preemption, node shutdown).
// The pod isn't started again, and its phase becomes Failed.
type PodTermination struct {
	// At is when the end of the pod was decided. The grace period begins then.
	At time.Time `json:"at"`
	// Grace shortens the pod's own termination grace period; nil doesn't change it.
	Grace *time.Duration `json:"grace,omitempty"`
	// Reason and Message go into the pod's status ("Evicted", "NodeShutdown", ...).
	Reason  Reason `json:"reason"`
	Message string `json:"message,omitempty"`
	// Annotations are those of the event with this Reason and Message, such as "starved_resource" of an eviction.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Rejected says that the node never admitted the pod, so that the pod has no containers.
	Rejected bool `json:"rejected,omitempty"`
	// Generation is the generation of the spec that was rejected. The rejection doesn't hold for other generations.
	Generation int64 `json:"generation,omitempty"`
	// ByExit says that the phase depends on the exit codes of the containers instead: it is Succeeded if all main
	// containers exit with code 0.
	ByExit bool `json:"byExit,omitempty"`
	// Disruption sets the condition DisruptionTarget with reason TerminationByKubelet (KEP-3329).
	Disruption bool `json:"disruption,omitempty"`
}

// Terminal returns the phase if it is final (Succeeded or Failed), else "".
func Terminal(p v1.PodPhase) v1.PodPhase {
	if p == v1.PodSucceeded || p == v1.PodFailed {
		return p
	}
	return ""
}

// Allocation is the resources that this node has allocated to a pod. While a resize isn't allocated yet, the pod's spec
// requests other amounts (KEP-1287). An Allocation is immutable.
type Allocation struct {
	// Generation is the generation of the spec for which the resources were allocated.
	Generation int64 `json:"generation,omitempty"`
	// Containers has the requests and limits of each container by its name, including init containers.
	Containers map[string]v1.ResourceRequirements `json:"containers,omitempty"`
	// Pod has the pod-level requests and limits, spec.resources (KEP-2837); nil if the pod has none.
	Pod *v1.ResourceRequirements `json:"pod,omitempty"`
	// Overhead is the pod's use of resources beside its containers (spec.overhead).
	Overhead v1.ResourceList `json:"overhead,omitempty"`
	// Total is the request of the whole pod, including overhead.
	Total v1.ResourceList `json:"total,omitempty"`
}

// Checkpoint is the state of one pod that has to survive a restart of the agent and isn't recorded on the pod's
// containers. It is immutable: to change the state, make another Checkpoint.
type Checkpoint struct {
	// Base is the Desired.Base of the pod if its manifest sets the UID: another pod may have the same UID, and Base
	// distinguishes the two. It is empty for other pods.
	Base string `json:"base,omitempty"`
	// StartTime is when this node first saw the pod (PodStatus.startTime).
	StartTime time.Time `json:"startTime,omitzero"`
	// DeadlineFrom is the time from which activeDeadlineSeconds count, on the present wall clock, if the clock was set
	// after StartTime. It is zero for pods without a deadline.
	DeadlineFrom time.Time `json:"deadlineFrom,omitzero"`
	// Termination is set when the pod has to end although a source still has it.
	Termination *PodTermination `json:"ending,omitempty"`
	// EndBy is when the containers of a pod that has to end are killed. A later value never replaces an earlier one.
	// EndBy is set only for pods that their source still has.
	EndBy time.Time `json:"endBy,omitzero"`
	// Terminal is the pod's final phase (Succeeded or Failed); empty before the pod has reached it.
	Terminal v1.PodPhase `json:"terminal,omitempty"`
	// Final is the final status of a pod whose object is being deleted: it is reported until the object is removed.
	Final *v1.PodStatus `json:"final,omitempty"`
	// PostStartDone, Started and Ready list the IDs of instances. PostStartDone has those whose postStart hook has
	// completed, Started those that have passed their startup probe, and Ready those that were ready according to the
	// last result of their readiness probe. Instances without such a hook or probe aren't listed.
	PostStartDone []string `json:"hooked,omitempty"`
	Started       []string `json:"started,omitempty"`
	Ready         []string `json:"ready,omitempty"`
	// Failed maps the ID of an instance to the failure because of which it has to end or has ended.
	Failed map[string]Failed `json:"failed,omitempty"`
	// Renew holds the IDs of instances that were killed for a new image or for new resources: each is followed by
	// another instance whatever the restart policy is.
	Renew []string `json:"renew,omitempty"`
	// Resizing holds the IDs of instances that are being resized: their resources are unknown until the resize has
	// succeeded.
	Resizing []string `json:"resizing,omitempty"`
	// Resized maps the ID of an instance to its resources after its last resize.
	Resized map[string]v1.ResourceRequirements `json:"resized,omitempty"`
	// ResizedUnder maps the ID of an instance to the pod-level limits at the time of its last resize.
	ResizedUnder map[string]v1.ResourceList `json:"resizedUnder,omitempty"`
	// RestartAll is set while all containers of the pod are being removed in order to start them again (KEP-5532). It
	// stays set after that while the checkpoint can't be written.
	RestartAll *RestartAll `json:"restartAll,omitempty"`
	// Carried maps the name of a container without instances to the state with which its next instance continues.
	Carried map[string]Carried `json:"carried,omitempty"`
}

// Failed is a failure that ends a container: the failure of its startup or liveness probe, or of its postStart hook.
type Failed struct {
	Cause StopCause `json:"cause"`
	Probe ProbeKind `json:"probe,omitempty"`
	// Message says how the probe or hook failed. It contains nothing that the container printed.
	Message string `json:"message,omitempty"`
}

// RestartAll says why all containers of a pod are restarted: Container exited with ExitCode at the time At.
type RestartAll struct {
	At        time.Time `json:"at"`
	Container string    `json:"container"`
	ExitCode  int32     `json:"exitCode"`
	// IDs are the instances that existed at the time At: once all of them are removed, the restart isn't repeated.
	// Checkpoints of earlier versions have no IDs.
	IDs []string `json:"ids,omitempty"`
}

// Carried is the remembered state of a container's last instance after its removal.
type Carried struct {
	// Attempt is the next instance's number, Backoff the back-off that is recorded on the next instance
	// (Container.Backoff).
	Attempt int           `json:"attempt"`
	Backoff time.Duration `json:"backoff,omitempty"`
	// Last is how the last instance ended; nil if it never ran.
	Last *v1.ContainerStateTerminated `json:"last,omitempty"`
}
