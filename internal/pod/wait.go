package pod

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// WaitCode says what a pod, or one of its containers, waits for. The comments name the
// fields of Wait that say more.
type WaitCode string

const (
	// WaitRuntime: the container runtime isn't ready (Message).
	WaitRuntime WaitCode = "Runtime"
	// WaitPredecessor: another pod of the same name has to end first.
	WaitPredecessor WaitCode = "Predecessor"
	// WaitDecision: nothing was decided about the pod yet.
	WaitDecision WaitCode = "Decision"
	// WaitAdmission: the node doesn't let the pod run yet (For, Message).
	WaitAdmission WaitCode = "Admission"
	// WaitRejected: the node doesn't run the pod (Reason); nothing is waited for.
	WaitRejected WaitCode = "Rejected"
	// WaitAction: Action is under way (Image, Pull).
	WaitAction WaitCode = "Action"
	// WaitRetry: Action failed and is tried again (Reason, Message, Attempts, Object, Image, Disk).
	WaitRetry WaitCode = "Retry"
	// WaitBackOff: the container ended and is started again later (ExitCode; Cause, Probe and Message where it was made
	// to end; Reason and Message where it ran out of memory or never ran).
	WaitBackOff WaitCode = "BackOff"
	// WaitSandboxBackOff: the sandbox ended soon after it was made, the next is made later.
	WaitSandboxBackOff WaitCode = "SandboxBackOff"
	// WaitTarget: the container whose processes an ephemeral one targets has to run (Other).
	WaitTarget WaitCode = "TargetContainer"
	// WaitInit: the init container has to succeed.
	WaitInit WaitCode = "InitContainer"
	// WaitProbe: the container runs, and its Probe hasn't succeeded yet (Message, Attempts, where it has failed).
	WaitProbe WaitCode = "Probe"
	// WaitProbeFailed: the container runs, and its Probe fails (Message, Attempts).
	WaitProbeFailed WaitCode = "ProbeFailed"
	// WaitGate: the condition of a readiness gate isn't true (Gate).
	WaitGate WaitCode = "ReadinessGate"
	// WaitEnded: the container has ended and isn't started again, while others run (ExitCode).
	WaitEnded WaitCode = "Ended"
	// WaitStop: the container has to end (Cause, Probe, Message).
	WaitStop WaitCode = "ContainerStop"
	// WaitStopOutlived: the same, and the cause is over since.
	WaitStopOutlived WaitCode = "ContainerStopOutlived"
	// WaitOldInstance: an instance of the container in an older sandbox has to end.
	WaitOldInstance WaitCode = "OldInstance"
	// WaitUnusable: an instance that never ran and can't be used is removed.
	WaitUnusable WaitCode = "UnusableInstance"
	// WaitUnknown: an instance of which the runtime doesn't know whether it runs is stopped.
	WaitUnknown WaitCode = "UnknownInstance"
	// WaitAbortedStart: an instance whose start was aborted is removed.
	WaitAbortedStart WaitCode = "AbortedStart"
	// WaitSandboxGone: the processes in a dead sandbox have to end.
	WaitSandboxGone WaitCode = "SandboxGone"
	// WaitRestartAll: all containers are restarted because of one's end (Other, ExitCode).
	WaitRestartAll WaitCode = "RestartAllContainers"
	// WaitResize: a resize is under way.
	WaitResize WaitCode = "Resize"
	// WaitPodStop: the pod has to end (Message), for which an Action has to end first, if there is one.
	WaitPodStop WaitCode = "PodStop"
	// WaitStopped: a person has stopped the pod, and nothing of it is left.
	WaitStopped WaitCode = "Stopped"
	// WaitObjectGone: the pod has ended, and its object is still there.
	WaitObjectGone WaitCode = "ObjectGone"
)

// WaitFor is the kind of a wait before the node admits a pod.
type WaitFor string

const (
	// WaitForRoom: pods that are ending will free the resources.
	WaitForRoom WaitFor = "Room"
	// WaitForAddress: the node has no address yet.
	WaitForAddress WaitFor = "Address"
	// WaitForRuntime: the container runtime hasn't reported its features yet.
	WaitForRuntime WaitFor = "Runtime"
	// WaitForPlugin: a device plugin hasn't registered yet, or doesn't answer.
	WaitForPlugin WaitFor = "Plugin"
)

// StopCause says why one container of a living pod has to end.
type StopCause string

const (
	// StopPostStartHook: its postStart hook failed.
	StopPostStartHook StopCause = "PostStartHook"
	// StopProbe: its startup or liveness probe failed.
	StopProbe StopCause = "Probe"
	// StopImage: the spec has another image for it.
	StopImage StopCause = "Image"
	// StopResize: it gets other resources, for which it has to be started again.
	StopResize StopCause = "Resize"
)

// Wait is one reason why a pod waits. It has no text for people but those of others: package explain writes them. Waits
// may be compared with ==.
type Wait struct {
	Code WaitCode `json:"code"`
	// Container is the one that waits; empty for the pod as a whole.
	Container string `json:"container,omitempty"`
	// Since is when this wait began.
	Since time.Time `json:"since,omitzero"`
	// Next is when something is done next; zero if only an event can end the wait.
	Next time.Time `json:"next,omitzero"`

	For    WaitFor    `json:"for,omitempty"`
	Action ActionKind `json:"action,omitempty"`
	// Attempts is how often the action or the probe failed in a row.
	Attempts int    `json:"attempts,omitempty"`
	Reason   Reason `json:"reason,omitempty"`
	// Message is the API's, the runtime's or a probe's, or why something has to end.
	Message string    `json:"message,omitempty"`
	Cause   StopCause `json:"cause,omitempty"`
	// Object is the object that has to appear or to change.
	Object Object `json:"object,omitzero"`
	// Disk says that a disk is full or can't be written.
	Disk bool `json:"disk,omitempty"`
	// Image is as the spec names it; Pull is how far its pull is.
	Image string    `json:"image,omitempty"`
	Pull  Pull      `json:"pull,omitzero"`
	Probe ProbeKind `json:"probe,omitempty"`
	Gate  string    `json:"gate,omitempty"`
	// Other is another container of the pod.
	Other    string `json:"other,omitempty"`
	ExitCode int32  `json:"exitCode,omitempty"`
}

// Key is the same for a wait as long as it is for the same thing, whenever that is over
// and however often it was tried.
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

// Pull is how far the pull of an image is.
type Pull struct {
	// Queued is its place among the pulls that wait for their turn, from 1.
	Queued int `json:"queued,omitempty"`
	// Begun says that it is under way.
	Begun bool `json:"begun,omitempty"`
	// LayersDone of Layers are present, and BytesDone of Bytes; all 0 if the runtime doesn't report them.
	LayersDone int   `json:"layersDone,omitempty"`
	Layers     int   `json:"layers,omitempty"`
	BytesDone  int64 `json:"bytesDone,omitempty"`
	Bytes      int64 `json:"bytes,omitempty"`
}

// Object names an object of the API.
type Object struct {
	Kind string `json:"kind,omitempty"`
	// Namespace is empty for kinds that aren't in one.
	Namespace string `json:"namespace,omitempty"`
	// Name is empty for any object of the kind.
	Name string `json:"name,omitempty"`
}

// String is the object as a person reads it: "ConfigMap default/web", "RuntimeClass kata".
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

// UnmarshalJSON also reads an object as older journals have it, "ConfigMap default/web".
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
