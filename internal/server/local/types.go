// Package local is the API that `deckhand` commands use to talk to the agent on
// their own machine: HTTP/1.1 over a unix socket in the agent's root directory.
// Only root and the agent's own user may use it.
package local

import (
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/explain"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// SocketPath is where the agent with this root directory listens.
func SocketPath(rootDir string) string { return filepath.Join(rootDir, "deckhand.sock") }

// PodView is what the agent knows of one pod.
type PodView struct {
	// Pod carries the current status.
	Pod *v1.Pod `json:"pod"`
	// Source and Origin say who wants it; Origin is a path or a URL.
	Source pod.Source `json:"source,omitempty"`
	Origin string     `json:"origin,omitempty"`
	// Stale says why an older, good version of the manifest is kept; mostly empty.
	Stale string `json:"stale,omitempty"`
	// Stopped says that a person has stopped the pod, and that nothing of it runs.
	Stopped bool `json:"stopped,omitempty"`
	// Waits say why the pod isn't ready; empty if it is.
	Waits []Wait `json:"waits,omitempty"`
}

// Word is what is most worth knowing of the pod in a word.
func (v *PodView) Word() string {
	if v.Stopped {
		return "Stopped"
	}
	return podstatus.Word(v.Pod)
}

// Done reports whether the pod is as it should be: ready, ended well, or stopped by a person.
func (v *PodView) Done() bool { return v.Stopped || podstatus.Done(v.Pod) }

// Over reports whether nothing of the pod is going to run.
func (v *PodView) Over() bool { return v.Stopped || podstatus.Over(v.Pod) }

// OfRun reports whether the pod may be one of `deckhand run`, and not another source's of that name.
func (v *PodView) OfRun() bool { return v.Source == "" || v.Source == pod.SourceRun }

// Reason says in words why the pod isn't as it should be: what it waits for, or why it failed.
func (v *PodView) Reason() string {
	if v.Pod.Status.Phase != v1.PodFailed || v.Stopped {
		return v.Waiting()
	}
	failure := ""
	if podstatus.SaysWhyFailed(v.Pod) {
		failure = podstatus.Failure(v.Pod)
	}
	if len(v.Waits) == 1 && v.Waits[0].Code == pod.WaitRejected && failure != "" {
		return "rejected by the node: " + failure // nothing is waited for
	}
	waits := v.Waiting()
	if failure != "" && waits != "" {
		failure += "; "
	}
	return failure + waits
}

// Waiting says in words what the pod waits for.
func (v *PodView) Waiting() string { return joined(v.Waits) }

// Wait is one thing that a pod waits for: codes, data and times for programs, words for people.
type Wait struct {
	pod.Wait `json:",inline"`
	// Text says it without the container's name and without times.
	Text string `json:"text"`
	// Because are the causes that the node knows beyond that: which pod has the host port, which label is missing.
	Because []string `json:"because,omitempty"`
	// Advice is what a person could do about it; empty if nothing needs to be done.
	Advice string `json:"advice,omitempty"`
}

// Named is the text with the container's name before it, where it has one.
func (w *Wait) Named() string {
	if w.Container == "" {
		return w.Text
	}
	return "container " + w.Container + ": " + w.Text
}

// WaitsOf puts words to what a pod waits for, as its source has them.
func WaitsOf(p *v1.Pod, list []pod.Wait) []Wait {
	var waits []Wait
	for i := range list {
		waits = append(waits, Wait{Wait: list[i], Text: explain.Wait(&list[i]), Advice: explain.Advice(&list[i], p)})
	}
	return waits
}

func joined(waits []Wait) string {
	texts := make([]string, len(waits))
	for i := range waits {
		texts[i] = waits[i].Named()
	}
	return strings.Join(texts, "; ")
}

// Snapshot is the agent's state at one moment. Pods are sorted by namespace and
// name, and include those that are being stopped.
type Snapshot struct {
	Node     string        `json:"node"`
	Agent    AgentInfo     `json:"agent"`
	Problems []pod.Problem `json:"problems,omitempty"`
	// Exposures are settings that open the node to clients without credentials or rights, and say so. Nothing is wrong
	// with them.
	Exposures []string  `json:"exposures,omitempty"`
	Pods      []PodView `json:"pods,omitempty"`
}

// AgentInfo describes the agent itself.
type AgentInfo struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Cluster says that the agent is a node of a cluster.
	Cluster bool `json:"cluster,omitempty"`
	// Synced is whether every source of pods has been read at least once: before
	// that, pods may be missing from a Snapshot.
	Synced         bool   `json:"synced"`
	RuntimeName    string `json:"runtimeName,omitempty"`
	RuntimeVersion string `json:"runtimeVersion,omitempty"`
	RuntimeReady   bool   `json:"runtimeReady"`
	// RuntimeMessage says why the runtime isn't ready.
	RuntimeMessage string `json:"runtimeMessage,omitempty"`
}

