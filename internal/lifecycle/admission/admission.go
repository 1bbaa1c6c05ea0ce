// Package admission judges whether a node admits a pod: by the facts of the node and by what
// the pods beside it hold. It is pure; its one caller is the owner of what is held (package
// allocation), which the core asks by the action AdmitPod before anything is made of a pod.
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
	// AwaitsAddress says that the node has no address yet and will get one: pods that need it wait.
	AwaitsAddress bool
	// OS is the operating system as Go names it.
	OS string
	// UnsafeSysctls are sysctls, or beginnings of them that end in "*", that are allowed beside the
	// safe ones (KubeletConfiguration allowedUnsafeSysctls).
	UnsafeSysctls []string
	// Kernel is its version as uname tells it; empty counts as the newest.
	Kernel string
	// AppArmor says that the kernel has it enabled.
	AppArmor bool
	// SupplementalGroupsPolicy says whether the container runtime knows the policy Strict
	// (KEP-3619); nil while it hasn't reported that.
	SupplementalGroupsPolicy *bool
	// AwaitsPlugin has the resources whose device plugin has yet to register (again). Without an API server, one that
	// the node doesn't have at all may have one, too.
	AwaitsPlugin map[v1.ResourceName]bool
	// InCluster says that a scheduler has counted extended resources that the node doesn't have at all: they are the
	// cluster's
	// (https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#cluster-level-extended-resources).
	InCluster bool
	// Version is that of the kubelet which the agent stands in for, DeclaredFeatures are the
	// features that such a node declares (KEP-5328).
	Version          string
	DeclaredFeatures []string
}

// Held is what one admitted pod has, or what is kept for one that waits for room.
type Held struct {
	UID    types.UID
	Amount Amount
	// Ending says that the pod will give back what it has before long.
	Ending bool
	// Pod is nil if nobody knows its spec any more: it is never preempted then.
	Pod *v1.Pod
}

// Answer is the result of admission: no Failure if the pod is admitted. A Failure is Rejected for good, or says
// what to Wait for.
type Answer struct {
	Failure *pod.Failure
	// Preempt are the pods that have to end before a pod that waits for room is admitted.
	Preempt []types.UID
}

// Judge judges pods one after the other beside what is held. It isn't safe for concurrent use.
type Judge struct {
	node     *Node
	capacity Amount
	held     []Held
	// used is what all of held have, staying what those have that don't end.
	used, staying Amount
	// ports are the host ports that they have.
	ports []hostPort
}

// NewJudge returns a judge for a node of which pods hold nothing yet. capacity is what it has for pods
// (Node.Allocatable). Of CPU, memory, pods and ephemeral storage any amount is there if it doesn't say;
// of others none.
func NewJudge(n *Node, capacity Amount) *Judge {
	return &Judge{node: n, capacity: capacity, used: Amount{}, staying: Amount{}}
}

// Hold takes in what an admitted pod has, or one that waits will have.
func (j *Judge) Hold(h Held) {
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

// Need is what a pod takes on a node: what it requests, and one of the node's pods.
func Need(p *v1.Pod) Amount { return Holding(allocated.Of(p)) }

// Holding is what a pod with this allocation takes on a node.
func Holding(a *pod.Allocation) Amount {
	need := AmountOf(a.Total)
	need[v1.ResourcePods] = 1
	return need
}

// Admit judges a pod that needs this much. Those that it preempts are ending from then on. What can't change while the
// node runs is told before what can, so that nobody is preempted for a pod that can't run here anyway.
func (j *Judge) Admit(p *v1.Pod, need Amount) Answer {
	if f := j.node.Refuses(p); f != nil {
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
			// A kubelet tells the first one only, and dashboards know the reason by that.
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

// outOf is the reason of a pod for which there isn't enough of these: by the first.
func outOf(short []v1.ResourceName) pod.Reason { return pod.ReasonOutOf + pod.Reason(short[0]) }

func list(names []v1.ResourceName) string {
	words := make([]string, len(names))
	for i, name := range names {
		words[i] = string(name)
	}
	return strings.Join(words, ", ")
}

// counted is what of a need the node counts.
func (j *Judge) counted(need Amount) Amount {
	out := make(Amount, len(need))
	for name, n := range need {
		if _, known := j.capacity[name]; known || !slices.Contains(native[:], name) {
			out[name] = n
		}
	}
	return out
}

// hostPort is a port of the node that a pod wants; all addresses are the empty one.
type hostPort struct {
	ip       string
	protocol v1.Protocol
	port     int32
	// holder is which of the judge's held pods has it.
	holder int
}

func (p hostPort) conflicts(q hostPort) bool {
	return p.port == q.port && p.protocol == q.protocol && (p.ip == q.ip || p.ip == "" || q.ip == "")
}

func hostPorts(p *v1.Pod, holder int) []hostPort {
	var ports []hostPort
	add := func(c *v1.Container) {
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
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; pod.IsSidecar(c) {
			add(c)
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i])
	}
	return ports
}

// portsInUse reports whether a host port of the pod's is held by a pod that stays, and whether one is
// held by a pod that is ending.
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
