// Package capacity reads how much CPU, memory, huge pages and disk this node has, and how many processes it can have.
// It computes which part of these pods may use: the rest after the reservations in the configuration.
package capacity

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"
)

// signals maps a resource to the eviction signal whose hard threshold keeps a part of the resource free.
var signals = map[v1.ResourceName]string{v1.ResourceMemory: "memory.available",
	v1.ResourceEphemeralStorage: "nodefs.available"}

// Allocatable is the amount of resources for pods: the node's capacity without kubeReserved, systemReserved and the
// hard eviction thresholds
// (https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/#node-allocatable). Memory in huge
// pages isn't part of allocatable memory either. If reservedSystemCPUs is set, the number of those CPUs replaces the
// CPU amounts of kubeReserved and systemReserved. k has its defaults set.
func (n Node) Allocatable(k *v1beta1.KubeletConfiguration) (v1.ResourceList, error) {
	kube, system, err := Reservations(k)
	if err != nil {
		return nil, err
	}
	list := n.Capacity()
	if list[v1.ResourceCPU], err = n.cpuLeft(k, kube, system); err != nil {
		return nil, err
	}
	if list[v1.ResourceMemory], err = left(k, v1.ResourceMemory, n.Memory, kube, system); err != nil {
		return nil, err
	}
	memory := list[v1.ResourceMemory]
	for _, b := range n.HugePages {
		memory.Sub(*resource.NewQuantity(b, resource.BinarySI))
	}
	if memory.Sign() < 0 {
		memory.Set(0)
	}
	list[v1.ResourceMemory] = memory
	if n.Storage == 0 {
		return list, nil
	}
	list[v1.ResourceEphemeralStorage], err = left(k, v1.ResourceEphemeralStorage, n.Storage, kube, system)
	return list, err
}

// ForPods is how much CPU and memory (bytes) all pods together may use: the node's capacity without kubeReserved
// and systemReserved. The hard eviction thresholds aren't subtracted: pods are evicted before they use all of it.
func (n Node) ForPods(k *v1beta1.KubeletConfiguration) (milliCPU, memory int64, err error) {
	kube, system, err := Reservations(k)
	if err != nil {
		return 0, 0, err
	}
	cpu, err := n.cpuLeft(k, kube, system)
	if err != nil {
		return 0, 0, err
	}
	return cpu.MilliValue(), n.Memory - kube.Memory().Value() - system.Memory().Value(), nil
}

// Reservations parses kubeReserved and systemReserved. In addition to resources, the results may have a number of
// processes, under the name PID.
func Reservations(k *v1beta1.KubeletConfiguration) (kube, system v1.ResourceList, err error) {
	if kube, err = reserved("kubeReserved", k.KubeReserved); err != nil {
		return nil, nil, err
	}
	system, err = reserved("systemReserved", k.SystemReserved)
	return kube, system, err
}

// Reserved is the part of the node's resources that isn't for pods.
type Reserved struct {
	// System and Kube are systemReserved and kubeReserved. If reservedSystemCPUs is set, all reserved CPUs are in
	// System, and Kube has no CPU.
	System v1.ResourceList `json:"system,omitempty"`
	Kube   v1.ResourceList `json:"kube,omitempty"`
	// Eviction is the amount of each resource that the hard eviction thresholds keep free.
	Eviction v1.ResourceList `json:"eviction,omitempty"`
}

// Reserved returns the parts of the difference between Capacity and Allocatable, except memory in huge pages.
func (n Node) Reserved(k *v1beta1.KubeletConfiguration) (Reserved, error) {
	kube, system, err := Reservations(k)
	if err != nil {
		return Reserved{}, err
	}
	if k.ReservedSystemCPUs != "" {
		rest, err := n.cpuLeft(k, kube, system)
		if err != nil {
			return Reserved{}, err
		}
		delete(kube, v1.ResourceCPU)
		system[v1.ResourceCPU] = *resource.NewMilliQuantity(int64(n.CPUs)*1000-rest.MilliValue(), resource.DecimalSI)
	}
	r := Reserved{System: system, Kube: kube, Eviction: v1.ResourceList{}}
	for name, capacity := range map[v1.ResourceName]int64{v1.ResourceMemory: n.Memory,
		v1.ResourceEphemeralStorage: n.Storage} {
		free, err := threshold(signals[name], k.EvictionHard[signals[name]], capacity)
		if err != nil {
			return Reserved{}, err
		}
		if free > 0 {
			r.Eviction[name] = *resource.NewQuantity(free, resource.BinarySI)
		}
	}
	return r, nil
}

