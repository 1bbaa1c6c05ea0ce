package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// ActionKind is the kind of an action.
type ActionKind string

const (
	// AdmitPod decides whether the node admits the pod, and reserves its resources.
	AdmitPod ActionKind = "AdmitPod"
	// PreparePod makes the pod's directories, cgroup and volumes.
	PreparePod ActionKind = "PreparePod"
	// CreateSandbox makes and starts the pod's sandbox with the number Attempt.
	CreateSandbox ActionKind = "CreateSandbox"
	// StopSandbox stops sandbox ID, and takes down its network.
	StopSandbox ActionKind = "StopSandbox"
	// RemoveSandbox removes sandbox ID and every container in it.
	RemoveSandbox ActionKind = "RemoveSandbox"
	// EnsureImage makes sure that the image of Container is present, and pulls it according to the pull policy. Before
	// that it makes the volumes that only Container mounts, if it was added to the pod after PreparePod.
	EnsureImage ActionKind = "EnsureImage"
	// CreateContainer creates the instance with the number Attempt of Container, in sandbox SandboxID.
	CreateContainer ActionKind = "CreateContainer"
	// StartContainer starts the created instance ID of Container.
	StartContainer ActionKind = "StartContainer"
	// StopContainer stops instance ID of Container within Grace.
	StopContainer ActionKind = "StopContainer"
	// RemoveContainer removes instance ID, which has ended or never ran, and its log.
	RemoveContainer ActionKind = "RemoveContainer"
	// ReleaseVolumes unmounts the volumes of a pod that has ended but is still desired, removes the pod's cgroup,
	// and stops watching the objects that the pod refers to.
	ReleaseVolumes ActionKind = "ReleaseVolumes"
	// CleanPod undoes PreparePod, and removes the pod's logs and its records.
	CleanPod ActionKind = "CleanPod"
	// SaveCheckpoint writes Checkpoint to disk.
	SaveCheckpoint ActionKind = "SaveCheckpoint"
	// PostStart runs the postStart hook of the running instance ID of Container.
	PostStart ActionKind = "PostStart"
	// PreStop runs the preStop hook of instance ID of Container. When Grace is over, the container is stopped even if
	// the hook is still running, which ends the hook, too.
	PreStop ActionKind = "PreStop"
	// Allocate allocates the resources that the current spec of the pod requests, after a resize.
	Allocate ActionKind = "Allocate"
	// ResizePod sets the limits of the pod's cgroup to those in PodResources.
	ResizePod ActionKind = "ResizePod"
	// ResizeContainer changes the resources of the running instance ID of Container to Resources.
	ResizeContainer ActionKind = "ResizeContainer"
)

// Action is one action that the core requests. Kind determines which of the other fields are used.
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
	// Backoff is recorded on the container that CreateContainer creates: see Container.Backoff.
	Backoff time.Duration `json:"backoff,omitempty"`
	// Resources are the requests and limits of the container, for CreateContainer and ResizeContainer.
	Resources *v1.ResourceRequirements `json:"resources,omitempty"`
	// PodResources are, for PreparePod and ResizePod, the resources that the pod's cgroup has to allow. For
	// ResizeContainer they are the pod's allocation, if the pod has pod-level limits.
	PodResources *Allocation `json:"podResources,omitempty"`
	// KeepLog says that RemoveContainer keeps the instance's log for `logs --previous`, and removes the log of the
	// instance before it.
	KeepLog bool `json:"keepLog,omitempty"`
	// Checkpoint is the record that SaveCheckpoint writes.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	// Why is the reason for the action, as text for logs, events and `deckhand why`.
	Why string `json:"why,omitempty"`
}

// Target names the object that the action works on, such as a container or the whole pod. At most one action per
// target is under way.
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

// Failure is the failure of an action. Reason is one of the reasons that Kubernetes has for waiting containers
// (ErrImagePull, CreateContainerError, ...).
type Failure struct {
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
	// Permanent says that a retry of the same action can't succeed.
	Permanent bool `json:"permanent,omitempty"`
	// Rejected says that this node won't run the pod at all: the pod's phase becomes Failed, with Reason and Message
	// in its status. Only AdmitPod sets it.
	Rejected bool `json:"rejected,omitempty"`
	// Wait is set if the action didn't fail but has to wait, and is retried. It is the kind of the pod's wait, and
	// Message describes it for users. AdmitPod sets Wait if it neither admitted nor rejected the pod; any action,
	// including a hook that couldn't begin, may set WaitForProcesses.
	Wait WaitFor `json:"wait,omitempty"`
	// Awaits is the API object that is missing or incomplete, if that is why the action failed: when the object
	// changes, the action is retried at once.
	Awaits Object `json:"awaits,omitzero"`
	// Unknown is true while it isn't certain whether the awaited object exists. Only the executor reads it.
	Unknown bool `json:"-"`
	// Image is the image that couldn't be pulled, if the container mounts this image as a volume (KEP-4639). It is
	// empty for the container's own image.
	Image string `json:"image,omitempty"`
	// Disk says that a disk of this node is full or can't be written: a change of the manifest doesn't help.
	Disk bool `json:"disk,omitempty"`
	// Unanswered says that the container runtime didn't answer.
	Unanswered bool `json:"unanswered,omitempty"`
	// Expected says that each pod of this kind waits like this for a short time: there is no event yet.
	Expected bool `json:"expected,omitempty"`
	// NotBefore is when to retry the action, if the executor determines that; zero for the core's own back-off.
	NotBefore time.Time `json:"notBefore,omitzero"`
}

func (f *Failure) Error() string { return string(f.Reason) + ": " + f.Message }

// OfVolume reports whether the reason is that of a volume that can't be mounted or mapped.
func (r Reason) OfVolume() bool { return r == ReasonFailedMount || r == ReasonFailedMapVolume }

// Result is the result of an action.
type Result struct {
	Action Action `json:"action"`
	// ID identifies the object that the action made: the ID of a sandbox or container, or the reference of an image.
	ID string `json:"id,omitempty"`
	// Message describes a success, for an event ("Successfully pulled image ...").
	Message string   `json:"message,omitempty"`
	Failure *Failure `json:"failure,omitempty"`
	// Cancelled says that the action was cancelled by the core.
	Cancelled bool `json:"cancelled,omitempty"`
	// At is when the action ended.
	At time.Time `json:"at"`
}
