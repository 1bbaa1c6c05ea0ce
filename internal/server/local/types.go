// Package local is the API between the `deckhand` commands and the agent on the same machine: HTTP/1.1 over a unix
// socket in the agent's root directory. Only root and the agent's own user may use it.
package local

import (
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/explain"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// SocketPath returns the path of the socket of the agent with this root directory.
func SocketPath(rootDir string) string { return filepath.Join(rootDir, "deckhand.sock") }

// PodView is the state of one pod.
type PodView struct {
	// Pod has the current status.
	Pod *v1.Pod `json:"pod"`
	// Source is the kind of source that the pod comes from. Origin is the path or URL of its manifest.
	Source pod.Source `json:"source,omitempty"`
	Origin string     `json:"origin,omitempty"`
	// Stale says why an older, valid version of the manifest is in effect; usually empty.
	Stale string `json:"stale,omitempty"`
	// Stopped means that a user has stopped the pod, and that none of its containers runs.
	Stopped bool `json:"stopped,omitempty"`
	// Waits are the reasons why the pod isn't ready; empty if it is.
	Waits []Wait `json:"waits,omitempty"`
}

// Word summarizes the pod's state in one word.
func (v *PodView) Word() string {
	if v.Stopped {
		return "Stopped"
	}
	return podstatus.Word(v.Pod)
}

// Done reports whether the pod is ready, has succeeded, or was stopped by a user.
func (v *PodView) Done() bool { return v.Stopped || podstatus.Done(v.Pod) }

// Over reports whether no container of the pod will run again.
func (v *PodView) Over() bool { return v.Stopped || podstatus.Over(v.Pod) }

// OfRun reports whether the pod may be one of `deckhand run`. It is false for a pod of another source.
func (v *PodView) OfRun() bool { return v.Source == "" || v.Source == pod.SourceRun }

// Reason says why the pod isn't ready or has failed: the reasons why it waits, or its failure.
func (v *PodView) Reason() string {
	if v.Pod.Status.Phase != v1.PodFailed || v.Stopped {
		return v.Waiting()
	}
	failure := ""
	if podstatus.SaysWhyFailed(v.Pod) {
		failure = podstatus.Failure(v.Pod)
	}
	if len(v.Waits) == 1 && v.Waits[0].Code == pod.WaitRejected && failure != "" {
		return "rejected by the node: " + failure // a rejected pod doesn't wait
	}
	waits := v.Waiting()
	if failure != "" && waits != "" {
		failure += "; "
	}
	return failure + waits
}

// Waiting describes why the pod waits.
func (v *PodView) Waiting() string { return joined(v.Waits) }

// Wait is one reason why a pod waits. The embedded pod.Wait has a code, data and times for programs; Text is for
// people.
type Wait struct {
	pod.Wait `json:",inline"`
	// Text describes the reason, without the container's name and without times.
	Text string `json:"text"`
	// Because has causes of the wait that only the node can find: the pod that has the host port, the label that is
	// missing.
	Because []string `json:"because,omitempty"`
	// Advice says what the user can do about the wait; empty if nothing needs to be done.
	Advice string `json:"advice,omitempty"`
}

// Named returns the text, prefixed with the container's name if there is one.
func (w *Wait) Named() string {
	if w.Container == "" {
		return w.Text
	}
	return "container " + w.Container + ": " + w.Text
}

// WaitsOf adds texts and advice to the reasons why a pod waits. The advice depends on the pod's source.
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

// Snapshot is the agent's state at one moment. Pods are sorted by namespace and name, and include those that are
// being stopped.
type Snapshot struct {
	Node     string        `json:"node"`
	Agent    AgentInfo     `json:"agent"`
	Problems []pod.Problem `json:"problems,omitempty"`
	// Exposures are intended settings that open the node to clients without authentication or authorization. They
	// aren't problems.
	Exposures []string  `json:"exposures,omitempty"`
	Pods      []PodView `json:"pods,omitempty"`
}

// AgentInfo describes the agent itself.
type AgentInfo struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Cluster is set if the agent is a node of a cluster.
	Cluster bool `json:"cluster,omitempty"`
	// Synced is set once every source of pods has been read: before that, pods may be missing from a Snapshot.
	Synced         bool   `json:"synced"`
	RuntimeName    string `json:"runtimeName,omitempty"`
	RuntimeVersion string `json:"runtimeVersion,omitempty"`
	RuntimeReady   bool   `json:"runtimeReady"`
	// RuntimeMessage says why the runtime isn't ready.
	RuntimeMessage string `json:"runtimeMessage,omitempty"`
}

// Event is something that happened Count times, between First and Time.
type Event struct {
	// Seq orders events by their last occurrence.
	Seq    uint64        `json:"seq"`
	Time   time.Time     `json:"time"`
	First  time.Time     `json:"first,omitzero"`
	Type   pod.EventType `json:"type"`
	Reason string        `json:"reason"`
	// Namespace is empty for objects without a namespace.
	Namespace string `json:"namespace,omitempty"`
	// Object is a kind and a name, such as "pod/web-node1", or a manifest's path or URL.
	Object string `json:"object"`
	// UID is the UID of the object. Part is the part of the object that the event is about, such as
	// "spec.containers{web}".
	UID  types.UID `json:"uid,omitempty"`
	Part string    `json:"part,omitempty"`
	// Component is the component that reported the event.
	Component string `json:"component,omitempty"`
	Message   string `json:"message"`
	Count     int    `json:"count,omitempty"`
	// Annotations are the event's annotations in the API.
	Annotations map[string]string `json:"annotations,omitempty"`
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
	// Views are the states of those pods of the run that the agent has at the moment.
	Views []PodView `json:"views,omitempty"`
	// Error is the reason why the pods can't run any longer. Only the last update has it.
	Error string `json:"error,omitempty"`
}

