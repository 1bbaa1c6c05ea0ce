// Package admission decides whether the node admits a pod, from the facts about the node and the resources and host
// ports that other pods hold. It is pure. Its only caller is the ledger of held resources (package allocation). The
// ledger calls it for the action AdmitPod, before anything is created for a pod.
package admission

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// Node holds the facts about a node that admission depends on, other than its capacity. It is immutable.
type Node struct {
	Name   string
	Labels map[string]string
	Taints []v1.Taint
	// AwaitsAddress says that the node has no address yet but will get one: pods that need an address wait.
	AwaitsAddress bool
	// OS is the node's operating system as in runtime.GOOS, such as "linux".
	OS string
	// UnsafeSysctls are sysctls, or prefixes of sysctls that end in "*", that are allowed in addition to the safe
	// ones (KubeletConfiguration allowedUnsafeSysctls).
	UnsafeSysctls []string
	// Kernel is the kernel version as uname reports it; empty counts as the newest.
	Kernel string
	// AppArmor says that AppArmor is enabled in the kernel.
	AppArmor bool
	// SupplementalGroupsPolicy says whether the container runtime supports the policy Strict (KEP-3619); nil until
	// the runtime has reported it.
	SupplementalGroupsPolicy *bool
	// AwaitsPlugin holds the resources whose device plugin still has to register (again). Without an API server, a
	// plugin may also register later for an extended resource that the node doesn't have at all.
	AwaitsPlugin map[v1.ResourceName]bool
	Pressure     Pressure
	// InCluster says that there is a scheduler. Extended resources that the node doesn't have at all are then
	// cluster-level resources, which the scheduler counts: see
	// https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#cluster-level-extended-resources
	InCluster bool
	// Version is the kubelet version that the agent stands in for; DeclaredFeatures are the features that such a node
	// declares (KEP-5328).
	Version          string
	DeclaredFeatures []string
}

// Held is the amount that an admitted pod uses, or that is reserved for a pod that waits for room.
type Held struct {
	UID    types.UID
	Amount Amount
	// Ending says that the pod ends and will release its amount soon.
	Ending bool
	// Pod is nil if the spec isn't available any more: the pod is never preempted then.
	Pod *v1.Pod
}

// Answer is the result of admission. Failure is nil if the pod is admitted. A Failure with Rejected set is final;
// otherwise Failure.Wait says what the pod has to wait for.
type Answer struct {
	Failure *pod.Failure
	// Preempt are the pods that have to end before a pod that waits for room is admitted.
	Preempt []types.UID
}

// Judge judges pods one after the other, in addition to the pods that are already held. It isn't safe for concurrent
// use.
type Judge struct {
	node     *Node
	capacity Amount
	held     []Held
	// used is the sum of the amounts of all held pods, staying the sum for the pods that aren't Ending.
	used, staying Amount
	// ports are the host ports of the held pods.
	ports []hostPort
}

// NewJudge returns a judge for a node without pods. capacity is the amount available for pods (Node.Allocatable). If
// capacity has no entry for CPU, memory, pods or ephemeral storage, the resource is unlimited; any other resource
// without an entry is zero.
func NewJudge(n *Node, capacity Amount) *Judge {
	return &Judge{node: n, capacity: capacity, used: Amount{}, staying: Amount{}}
}

// Add adds a held pod: it was admitted, or it waits and an amount is reserved for it.
func (j *Judge) Add(h Held) {
	j.held = append(j.held, h)
	for name, n := range h.Amount {
		j.used[name] += n
		if !h.Ending {
			j.staying[name] += n
		}
	}
	if h.Pod != nil {
		j.ports = append(j.ports, hostPorts(h.Pod, len(j.held)-1)...)
	}
}

// Need is the amount that a pod takes on a node: its resource requests, and 1 of the resource pods.
func Need(p *v1.Pod) Amount { return Holding(allocated.Of(p)) }

// Holding is the amount that a pod with this allocation takes on a node.
func Holding(a *pod.Allocation) Amount {
	need := AmountOf(a.Total)
	need[v1.ResourcePods] = 1
	return need
}

