// Package pod holds the nouns every other package shares: the pod that should
// run, what the runtime has of it, what is to be done about it and what came of
// that. It has no behaviour beyond naming things, and imports API types only.
//
// Everything here is a value handed from one owner to another. Pointers inside
// (such as Desired.Pod) are read-only once handed over: whoever wants a change
// makes a copy.
package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Source says where the wish for a pod came from. The values are those of the
// annotation kubernetes.io/config.source.
type Source string

const (
	// SourceFile is the manifest file or folder (staticPodPath).
	SourceFile Source = "file"
	// SourceHTTP is the manifest URL (staticPodURL).
	SourceHTTP Source = "http"
	// SourceRun is a person's `deckhand run FILE`; its pods live as long as that command.
	SourceRun Source = "run"
)

// Annotations of a static pod, as the kubelet writes them.
const (
	AnnotationConfigSource = "kubernetes.io/config.source"
	AnnotationConfigHash   = "kubernetes.io/config.hash"
	AnnotationConfigSeen   = "kubernetes.io/config.seen"
)

// Desired is one pod that should run on this node. It is immutable.
type Desired struct {
	// Pod is complete: defaulted, validated, with name, namespace and UID set.
	Pod *v1.Pod
	// Source and Origin say who wants it: Origin is a path or a URL.
	Source Source
	Origin string
	// Stale is empty while the newest text of the manifest is what Pod says.
	// Otherwise it tells a person why an older, good version is kept.
	Stale string
}

// Problem is something wrong with what a source says, told to a person.
type Problem struct {
	Source Source `json:"source"`
	// Origin is the path or URL, with the document's number when there are several.
	Origin string `json:"origin"`
	// Pod is "namespace/name" where it is known.
	Pod string `json:"pod,omitempty"`
	// Message names what is wrong and what to do, possibly over several lines.
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}

// FullName is the "name_namespace" pair that is unique among live pods on a node.
func FullName(p *v1.Pod) string { return p.Name + "_" + p.Namespace }

// SandboxState is the CRI's pod sandbox state.
type SandboxState string

const (
	SandboxReady    SandboxState = "Ready"
	SandboxNotReady SandboxState = "NotReady"
)

// ContainerState is the CRI's container state. States only ever move forward:
// Created, Running, Exited; Unknown is what a runtime says of a container whose
// shim it lost, and counts as ended.
type ContainerState string

const (
	ContainerCreated ContainerState = "Created"
	ContainerRunning ContainerState = "Running"
	ContainerExited  ContainerState = "Exited"
	ContainerUnknown ContainerState = "Unknown"
)

// Sandbox is one pod sandbox as the runtime tells it.
type Sandbox struct {
	ID        string
	State     SandboxState
	Attempt   uint32
	CreatedAt time.Time
	// IPs are the pod's addresses, the default one first; none on the host's network.
	IPs []string
	// HostNetwork is true where the sandbox uses the node's network namespace.
	HostNetwork bool
}

// Container is one instance of a container as the runtime tells it. Times are
// zero when they haven't come to pass.
type Container struct {
	ID        string
	Name      string
	SandboxID string
	// Attempt counts instances of this name in the pod, from 0: the restart count.
	Attempt    int
	State      ContainerState
	CreatedAt  time.Time
	StartedAt  time.Time
	FinishedAt time.Time
	ExitCode   int32
	// Reason and Message are the runtime's: "Completed", "Error", "OOMKilled", ...
	Reason  string
	Message string
	// Image is the reference asked for; ImageRef the runtime's resolved reference (digest or ID).
	Image    string
	ImageRef string
	LogPath  string
	// Backoff is how long a restart has to wait after this instance ended. It is
	// recorded on the container itself, so that it outlives the agent.
	Backoff time.Duration
	// Hash is the content hash of the container spec it was made from.
	Hash string
	// Grace is the pod's termination grace at creation, for pods whose spec is gone; nil if not recorded.
	Grace *int64
	// TerminationMessagePath is the host path of the file mounted for the message; empty if none.
	TerminationMessagePath string
}

// Ended reports whether the instance will never run again.
func (c *Container) Ended() bool {
	return c.State == ContainerExited || c.State == ContainerUnknown
}

// Observed is what the runtime has of one pod: an immutable snapshot.
type Observed struct {
	UID       types.UID
	Name      string
	Namespace string
	// Sandboxes, newest attempt first.
	Sandboxes []Sandbox
	// Containers, newest attempt first within a name; every instance the runtime still has.
	Containers []Container
}

// Empty reports whether the runtime has nothing of the pod.
func (o *Observed) Empty() bool {
	return o == nil || len(o.Sandboxes) == 0 && len(o.Containers) == 0
}

// Newest returns the newest instance of the named container, or nil.
func (o *Observed) Newest(name string) *Container {
	if o == nil {
		return nil
	}
	for i := range o.Containers {
		if o.Containers[i].Name == name {
			return &o.Containers[i]
		}
	}
	return nil
}

// ActionKind names an effect on the world.
type ActionKind string

const (
	// PreparePod makes the pod's folders, cgroup and volumes.
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
	// RemoveContainer removes the ended instance ID and its log.
	RemoveContainer ActionKind = "RemoveContainer"
	// CleanPod takes down what PreparePod made, and the pod's logs.
	CleanPod ActionKind = "CleanPod"
)

// Action is one effect the core asks for. Which fields count depends on Kind.
type Action struct {
	Kind      ActionKind `json:"kind"`
	Container string     `json:"container,omitempty"`
	ID        string     `json:"id,omitempty"`
	SandboxID string     `json:"sandboxID,omitempty"`
	Attempt   int        `json:"attempt,omitempty"`
	// ImageRef is the resolved image for CreateContainer.
	ImageRef string `json:"imageRef,omitempty"`
	// Grace is how long a stopped container may take before it is killed.
	Grace time.Duration `json:"grace,omitempty"`
	// Backoff is recorded on the container that CreateContainer makes.
	Backoff time.Duration `json:"backoff,omitempty"`
	// Why is the reason, in words, for logs, events and `deckhand why`.
	Why string `json:"why,omitempty"`
}

// Target names what the action works on. At most one action per target is under way.
func (a Action) Target() string {
	switch a.Kind {
	case EnsureImage, CreateContainer, StartContainer:
		return "container/" + a.Container
	case StopContainer, RemoveContainer:
		return "instance/" + a.ID
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
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Permanent says that trying again the same way can't help.
	Permanent bool `json:"permanent,omitempty"`
}

func (f *Failure) Error() string { return f.Reason + ": " + f.Message }

// Result is what came of an action.
type Result struct {
	Action Action `json:"action"`
	// ID is what the action made: a sandbox's or container's ID, an image's reference.
	ID      string   `json:"id,omitempty"`
	Failure *Failure `json:"failure,omitempty"`
	// Cancelled says that the action was given up because the core asked for that.
	Cancelled bool `json:"cancelled,omitempty"`
	// At is when it ended.
	At time.Time `json:"at"`
}

// EventType is v1.Event's type.
type EventType = string

// Event is something that happened to a pod and is worth telling.
type Event struct {
	Type    EventType
	Reason  string
	Message string
	// Container is the container it is about, if any.
	Container string
}

// Report is what a worker tells of its pod: the one source of its status.
type Report struct {
	Desired *Desired
	Status  *v1.PodStatus
	// Reasons say in words what the pod waits for; Wake is when it is looked at next, if that is known.
	Reasons []string
	Wake    time.Time
	// Stopping says why the pod has to end, StoppingAt since when; empty while it need not.
	Stopping   string
	StoppingAt time.Time
}