// Node is the state of the node, its resources and their allocation to pods.
type Node struct {
	Name    string            `json:"name"`
	HostIPs []string          `json:"hostIPs,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Taints  []v1.Taint        `json:"taints,omitempty"`
	// Conditions are the node's conditions, without times.
	Conditions []v1.NodeCondition `json:"conditions,omitempty"`
	Capacity   v1.ResourceList    `json:"capacity,omitempty"`
	// Reserved is the difference between Capacity and Allocatable. Memory that is preallocated as huge pages isn't
	// allocatable, either.
	Reserved    capacity.Reserved `json:"reserved"`
	Allocatable v1.ResourceList   `json:"allocatable,omitempty"`
	// Evictions says how far the node is from evicting pods; missing from an agent of an earlier version.
	Evictions *Evictions `json:"evictions,omitempty"`
	// CPUs are the node's CPUs by their use; missing unless cpuManagerPolicy is static.
	CPUs []NodeCPUs `json:"cpus,omitempty"`
	// CPUDifferences are the differences between the recorded and the actual assignment of CPUs.
	CPUDifferences []string `json:"cpuDifferences,omitempty"`
	// Problems are the problems of manifests, of full disks, of memory, and of files that can't be watched.
	Problems []pod.Problem `json:"problems,omitempty"`
	// Pods are the pods with allocated resources, sorted by namespace and name.
	Pods []NodePod `json:"pods,omitempty"`
	// Modules are the parts of the agent, in the order in which they start.
	Modules []modules.Status `json:"modules,omitempty"`
}

// Evictions is the state of the thresholds below which the node evicts pods, as of the last observation.
type Evictions struct {
	// Observed is the time of the observation; zero before the first.
	Observed   time.Time           `json:"observed,omitzero"`
	Thresholds []EvictionThreshold `json:"thresholds,omitempty"`
	// Unread says which signals can't be read, and why.
	Unread string `json:"unread,omitempty"`
	// Alarm is the last report of the kernel that memory may run short, at AlarmAt.
	Alarm   string    `json:"alarm,omitempty"`
	AlarmAt time.Time `json:"alarmAt,omitzero"`
}

// EvictionThreshold is the state of one threshold. Amounts are in bytes for the resources memory and
// ephemeral-storage, else numbers of inodes or processes.
type EvictionThreshold struct {
	Signal   string          `json:"signal"`
	Resource v1.ResourceName `json:"resource"`
	// Threshold is the setting: an amount or a percentage of Capacity. Least is that amount.
	Threshold string `json:"threshold"`
	Least     int64  `json:"least"`
	// Available is missing if the signal can't be read, or if this node doesn't have it.
	Available *int64 `json:"available,omitempty"`
	Capacity  int64  `json:"capacity,omitempty"`
	// Grace is the grace period of a soft threshold; zero for a hard one.
	Grace metav1.Duration `json:"gracePeriod,omitzero"`
	// MetSince is the time since which less than Least is available; zero while at least Least is available. EvictsFrom
	// is the time from which pods are evicted because of the threshold.
	MetSince   time.Time `json:"metSince,omitzero"`
	EvictsFrom time.Time `json:"evictsFrom,omitzero"`
}

// EvictionRank is the place of a pod in the order in which the node would evict pods now.
type EvictionRank struct {
	Signal   string          `json:"signal"`
	Resource v1.ResourceName `json:"resource"`
	// Place is 1 for the pod that would be evicted next. Of is the number of pods that may be evicted.
	Place int `json:"place"`
	Of    int `json:"of"`
	// Used is the pod's use, in the unit of EvictionThreshold. Request is its request; missing if there are no requests
	// of the resource.
	Used    int64  `json:"used"`
	Request *int64 `json:"request,omitempty"`
}

// NodeCPUs are CPUs of one NUMA node that are used alike.
type NodeCPUs struct {
	Node int `json:"numaNode"`
	// CPUs are a list as in cpuset(7), "0-3,8".
	CPUs string `json:"cpus"`
	// Use is Shared, Own, Reserved or Isolated. Only Own ones have a container.
	Use       string `json:"use"`
	Namespace string `json:"namespace,omitempty"`
	// Name is empty for a pod that no source has any more, or not yet.
	Name      string    `json:"name,omitempty"`
	UID       types.UID `json:"uid,omitempty"`
	Container string    `json:"container,omitempty"`
}

// NodePod is the resources of the node that are allocated to one pod.
type NodePod struct {
	Namespace string `json:"namespace,omitempty"`
	// Name is empty for a pod that no source has any more, or not yet.
	Name     string         `json:"name,omitempty"`
	UID      types.UID      `json:"uid"`
	QOSClass v1.PodQOSClass `json:"qosClass,omitempty"`
	// Requests are the resources that admission reserves for the pod; Limits are the limits of the pod as a whole.
	Requests v1.ResourceList `json:"requests,omitempty"`
	Limits   v1.ResourceList `json:"limits,omitempty"`
	// Devices are each container's devices from device plugins, with their health.
	Devices map[string][]v1.ResourceStatus `json:"devices,omitempty"`
}

// Configuration is the configuration in effect, without secrets.
type Configuration struct {
	// Kubelet is the complete KubeletConfiguration: it combines file, drop-ins, flags and defaults.
	Kubelet v1beta1.KubeletConfiguration `json:"kubelet"`
	// Origins has the origin of each setting that isn't a default, by its path: "/etc/deckhand/config.yaml:12",
	// "--max-pods".
	Origins map[string]string `json:"origins,omitempty"`
}
