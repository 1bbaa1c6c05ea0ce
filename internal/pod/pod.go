package pod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Source says where a pod comes from. The values are those of the
// annotation kubernetes.io/config.source.
type Source string

const (
	// SourceFile is the manifest file or directory (staticPodPath).
	SourceFile Source = "file"
	// SourceHTTP is the manifest URL (staticPodURL).
	SourceHTTP Source = "http"
	// SourceRun is the command `deckhand run FILE` of a user; its pods live as long as the command runs.
	SourceRun Source = "run"
	// SourceAPI is an API server.
	SourceAPI Source = "api"
)

// Local reports whether the pods of this source, and the objects that these pods refer to, come from manifests, so
// that they need no API server.
func (s Source) Local() bool { return s != "" && s != SourceAPI }

// SourceOf returns the source of a pod, from its annotation; empty if p is nil.
func SourceOf(p *v1.Pod) Source {
	if p == nil {
		return ""
	}
	return Source(p.Annotations[AnnotationConfigSource])
}

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
	// Source and Origin say where the pod comes from: Origin is a path or a URL.
	Source Source
	Origin string
	// Stale is empty while Pod comes from the newest text of the manifest. Otherwise it is the reason, as text for
	// people, why an older, valid version is used.
	Stale string
	// Base is the content hash of the version that the pod was created from: edits that are applied in place (image,
	// resources, labels, annotations) don't change it.
	Base string
	// Replaces says why the previous pod of this name couldn't become this one by an edit in place; empty if there
	// was no previous pod.
	Replaces string
	// RequiresTerminalPhase is true for pods of an API server: the pod's object may only be removed when its phase
	// is terminal, and the phase of a pod that is removed before its containers ran is Failed. The final status is
	// reported until the source drops the pod, which acknowledges the status.
	RequiresTerminalPhase bool
	// UIDIsIdentity is true if every version with the pod's UID is an edit of this pod, even with a lower generation,
	// as after an API server's store was restored from a backup.
	UIDIsIdentity bool
	// Deletion is set if the pod has to end although its source still has it, because its object is being deleted at
	// an API server. It is nil for other pods.
	Deletion *Deletion
}

// Deletion is a request to end a pod. A later Deletion of the same pod may request an earlier end.
type Deletion struct {
	// At is when this agent first received the request, by the node's clock. (metadata.deletionTimestamp is by the
	// API server's clock.)
	At time.Time
	// Grace is how long the pod's containers may take to end, counted from At.
	Grace time.Duration
}

// Problem is an error in the manifests of a source, or in reading them, for a person to read.
type Problem struct {
	Source Source `json:"source"`
	// Origin is the manifest's path or URL, with the document's number if the manifest has several.
	Origin string `json:"origin"`
	// Pod is the "namespace/name" of the pod in the manifest, or empty if the name can't be found.
	Pod string `json:"pod,omitempty"`
	// Message names what is wrong and what to do, possibly over several lines.
	Message string `json:"message"`
	// Advice is a remedy; empty if the message has one.
	Advice string `json:"advice,omitempty"`
	// Since is when it was found; zero if that isn't tracked.
	Since time.Time `json:"since,omitzero"`
	// General is true for a problem that isn't in a manifest but, for example, with the directory of manifests, a
	// disk or the configuration.
	General bool `json:"general,omitempty"`
}

// Refusal is a pod of an API server that this node never runs, with the reason and message for the pod's status.
type Refusal struct {
	UID     types.UID
	Reason  Reason
	Message string
}

// FullName returns the pod's NAMESPACE/NAME, which is unique among the pods that run on a node.
func FullName(p *v1.Pod) string { return p.Namespace + "/" + p.Name }

// SandboxState is the CRI's pod sandbox state.
type SandboxState string

const (
	SandboxReady    SandboxState = "Ready"
	SandboxNotReady SandboxState = "NotReady"
)

// ContainerState is the CRI's container state. States only move forward: Created, Running, Exited. A runtime reports
// Unknown for a container whose shim it lost; such a container counts as ended.
type ContainerState string

const (
	ContainerCreated ContainerState = "Created"
	ContainerRunning ContainerState = "Running"
	ContainerExited  ContainerState = "Exited"
	ContainerUnknown ContainerState = "Unknown"
)

// Sandbox is one pod sandbox as the runtime reports it.
type Sandbox struct {
	ID        string
	State     SandboxState
	Attempt   uint32
	CreatedAt time.Time
	// IPs are the pod's addresses, the default one first. A sandbox on the host's network has none.
	IPs []string
	// HostNetwork is true if the sandbox uses the node's network namespace.
	HostNetwork bool
}

