// Package capacity tells how much of a node is there for its pods.
package capacity

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"
)

// memoryAvailable is the eviction signal that memory is kept free for.
const memoryAvailable = "memory.available"

// Allocatable is how much cpu and memory there is for pods on a node with so many
// CPUs and so much memory (bytes): what is left of its capacity without kubeReserved,
// systemReserved and the hard eviction threshold
// (https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/#node-allocatable).
// CPUs of reservedSystemCPUs stand in for those of the other two. k has its defaults set.
func Allocatable(k *v1beta1.KubeletConfiguration, cpus int, memory int64) (v1.ResourceList, error) {
	kube, err := reserved("kubeReserved", k.KubeReserved)
	if err != nil {
		return nil, err
	}
	system, err := reserved("systemReserved", k.SystemReserved)
	if err != nil {
		return nil, err
	}
	evict, err := threshold(k.EvictionHard[memoryAvailable], memory)
	if err != nil {
		return nil, err
	}
	milli := kube.Cpu().MilliValue() + system.Cpu().MilliValue()
	if k.ReservedSystemCPUs != "" {
		set, err := cpuset.Parse(k.ReservedSystemCPUs)
		if err != nil {
			return nil, fmt.Errorf("reservedSystemCPUs %q isn't a list of CPUs such as 0-1,4: %w", k.ReservedSystemCPUs, err)
		}
		milli = int64(set.Size()) * 1000
	}
	leftCPU := int64(cpus)*1000 - milli
	if leftCPU < 0 {
		return nil, fmt.Errorf("kubeReserved, systemReserved or reservedSystemCPUs take %dm of cpu, more than this node's %d CPUs: reserve less", milli, cpus)
	}
	taken := kube.Memory().Value() + system.Memory().Value() + evict
	if taken > memory {
		return nil, fmt.Errorf("kubeReserved, systemReserved and evictionHard %s take %d bytes of memory, more than this node's %d: reserve less", memoryAvailable, taken, memory)
	}
	return v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(leftCPU, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(memory-taken, resource.BinarySI),
	}, nil
}

// reserved reads the cpu and memory of a setting.
func reserved(setting string, values map[string]string) (v1.ResourceList, error) {
	list := v1.ResourceList{}
	for _, name := range [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
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

// threshold reads an eviction threshold, an amount or a share of capacity (both in
// bytes). 0% and 100% switch it off (API comment of evictionHard).
func threshold(text string, capacity int64) (int64, error) {
	const setting = "evictionHard " + memoryAvailable
	if text == "" {
		return 0, nil
	}
	if share, ok := strings.CutSuffix(text, "%"); ok {
		percent, err := strconv.ParseFloat(share, 64)
		if err != nil || !(percent >= 0 && percent <= 100) {
			return 0, fmt.Errorf("%s %q isn't a percentage from 0%% to 100%%", setting, text)
		}
		if percent == 100 {
			return 0, nil
		}
		return int64(math.Round(float64(capacity) * percent / 100)), nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("%s %q is neither a quantity such as 100Mi nor a percentage: %w", setting, text, err)
	}
	if q.Sign() < 0 {
		return 0, fmt.Errorf("%s %q is negative", setting, text)
	}
	return q.Value(), nil
}