// Event is something that happened Count times, from First to Time.
type Event struct {
	// Seq orders events by when they were last reported.
	Seq    uint64        `json:"seq"`
	Time   time.Time     `json:"time"`
	First  time.Time     `json:"first,omitzero"`
	Type   pod.EventType `json:"type"`
	Reason string        `json:"reason"`
	// Namespace is empty for what isn't in one.
	Namespace string `json:"namespace,omitempty"`
	// Object is such as "pod/web-node1", or a manifest's path or URL.
	Object string `json:"object"`
	// UID is the object's, Part the part of it that is meant, such as "spec.containers{web}".
	UID  types.UID `json:"uid,omitempty"`
	Part string    `json:"part,omitempty"`
	// Component is who reports it.
	Component string `json:"component,omitempty"`
	Message   string `json:"message"`
	Count     int    `json:"count,omitempty"`
}

// PodName returns the name of the pod that the event is about, or false.
func (e *Event) PodName() (string, bool) {
	name, ok := strings.CutPrefix(e.Object, "pod/")
	return name, ok && e.Namespace != ""
}

// RunUpdate is one line of a foreground run's progress.
type RunUpdate struct {
	// Pods are the pods of the run.
	Pods []types.NamespacedName `json:"pods"`
	// Views are those of them that the agent knows at the moment.
	Views []PodView `json:"views,omitempty"`
	// Error says why they can't be run after all; it is the last update.
	Error string `json:"error,omitempty"`
}

// Node is what the node has, what of it is for pods, and what they hold.
type Node struct {
	Name    string            `json:"name"`
	HostIPs []string          `json:"hostIPs,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Taints  []v1.Taint        `json:"taints,omitempty"`
	// Conditions have no times.
	Conditions []v1.NodeCondition `json:"conditions,omitempty"`
	Capacity   v1.ResourceList    `json:"capacity,omitempty"`
	// Reserved is why Allocatable is less than Capacity; of memory what is set aside as huge pages isn't for pods,
	// either.
	Reserved    capacity.Reserved `json:"reserved"`
	Allocatable v1.ResourceList   `json:"allocatable,omitempty"`
	// Problems are those of manifests.
	Problems []pod.Problem `json:"problems,omitempty"`
	// Pods are those that hold something, by namespace and name.
	Pods []NodePod `json:"pods,omitempty"`
}

// NodePod is what one pod holds of the node.
type NodePod struct {
	Namespace string `json:"namespace,omitempty"`
	// Name is empty for a pod that no source has any more, or not yet.
	Name     string         `json:"name,omitempty"`
	UID      types.UID      `json:"uid"`
	QOSClass v1.PodQOSClass `json:"qosClass,omitempty"`
	// Requests are what others can't have, as admission counts it; Limits are those of the pod as a whole.
	Requests v1.ResourceList `json:"requests,omitempty"`
	Limits   v1.ResourceList `json:"limits,omitempty"`
	// Devices are those of device plugins that each container has, and how they are.
	Devices map[string][]v1.ResourceStatus `json:"devices,omitempty"`
}

// Configuration is the configuration in force. Nothing of it is secret.
type Configuration struct {
	// Kubelet is complete: file, drop-ins, flags and defaults.
	Kubelet v1beta1.KubeletConfiguration `json:"kubelet"`
	// Origins says of each setting that isn't a default, by its path, where it comes
	// from: "/etc/deckhand/config.yaml:12", "--max-pods".
	Origins map[string]string `json:"origins,omitempty"`
}