// Container is one instance of a container as the runtime reports it. A time is zero if the instance hasn't reached
// that state.
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
	// Reason is the runtime's reason for the end of the container, mostly one of those in reasons.go.
	Reason Reason
	// Message is the runtime's description of the end, and the container's own termination message.
	Message string
	// StartAborted: the instance never ran, because the agent died or its connection to the runtime broke during the
	// start, or because no process could be created for it. The container didn't fail.
	StartAborted bool
	// DiskFull: the instance couldn't be started, because a disk of the node was full.
	DiskFull bool
	// Image is the image reference in the request to create the container; ImageRef is the runtime's resolved
	// reference (digest or ID).
	Image    string
	ImageRef string
	LogPath  string
	// Backoff is how long the next restart has to wait after this instance has ended. It is recorded on the
	// container itself, so that it survives a restart of the agent.
	Backoff time.Duration
	// Hash is the kubelet's hash of the v1.Container from which the instance was created.
	Hash string
	// Grace is the pod's termination grace period in seconds when the container was created; nil if it isn't recorded.
	// It is used for pods whose spec isn't available any more.
	Grace *int64
	// TerminationMessagePath is the host path of the file that the container mounts for its termination message;
	// empty if it mounts none.
	TerminationMessagePath string
	// TerminationMessagePolicy is empty for File, the API's default.
	TerminationMessagePolicy v1.TerminationMessagePolicy
	// CreatedWith has further settings from the container's creation, RuntimeReported has further values that the
	// runtime reports. They are nil if unknown. Both are immutable.
	CreatedWith     *CreatedWith
	RuntimeReported *RuntimeReported
}

// CreatedWith holds settings of a container's creation, recorded on the container itself.
type CreatedWith struct {
	// Resources are the container's requests and limits; nil if another agent created the container. A resize
	// doesn't change them: see Checkpoint.Resized.
	Resources *v1.ResourceRequirements
	// PodLimits are the pod-level limits when the container was created. They hold for the container if it has no
	// limit of its own (KEP-2837). See Checkpoint.ResizedUnder.
	PodLimits v1.ResourceList
	// PreStop and Ports are the container's preStop hook and ports. They are used for pods whose spec isn't available
	// any more.
	PreStop *v1.LifecycleHandler
	Ports   []v1.ContainerPort
	// Sidecar is the position of a sidecar among the pod's init containers, from 1; 0 for other containers. It is used
	// for pods whose spec isn't available any more.
	Sidecar int
}

// RuntimeReported holds values that the runtime reports of a container after its creation, in the API's terms.
type RuntimeReported struct {
	// User is the user of the container's first process; nil if the runtime doesn't report it.
	User         *v1.ContainerUser
	VolumeMounts []v1.VolumeMountStatus
	// StopSignal is the signal that stops the container; empty if the runtime doesn't report it.
	StopSignal v1.Signal
}

// UnknownExitCode is the exit code of an instance whose end wasn't observed: that of SIGKILL. It isn't 0, so that such
// an instance doesn't count as successful.
const UnknownExitCode = 137

// Ended reports whether the instance will never run again.
func (c *Container) Ended() bool {
	return c.State == ContainerExited || c.State == ContainerUnknown
}

// Observed is the runtime's state of one pod: an immutable snapshot.
type Observed struct {
	UID       types.UID
	Name      string
	Namespace string
	// Sandboxes are the pod's sandboxes, the newest attempt first.
	Sandboxes []Sandbox
	// Containers are all instances of the pod's containers that the runtime still has. For each name, the newest
	// attempt comes first.
	Containers []Container
}

// Empty reports whether the runtime has neither sandboxes nor containers of the pod.
func (o *Observed) Empty() bool {
	return o == nil || len(o.Sandboxes) == 0 && len(o.Containers) == 0
}

// Live reports whether the runtime has containers of the pod that run or may still be started.
func (o *Observed) Live() bool {
	return o != nil && slices.ContainsFunc(o.Containers, func(c Container) bool { return !c.Ended() })
}

// Active reports whether the runtime has a container of the pod that hasn't ended, or a sandbox in which a container
// may be started again.
func (o *Observed) Active() bool {
	ready := func(b Sandbox) bool { return b.State == SandboxReady }
	return o.Live() || o != nil && slices.ContainsFunc(o.Sandboxes, ready)
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

// Instance returns the container instance with this ID, or nil.
func (o *Observed) Instance(id string) *Container {
	if o == nil {
		return nil
	}
	for i := range o.Containers {
		if o.Containers[i].ID == id {
			return &o.Containers[i]
		}
	}
	return nil
}

// Sandbox returns the sandbox with this ID, or nil.
func (o *Observed) Sandbox(id string) *Sandbox {
	if o == nil {
		return nil
	}
	for i := range o.Sandboxes {
		if o.Sandboxes[i].ID == id {
			return &o.Sandboxes[i]
		}
	}
	return nil
}

// EventType is the type of an event, as in v1.Event: Normal or Warning.
type EventType = string

// Event is an event about a pod, to be recorded as a v1.Event.
type Event struct {
	Type    EventType
	Reason  Reason
	Message string
	// Container is the name of the container that the event is about; empty for the whole pod.
	Container string
	// Annotations are metadata.annotations of the v1.Event.
	Annotations map[string]string
}

// Report is a worker's report about its pod. It is the only source of the pod's status.
type Report struct {
	Desired *Desired
	Status  *v1.PodStatus
	// Waits are the reasons why the pod waits. Wake is when the worker makes its next decision about the pod if no
	// event occurs before; zero if it makes none.
	Waits []Wait
	Wake  time.Time
	// Stopping says that the pod has to end. StoppingWhy is the reason for that, and StoppingAt is when that was
	// decided.
	Stopping    bool
	StoppingWhy string
	StoppingAt  time.Time
	// Gone says that the pod has ended: Status is final, and the pod's object may be removed. The records and logs
	// of its containers stay until the object is removed.
	Gone bool
}
