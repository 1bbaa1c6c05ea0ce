package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// ActionKind names what an action does.
type ActionKind string

const (
	// AdmitPod decides whether the node admits the pod, and reserves its resources.
	AdmitPod ActionKind = "AdmitPod"
	// PreparePod makes the pod's directories, cgroup and volumes.
	PreparePod ActionKind = "PreparePod"
	// CreateSandbox makes and starts a sandbox with Attempt.
	CreateSandbox ActionKind = "CreateSandbox"
	// StopSandbox stops sandbox ID, and with it its network.
	StopSandbox ActionKind = "StopSandbox"
	// RemoveSandbox removes sandbox ID and every container in it.
	RemoveSandbox ActionKind = "RemoveSandbox"
	// EnsureImage makes the image of Container present, by its pull policy.
	EnsureImage ActionKind = "EnsureImage"
	// CreateContainer makes the instance Attempt of Container in sandbox SandboxID.
	CreateContainer ActionKind = "CreateContainer"
	// StartContainer starts the created instance ID of Container.
	StartContainer ActionKind = "StartContainer"
	// StopContainer stops instance ID of Container within Grace.
	StopContainer ActionKind = "StopContainer"
	// RemoveContainer removes instance ID, which has ended or never ran, and its log.
	RemoveContainer ActionKind = "RemoveContainer"
	// ReleaseVolumes unmounts the volumes of a pod that has run to its end and stays known, removes its cgroup, and no
	// longer follows what it refers to.
	ReleaseVolumes ActionKind = "ReleaseVolumes"
	// CleanPod undoes PreparePod, and removes the pod's logs and its records.
	CleanPod ActionKind = "CleanPod"
	// SaveCheckpoint writes Checkpoint to disk.
	SaveCheckpoint ActionKind = "SaveCheckpoint"
	// PostStart runs the postStart hook of the running instance ID of Container.
	PostStart ActionKind = "PostStart"
	// PreStop runs the preStop hook of instance ID of Container, which is stopped after Grace even if
	// that hasn't ended: a hook ends with its container at the latest.
	PreStop ActionKind = "PreStop"
	// Allocate allocates the resources that the pod's spec requests now.
	Allocate ActionKind = "Allocate"
	// ResizePod sets the limits of the pod's cgroup to those of PodResources.
	ResizePod ActionKind = "ResizePod"
	// ResizeContainer gives the running instance ID of Container the Resources.
	ResizeContainer ActionKind = "ResizeContainer"
)

// Action is one action that the core asks for. Which fields count depends on Kind.
type Action struct {
	Kind      ActionKind `json:"kind"`
	Container string     `json:"container,omitempty"`
	ID        string     `json:"id,omitempty"`
	SandboxID string     `json:"sandboxID,omitempty"`
	Attempt   int        `json:"attempt,omitempty"`
	// Image is the image that EnsureImage makes present, as the spec names it.
	Image string `json:"image,omitempty"`
	// ImageRef is the resolved image for CreateContainer.
	ImageRef string `json:"imageRef,omitempty"`
	// Grace is how long a stopped container may take before it is killed.
	Grace time.Duration `json:"grace,omitempty"`
	// Backoff is recorded on the container that CreateContainer makes.
	Backoff time.Duration `json:"backoff,omitempty"`
	// Resources are for CreateContainer and ResizeContainer.
	Resources *v1.ResourceRequirements `json:"resources,omitempty"`
	// PodResources are for PreparePod and ResizePod: the resources that the pod's cgroup has to allow; and for
	// ResizeContainer, if the pod has pod-level limits, its allocation.
	PodResources *Allocation `json:"podResources,omitempty"`
	// KeepLog leaves the log of a removed instance for `logs --previous`; that of the
	// instance before it goes.
	KeepLog bool `json:"keepLog,omitempty"`
	// Checkpoint is the record that SaveCheckpoint writes.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	// Why is the reason, in words, for logs, events and `deckhand why`.
	Why string `json:"why,omitempty"`
}

// Target names what the action works on. At most one action per target is under way.
func (a Action) Target() string {
	switch a.Kind {
	case EnsureImage, CreateContainer, StartContainer, PostStart:
		return "container/" + a.Container
	case StopContainer, RemoveContainer:
		return "instance/" + a.ID
	case PreStop:
		return "hook/" + a.ID
	case ResizeContainer:
		return "resources/" + a.ID
	case Allocate, ResizePod:
		return "resources"
	case SaveCheckpoint:
		return "kept"
	case StopSandbox, RemoveSandbox:
		return "sandbox/" + a.ID
	case CreateSandbox:
		return "sandbox"
	default:
		return "pod"
	}
}

// Failure is why an action did not succeed. Reason is one of Kubernetes'
// waiting reasons (ErrImagePull, CreateContainerError, ...).
type Failure struct {
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
	// Permanent says that trying again the same way can't help.
	Permanent bool `json:"permanent,omitempty"`
	// Rejected says that this node won't run the pod at all: it fails for good, with
	// Reason and Message in its status. Only AdmitPod fails so.
	Rejected bool `json:"rejected,omitempty"`
	// Wait says what a pod that is neither admitted nor rejected waits for: the action is
	// retried. Message says it to a person.
	Wait WaitFor `json:"wait,omitempty"`
	// Awaits is the object that is missing, or in which something is missing: when objects
	// change, the action is retried at once.
	Awaits Object `json:"awaits,omitzero"`
	// Unknown is true while it isn't certain whether the awaited object exists. Only the executor reads it.
	Unknown bool `json:"-"`
	// Image is the image that couldn't be had, where it isn't the container's own but one that it mounts (KEP-4639).
	Image string `json:"image,omitempty"`
	// Disk says that a disk of this node is full or can't be written: nothing in the manifest helps.
	Disk bool `json:"disk,omitempty"`
	// NotBefore is when to retry, where the executor knows that; zero for the
	// core's own back-off.
	NotBefore time.Time `json:"notBefore,omitzero"`
}

func (f *Failure) Error() string { return string(f.Reason) + ": " + f.Message }

// Result is the result of an action.
type Result struct {
	Action Action `json:"action"`
	// ID identifies the result of the action: a sandbox's or container's ID, an image's reference.
	ID string `json:"id,omitempty"`
	// Message says more about a success ("Successfully pulled image ..."), for an event.
	Message string   `json:"message,omitempty"`
	Failure *Failure `json:"failure,omitempty"`
	// Cancelled says that the action was cancelled by the core.
	Cancelled bool `json:"cancelled,omitempty"`
	// At is when it ended.
	At time.Time `json:"at"`
}
