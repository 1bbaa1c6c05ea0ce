package validation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubelet/config/v1beta1"
)

// Policies of the CPU manager (KubeletConfiguration.cpuManagerPolicy).
const (
	cpuPolicyNone   = "none"
	cpuPolicyStatic = "static"
)

// Options of the CPU manager's static policy.
const (
	fullPhysicalCPUs  = "full-pcpus-only"
	strictReservation = "strict-cpu-reservation"
	acrossNUMA        = "distribute-cpus-across-numa"
	acrossCores       = "distribute-cpus-across-cores"
	bySocket          = "align-by-socket"
	byUncoreCache     = "prefer-align-cpus-by-uncorecache"
)

// Options of the topology manager's policies.
const (
	closestNUMA   = "prefer-closest-numa-nodes"
	maxNUMA       = "max-allowable-numa-nodes"
	minOfMaxNUMAs = 8
)

// Gates of options of the CPU manager.
const (
	cpuAlphaOptions = "CPUManagerPolicyAlphaOptions"
	cpuBetaOptions  = "CPUManagerPolicyBetaOptions"
)

// cpuManager checks the settings of exclusive CPUs.
func (k *check) cpuManager() {
	k.period("cpuManagerReconcilePeriod", k.CPUManagerReconcilePeriod.Duration)
	policy := at("cpuManagerPolicy")
	oneOf(k, policy, k.CPUManagerPolicy, cpuPolicyNone, cpuPolicyStatic)
	if reserved := k.reservedSum(v1.ResourceCPU); k.CPUManagerPolicy == cpuPolicyStatic && k.ReservedSystemCPUs == "" &&
		reserved.Sign() <= 0 {
		k.invalid(policy, k.CPUManagerPolicy,
			"needs some reserved CPU: in reservedSystemCPUs, or as cpu in kubeReserved or systemReserved")
	}
	path := at("cpuManagerPolicyOptions")
	if len(k.CPUManagerPolicyOptions) > 0 && k.CPUManagerPolicy == cpuPolicyNone {
		k.forbidden(path, "counts only with cpuManagerPolicy static")
		return
	}
	on := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(k.CPUManagerPolicyOptions)) {
		on[name] = k.cpuOption(path, name)
	}
	for _, pair := range [][2]string{{fullPhysicalCPUs, acrossCores}, {
		acrossNUMA, acrossCores}, {byUncoreCache, acrossCores}, {byUncoreCache, acrossNUMA}} {
		if on[pair[0]] && on[pair[1]] {
			k.forbidden(path.Key(pair[0]), "can't be on together with "+pair[1])
		}
	}
	if on[bySocket] && k.TopologyManagerPolicy == v1beta1.SingleNumaNodeTopologyManagerPolicy {
		k.forbidden(path.Key(bySocket),
			"can't be on together with topologyManagerPolicy "+v1beta1.SingleNumaNodeTopologyManagerPolicy)
	}
}

// cpuOption checks one option, and reports whether it is on.
func (k *check) cpuOption(path *field.Path, name string) bool {
	switch name {
	case fullPhysicalCPUs, strictReservation, byUncoreCache:
	case acrossNUMA:
		k.needsGate(path.Key(name), cpuBetaOptions)
	case acrossCores, bySocket:
		k.needsGate(path.Key(name), cpuAlphaOptions)
	default:
		k.unknownKey(path, name, fullPhysicalCPUs, strictReservation, acrossNUMA, acrossCores, bySocket, byUncoreCache)
		return false
	}
	return k.boolean(path.Key(name), k.CPUManagerPolicyOptions[name])
}

func (k *check) boolean(path *field.Path, text string) bool {
	on, err := strconv.ParseBool(text)
	if err != nil {
		k.invalid(path, text, `must be "true" or "false"`)
	}
	return on
}

// reservedSum returns how much of a resource kubeReserved and systemReserved reserve in total.
func (k *check) reservedSum(name v1.ResourceName) resource.Quantity {
	var sum resource.Quantity
	for _, amounts := range []map[string]string{k.KubeReserved, k.SystemReserved} {
		if q, err := parseQuantity(amounts[string(name)]); err == nil {
			sum.Add(q)
		}
	}
	return sum
}

// memoryManager checks the settings of memory that is allocated per NUMA node.
func (k *check) memoryManager() {
	policy := at("memoryManagerPolicy")
	oneOf(k, policy, k.MemoryManagerPolicy, v1beta1.NoneMemoryManagerPolicy, v1beta1.StaticMemoryManagerPolicy)
	if k.MemoryManagerPolicy != v1beta1.StaticMemoryManagerPolicy {
		return
	}
	var sum resource.Quantity
	for _, r := range k.ReservedMemory {
		if memory := r.Limits[v1.ResourceMemory]; memory.Value() > 0 {
			sum.Add(*resource.NewQuantity(memory.Value(), resource.BinarySI))
		}
	}
	path := at("reservedMemory")
	if sum.IsZero() {
		k.required(path, at("memoryManagerPolicy"),
			"it is needed with memoryManagerPolicy Static: how much memory is reserved on which NUMA node")
		return
	}
	threshold := k.EvictionHard[memoryAvailable]
	q, err := parseQuantity(threshold)
	if threshold != "" && err != nil {
		return // a percentage, which depends on the host, or invalid: check.eviction reports that
	}
	want := k.reservedSum(v1.ResourceMemory)
	want.Add(q)
	if sum.Cmp(want) != 0 {
		k.invalid(path, sum.String(),
			fmt.Sprintf("must add up to %s of memory: "+
				"the sum of kubeReserved, systemReserved and evictionHard[%s]", want.String(), memoryAvailable))
	}
}

// topologyManager checks the alignment of CPUs, memory and devices.
func (k *check) topologyManager() {
	oneOf(k, at("topologyManagerPolicy"), k.TopologyManagerPolicy, v1beta1.NoneTopologyManagerPolicy,
		v1beta1.BestEffortTopologyManagerPolicy,
		v1beta1.RestrictedTopologyManagerPolicy, v1beta1.SingleNumaNodeTopologyManagerPolicy)
	oneOf(k, at("topologyManagerScope"), k.TopologyManagerScope, v1beta1.ContainerTopologyManagerScope,
		v1beta1.PodTopologyManagerScope)
	if k.TopologyManagerPolicy == v1beta1.NoneTopologyManagerPolicy {
		return // this policy has no options, and the kubelet ignores them
	}
	path := at("topologyManagerPolicyOptions")
	for _, name := range slices.Sorted(maps.Keys(k.TopologyManagerPolicyOptions)) {
		value := k.TopologyManagerPolicyOptions[name]
		switch name {
		case closestNUMA:
			k.boolean(path.Key(name), value)
		case maxNUMA:
			if n, err := strconv.Atoi(value); err != nil || n < minOfMaxNUMAs {
				k.invalid(path.Key(name), value, fmt.Sprintf("must be an integer, %d or more", minOfMaxNUMAs))
			}
		default:
			k.unknownKey(path, name, closestNUMA, maxNUMA)
		}
	}
}