// Pods is the maximum number of pods on the node: maxPods, or podsPerCore times the number of CPUs if that is
// lower.
func (n Node) Pods(k *v1beta1.KubeletConfiguration) resource.Quantity {
	pods := int64(k.MaxPods)
	if k.PodsPerCore > 0 {
		pods = min(pods, int64(k.PodsPerCore)*int64(n.CPUs))
	}
	return *resource.NewQuantity(pods, resource.DecimalSI)
}

func (n Node) cpuLeft(k *v1beta1.KubeletConfiguration, kube, system v1.ResourceList) (resource.Quantity, error) {
	milli := kube.Cpu().MilliValue() + system.Cpu().MilliValue()
	if k.ReservedSystemCPUs != "" {
		set, err := cpuset.Parse(k.ReservedSystemCPUs)
		if err != nil {
			return resource.Quantity{},
				fmt.Errorf("reservedSystemCPUs %q isn't a list of CPUs such as 0-1,4: %w", k.ReservedSystemCPUs, err)
		}
		milli = int64(set.Size()) * 1000
	}
	rest := int64(n.CPUs)*1000 - milli
	if rest < 0 {
		return resource.Quantity{},
			fmt.Errorf("kubeReserved, systemReserved or reservedSystemCPUs take %dm of cpu, more than this node's %d "+
				"CPUs: reserve less", milli, n.CPUs)
	}
	return *resource.NewMilliQuantity(rest, resource.DecimalSI), nil
}

// left is the rest of a resource's capacity (bytes) after the reservations and the hard eviction threshold.
func left(k *v1beta1.KubeletConfiguration, name v1.ResourceName, capacity int64, kube,
	system v1.ResourceList) (resource.Quantity, error) {
	signal := signals[name]
	evict, err := threshold(signal, k.EvictionHard[signal], capacity)
	if err != nil {
		return resource.Quantity{}, err
	}
	ofKube, ofSystem := kube[name], system[name]
	taken := ofKube.Value() + ofSystem.Value() + evict
	if taken > capacity {
		return resource.Quantity{},
			fmt.Errorf("kubeReserved, systemReserved and evictionHard %s take %d bytes of %s, more than this node's "+
				"%d: reserve less", signal, taken, name, capacity)
	}
	return *resource.NewQuantity(capacity-taken, resource.BinarySI), nil
}

// PID is the key for a number of processes in kubeReserved and systemReserved. Pods can't request it.
const PID v1.ResourceName = "pid"

// reserved parses the value of kubeReserved or systemReserved; setting is its name, for errors.
func reserved(setting string, values map[string]string) (v1.ResourceList, error) {
	list := v1.ResourceList{}
	for _, name := range [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, PID} {
		text, ok := values[string(name)]
		if !ok {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("%s %s %q isn't a quantity such as 500m or 1Gi: %w", setting, name, text, err)
		}
		if q.Sign() < 0 {
			return nil, fmt.Errorf("%s %s %q is negative", setting, name, text)
		}
		list[name] = q
	}
	return list, nil
}

// threshold returns the eviction threshold of a signal in bytes, like capacity; 0 if it is off.
func threshold(signal, text string, capacity int64) (int64, error) {
	a, err := ParseAmount(text)
	if err == nil && a.Percent > 100 {
		err = fmt.Errorf("%q isn't a percentage from 0%% to 100%%", text)
	}
	if err != nil {
		return 0, fmt.Errorf("evictionHard %s %w", signal, err)
	}
	if a.Off() {
		return 0, nil
	}
	return a.Of(capacity), nil
}
