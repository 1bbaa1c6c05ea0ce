package pod

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// WaitCode says what a pod, or one of its containers, waits for. The comments name in parentheses the fields of Wait
// that are set for the code.
type WaitCode string

const (
	// WaitRuntime: the container runtime isn't ready (Message).
	WaitRuntime WaitCode = "Runtime"
	// WaitPredecessor: another pod of the same name has to end first.
	WaitPredecessor WaitCode = "Predecessor"
	// WaitDecision: the worker hasn't decided about the pod yet.
	WaitDecision WaitCode = "Decision"
	// WaitAdmission: the node hasn't admitted the pod yet (For, Message).
	WaitAdmission WaitCode = "Admission"
	// WaitRejected: the node has rejected the pod (Reason), which waits for nothing.
	WaitRejected WaitCode = "Rejected"
	// WaitAction: Action is under way (Image, Pull).
	WaitAction WaitCode = "Action"
	// WaitRetry: Action failed and is tried again (Reason, Message, Attempts, Object, Image, Disk, For).
	WaitRetry WaitCode = "Retry"
	// WaitBackOff: the container ended and is started again later. ExitCode is set; Cause, Probe and Message if the
	// agent stopped the container; Reason and Message if it ran out of memory or never ran; Disk if a full disk
	// prevented its start.
	WaitBackOff WaitCode = "BackOff"
	// WaitSandboxBackOff: the sandbox ended soon after its creation, and the next one is created later.
	WaitSandboxBackOff WaitCode = "SandboxBackOff"
	// WaitTarget: the target container of an ephemeral container has to run (Other).
	WaitTarget WaitCode = "TargetContainer"
	// WaitInit: the init container has to succeed.
	WaitInit WaitCode = "InitContainer"
	// WaitProbe: the container runs, and its Probe hasn't succeeded yet (Message and Attempts if it has failed).
	WaitProbe WaitCode = "Probe"
	// WaitProbeFailed: the container runs, and its Probe fails (Message, Attempts).
	WaitProbeFailed WaitCode = "ProbeFailed"
	// WaitGate: the condition of a readiness gate isn't true (Gate).
	WaitGate WaitCode = "ReadinessGate"
	// WaitEnded: the container has ended and isn't started again, while others still run (ExitCode).
	WaitEnded WaitCode = "Ended"
	// WaitStop: the container has to end (Cause, Probe, Message).
	WaitStop WaitCode = "ContainerStop"
	// WaitStopOutlived: the container has to end (Cause, Probe, Message): the cause doesn't exist any more, but the
	// stop had already begun.
	WaitStopOutlived WaitCode = "ContainerStopOutlived"
	// WaitOldInstance: an instance of the container in an older sandbox has to end.
	WaitOldInstance WaitCode = "OldInstance"
	// WaitUnusable: an instance that never ran and can't be used is removed.
	WaitUnusable WaitCode = "UnusableInstance"
	// WaitUnknown: an instance in the runtime's state Unknown, which may still run, is stopped.
	WaitUnknown WaitCode = "UnknownInstance"
	// WaitAbortedStart: an instance whose start was aborted is removed.
	WaitAbortedStart WaitCode = "AbortedStart"
	// WaitSandboxGone: the processes in a dead sandbox have to end.
	WaitSandboxGone WaitCode = "SandboxGone"
	// WaitRestartAll: all containers are restarted, because one of them ended (Other, ExitCode).
	WaitRestartAll WaitCode = "RestartAllContainers"
	// WaitResize: a resize is under way.
	WaitResize WaitCode = "Resize"
	// WaitPodStop: the pod has to end (Message). If Action is set, that action has to end first.
	WaitPodStop WaitCode = "PodStop"
	// WaitStopped: a person has stopped the pod, and nothing of it is left.
	WaitStopped WaitCode = "Stopped"
	// WaitObjectGone: the pod has ended, and its object is still there.
	WaitObjectGone WaitCode = "ObjectGone"
)

// WaitFor says what a pod waits for before the node admits it, or before an action can begin (WaitForProcesses).
type WaitFor string

const (
	// WaitForRoom: pods that are ending will free the resources that the pod requests.
	WaitForRoom WaitFor = "Room"
	// WaitForAddress: the node has no address yet.
	WaitForAddress WaitFor = "Address"
	// WaitForRuntime: the container runtime hasn't reported its features yet.
	WaitForRuntime WaitFor = "Runtime"
	// WaitForPlugin: a device plugin hasn't registered yet, or doesn't answer.
	WaitForPlugin WaitFor = "Plugin"
	// WaitForPressure: the node is short of memory, disk space or process IDs, and there is no cluster whose scheduler
	// would place the pod elsewhere.
	WaitForPressure WaitFor = "Pressure"
	// WaitForProcesses: no process or thread can be created, because a limit on their number has been reached.
	WaitForProcesses WaitFor = "Processes"
	// WaitForCPUs: another container still runs on CPUs that the container has to itself.
	WaitForCPUs WaitFor = "CPUs"
)

