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
	// SourceRun is a person's `deckhand run FILE`; its pods live as long as that command.
	SourceRun Source = "run"
	// SourceAPI is an API server.
	SourceAPI Source = "api"
)

// Local reports whether pods of this source come from a manifest, and with them the objects that they refer to; they
// need no API server.
func (s Source) Local() bool { return s != "" && s != SourceAPI }

// SourceOf returns the source of a pod, by its annotation; empty for nil.
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
	// Source and Origin say where it comes from: Origin is a path or a URL.
	Source Source
	Origin string
	// Stale is empty while Pod comes from the newest text of the manifest. Otherwise it tells people why an older,
	// valid version is used.
	Stale string
	// Base is the content hash of the version that the pod was created from: edits
	// that are applied in place (image, resources, labels, annotations) leave it.
	Base string
	// Replaces says why the pod of this name before couldn't become this one by an
	// edit in place; empty if there was none.
	Replaces string
	// RequiresTerminalPhase is true for pods of an API server: the pod's object may only be removed once its phase is
	// terminal, and a pod that is removed before its containers ran has failed. The final status is reported until the
	// source drops the pod, which acknowledges it.
	RequiresTerminalPhase bool
	// UIDIsIdentity is true if every version with the pod's UID is an edit of this pod, even with a lower generation,
	// as after an API server's store was restored from a backup.
	UIDIsIdentity bool
	// Deletion says that the pod has to end though its source still has it, as an object that is being deleted
	// at an API server; nil for one that hasn't.
	Deletion *Deletion
}

// Deletion asks for a pod's end. Another one may ask for a nearer end.
type Deletion struct {
	// At is when this agent first received it, by its own clock. metadata.deletionTimestamp is by another one.
	At time.Time
	// Grace is how long the pod's containers may take from then on.
	Grace time.Duration
}

// Problem is an error in a source's manifests or around them, for a person to read.
type Problem struct {
	Source Source `json:"source"`
	// Origin is the path or URL, with the document's number when there are several.
	Origin string `json:"origin"`
	// Pod is "namespace/name", or empty if the name can't be found.
	Pod string `json:"pod,omitempty"`
	// Message names what is wrong and what to do, possibly over several lines.
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
	// General is true for a problem outside of manifests, such as one of their directory, a disk or the configuration.
	General bool `json:"general,omitempty"`
}

// Refusal is a pod of an API server that this node never runs, and why: its status says so.
type Refusal struct {
	UID     types.UID
	Reason  Reason
	Message string
}

// FullName is the pod's NAMESPACE/NAME, which is unique among live pods on a node.
func FullName(p *v1.Pod) string { return p.Namespace + "/" + p.Name }

// SandboxState is the CRI's pod sandbox state.
type SandboxState string

const (
	SandboxReady    SandboxState = "Ready"
	SandboxNotReady SandboxState = "NotReady"
)

// ContainerState is the CRI's container state. States only ever move forward: Created, Running, Exited. A runtime
// reports Unknown for a container whose shim it lost; it counts as ended.
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
	// IPs are the pod's addresses, the default one first; none on the host's network.
	IPs []string
	// HostNetwork is true where the sandbox uses the node's network namespace.
	HostNetwork bool
}

// Container is one instance of a container as the runtime reports it. Times are
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
	// Reason is the runtime's, mostly one of those in reasons.go.
	Reason Reason
	// Message is the runtime's description of the end, and the container's own termination message.
	Message string
	// Image is the reference asked for; ImageRef the runtime's resolved reference (digest or ID).
	Image    string
	ImageRef string
	LogPath  string
	// Backoff is how long a restart has to wait after this instance ended. It is
	// recorded on the container itself, so that it outlives the agent.
	Backoff time.Duration
	// Hash is the kubelet's hash of the container it was made from.
	Hash string
	// Grace is the pod's termination grace at creation, for pods whose spec is gone; nil if not recorded.
	Grace *int64
	// TerminationMessagePath is the host path of the file mounted for the message; empty if none.
	TerminationMessagePath string
	// TerminationMessagePolicy is empty for File, the API's default.
	TerminationMessagePolicy v1.TerminationMessagePolicy
	// CreatedWith holds the other settings of its creation, RuntimeReported the other values that the runtime reports;
	// nil where unknown. Both are immutable.
	CreatedWith     *CreatedWith
	RuntimeReported *RuntimeReported
}

// CreatedWith holds settings of a container's creation, recorded on the container itself.
type CreatedWith struct {
	// Resources are requests and limits; nil if another agent made the container. A
	// resize doesn't change them: see Checkpoint.Resized.
	Resources *v1.ResourceRequirements
	// PodLimits are those of the pod as a whole at that time: they hold for the container
	// where it has none of its own (KEP-2837). See Checkpoint.ResizedUnder.
	PodLimits v1.ResourceList
	// PreStop and Ports are for pods whose spec is gone.
	PreStop *v1.LifecycleHandler
	Ports   []v1.ContainerPort
}

// RuntimeReported holds values that the runtime reports of a container after its creation, in the API's terms.
type RuntimeReported struct {
	// User is the user of its first process; nil if the runtime doesn't report it.
	User         *v1.ContainerUser
	VolumeMounts []v1.VolumeMountStatus
	// StopSignal is the signal that stops it; empty if the runtime doesn't report it.
	StopSignal v1.Signal
}

// Ended reports whether the instance will never run again.
func (c *Container) Ended() bool {
	return c.State == ContainerExited || c.State == ContainerUnknown
}

// Observed is the runtime's state of one pod: an immutable snapshot.
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

// Live reports whether the runtime has containers of the pod that run, or may yet.
func (o *Observed) Live() bool {
	return o != nil && slices.ContainsFunc(o.Containers, func(c Container) bool { return !c.Ended() })
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

// EventType is v1.Event's type.
type EventType = string

// Event is something that happened to a pod and is worth telling.
type Event struct {
	Type    EventType
	Reason  Reason
	Message string
	// Container is the container it is about, if any.
	Container string
}

// Report is a worker's report of its pod: the one source of its status.
type Report struct {
	Desired *Desired
	Status  *v1.PodStatus
	// Waits are the reasons why the pod waits; Wake is the time of the next decision, zero if none is planned.
	Waits []Wait
	Wake  time.Time
	// Stopping says that the pod has to end, StoppingWhy for what reason and StoppingAt since when.
	Stopping    bool
	StoppingWhy string
	StoppingAt  time.Time
	// Gone says that the pod has ended: Status is final, and nothing keeps its object from going. Its containers'
	// records and logs stay until then.
	Gone bool
}