// Admit judges a pod that needs this amount. Pods that it preempts count as ending from then on. The reasons for a
// rejection that can't change while the node runs are checked first, so that no other pod is preempted for a pod
// that can't run here anyway.
func (j *Judge) Admit(p *v1.Pod, need Amount) Answer {
	if f := j.node.Refuses(p); f != nil {
		return Answer{Failure: f}
	}
	if f := j.node.keepsOut(p); f != nil {
		return Answer{Failure: f}
	}
	inUse, freed := j.portsInUse(p)
	if inUse {
		return refused(pod.ReasonNodePorts,
			"Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports")
	}
	need = j.counted(need)
	var awaited []v1.ResourceName
	short := need.Short(j.capacity.Minus(j.staying))
	short = slices.DeleteFunc(short, func(name v1.ResourceName) bool {
		_, known := j.capacity[name]
		unknown := !known && pod.IsExtendedResource(name)
		if !j.node.AwaitsPlugin[name] && !unknown {
			return false
		}
		delete(need, name)
		if j.node.AwaitsPlugin[name] || !j.node.InCluster {
			awaited = append(awaited, name)
		}
		return true
	})
	if len(short) > 0 {
		victims := j.preempt(p, need)
		if victims == nil {
			// The kubelet's message names only the first resource, and dashboards recognize the reason by this name.
			return refused(outOf(short), Insufficient(short[:1], need, j.used, j.capacity))
		}
		return Answer{Preempt: victims, Failure: &pod.Failure{Reason: outOf(short), Wait: pod.WaitForRoom,
			Message: fmt.Sprintf("%s: pods of lower priority are ended to make room", list(short))}}
	}
	if awaited != nil {
		return Answer{Failure: &pod.Failure{Reason: outOf(awaited), Wait: pod.WaitForPlugin,
			Message: fmt.Sprintf("the device plugin of %s, which hasn't registered", list(awaited))}}
	}
	if short := need.Short(j.capacity.Minus(j.used)); short != nil {
		return Answer{Failure: &pod.Failure{Reason: outOf(short), Wait: pod.WaitForRoom,
			Message: fmt.Sprintf("%s: pods that are ending hold it", list(short))}}
	}
	if freed {
		return Answer{Failure: &pod.Failure{Reason: pod.ReasonNodePorts, Wait: pod.WaitForRoom,
			Message: "its host ports: pods that are ending hold them"}}
	}
	return Answer{}
}

func refused(reason pod.Reason, message string) Answer {
	return Answer{Failure: &pod.Failure{Reason: reason, Message: message, Rejected: true}}
}

// outOf is the admission failure reason of a pod for which these resources are short, such as OutOfcpu. The reason
// names only the first resource.
func outOf(short []v1.ResourceName) pod.Reason { return pod.ReasonOutOf + pod.Reason(short[0]) }

func list(names []v1.ResourceName) string {
	words := make([]string, len(names))
	for i, name := range names {
		words[i] = string(name)
	}
	return strings.Join(words, ", ")
}

// counted is the part of need that the node limits.
func (j *Judge) counted(need Amount) Amount {
	out := make(Amount, len(need))
	for name, n := range need {
		if _, known := j.capacity[name]; known || !slices.Contains(native[:], name) {
			out[name] = n
		}
	}
	return out
}

// hostPort is a host port that a pod asks for. An empty ip stands for all addresses.
type hostPort struct {
	ip       string
	protocol v1.Protocol
	port     int32
	// holder is the index in Judge.held of the pod that has the port.
	holder int
}

func (p hostPort) conflicts(q hostPort) bool {
	return p.port == q.port && p.protocol == q.protocol && (p.ip == q.ip || p.ip == "" || q.ip == "")
}

func hostPorts(p *v1.Pod, holder int) []hostPort {
	var ports []hostPort
	for _, c := range pod.LongRunning(p) {
		for _, port := range c.Ports {
			if port.HostPort == 0 {
				continue
			}
			w := hostPort{port.HostIP, port.Protocol, port.HostPort, holder}
			if w.ip == "0.0.0.0" || w.ip == "::" {
				w.ip = ""
			}
			if w.protocol == "" {
				w.protocol = v1.ProtocolTCP
			}
			ports = append(ports, w)
		}
	}
	return ports
}

// portsInUse reports whether one of the pod's host ports is held by a pod that stays, and whether one is held by a pod
// that is ending.
func (j *Judge) portsInUse(p *v1.Pod) (byStaying, byEnding bool) {
	for _, wanted := range hostPorts(p, -1) {
		for _, has := range j.ports {
			if !wanted.conflicts(has) {
				continue
			}
			if !j.held[has.holder].Ending {
				return true, false
			}
			byEnding = true
		}
	}
	return false, byEnding
}