// StopCause says why one container has to end although its pod continues.
type StopCause string

const (
	// StopPostStartHook: its postStart hook failed.
	StopPostStartHook StopCause = "PostStartHook"
	// StopProbe: the container's startup or liveness probe failed.
	StopProbe StopCause = "Probe"
	// StopImage: the spec has another image for the container.
	StopImage StopCause = "Image"
	// StopResize: the container's resources change, and it has to be restarted for that.
	StopResize StopCause = "Resize"
)

// Wait is one reason why a pod waits. Package explain describes it for people; the only texts in it are messages of
// other programs. Waits may be compared with ==.
type Wait struct {
	Code WaitCode `json:"code"`
	// Container is the container that waits; empty if the whole pod waits.
	Container string `json:"container,omitempty"`
	// Since is when the wait began.
	Since time.Time `json:"since,omitzero"`
	// Next is when the agent acts next, for example with a retry; zero if only an event can end the wait.
	Next time.Time `json:"next,omitzero"`

	For    WaitFor    `json:"for,omitempty"`
	Action ActionKind `json:"action,omitempty"`
	// Attempts is how often the action or the probe failed in a row.
	Attempts int    `json:"attempts,omitempty"`
	Reason   Reason `json:"reason,omitempty"`
	// Message is a message of the API, of the runtime or of a probe, or the reason why a container or the pod has to
	// end.
	Message string    `json:"message,omitempty"`
	Cause   StopCause `json:"cause,omitempty"`
	// Object is the API object that has to be created or changed.
	Object Object `json:"object,omitzero"`
	// Disk says that a disk of the node is full or can't be written.
	Disk bool `json:"disk,omitempty"`
	// Image is the image reference in the spec; Pull is the progress of its pull.
	Image string    `json:"image,omitempty"`
	Pull  Pull      `json:"pull,omitzero"`
	Probe ProbeKind `json:"probe,omitempty"`
	Gate  string    `json:"gate,omitempty"`
	// Other is the name of another container of the pod, to which the wait refers.
	Other    string `json:"other,omitempty"`
	ExitCode int32  `json:"exitCode,omitempty"`
}

// Key identifies the wait: it is equal for two Waits that differ only in their times, attempts or progress.
func (w *Wait) Key() string {
	key := w.Container + "/" + string(w.Code)
	for _, part := range [...]string{string(w.For), string(w.Action), string(w.Reason), w.Message, w.Object.String(),
		w.Image, string(w.Cause), string(w.Probe), w.Gate, w.Other} {
		if part != "" {
			key += "/" + part
		}
	}
	if w.ExitCode != 0 {
		key += "/" + strconv.Itoa(int(w.ExitCode))
	}
	return key
}

// Pull is the progress of the pull of an image.
type Pull struct {
	// Queued is the position of the pull in the queue of pulls, from 1; 0 if it isn't in the queue.
	Queued int `json:"queued,omitempty"`
	// Begun says that the pull is in progress.
	Begun bool `json:"begun,omitempty"`
	// LayersDone of Layers are present, and BytesDone of Bytes; all 0 if the runtime doesn't report them.
	LayersDone int   `json:"layersDone,omitempty"`
	Layers     int   `json:"layers,omitempty"`
	BytesDone  int64 `json:"bytesDone,omitempty"`
	Bytes      int64 `json:"bytes,omitempty"`
}

// CSIDriver is the Kind of an Object that isn't an API object: a CSI driver that has to register.
const CSIDriver = "CSI driver"

// Object names an object of the API.
type Object struct {
	Kind string `json:"kind,omitempty"`
	// Namespace is empty for kinds without namespaces.
	Namespace string `json:"namespace,omitempty"`
	// Name is empty if the Object stands for any object of the kind.
	Name string `json:"name,omitempty"`
}

// String returns the object's kind and name as text for people: "ConfigMap default/web", "RuntimeClass kata".
func (o Object) String() string {
	switch {
	case o == Object{}:
		return ""
	case o.Name == "":
		return "any " + o.Kind + " in namespace " + o.Namespace
	case o.Namespace == "":
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// UnmarshalJSON decodes an Object. It also accepts the format of older journals, a string such as "ConfigMap
// default/web".
func (o *Object) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		type plain Object
		return json.Unmarshal(data, (*plain)(o))
	}
	*o = Object{}
	o.Kind, o.Name, _ = strings.Cut(text, " ")
	if namespace, name, ok := strings.Cut(o.Name, "/"); ok {
		o.Namespace, o.Name = namespace, name
	}
	return nil
}
