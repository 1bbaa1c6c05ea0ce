package cgroup

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/gates"
	"github.com/deckhand-node/deckhand/internal/config/validation"
	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

// ConfigOf returns the Config for the agent's configuration, on a node with these resources.
func ConfigOf(cfg *config.Config, facts capacity.Node) (Config, error) {
	k := &cfg.Kubelet
	c := Config{
		Driver: tree.Driver(k.CgroupDriver), CgroupRoot: k.CgroupRoot,
		NoCPUQuota: !ptr.Deref(k.CPUCFSQuota, true), CPUPeriod: k.CPUCFSQuotaPeriod.Duration,
		PIDsLimit: ptr.Deref(k.PodPidsLimit, -1), Swap: SwapForPods(k, facts), Memory: facts.Memory,
		ReserveMemory: ReservesMemory(cfg), CPUSets: k.CPUManagerPolicy == "static",
		Own: k.KubeletCgroups, System: k.SystemCgroups,
	}
	kube, system, err := capacity.Reservations(k)
	if err != nil {
		return Config{}, err
	}
	pid := func(l v1.ResourceList) int64 { return ptr.To(l[capacity.PID]).Value() }
	if percent, ok := k.QOSReserved[string(v1.ResourceMemory)]; ok && cfg.Gates.Enabled(gates.QOSReserved) {
		c.QOSReserve = &QOSReserve{}
		if c.QOSReserve.Percent, err = strconv.ParseInt(strings.TrimSuffix(percent, "%"), 10, 64); err != nil {
			return Config{}, fmt.Errorf("qosReserved memory %q: %w", percent, err)
		}
		if _, c.QOSReserve.Memory, err = facts.ForPods(k); err != nil {
			return Config{}, err
		}
	}
	enforced := func(what string) bool { return slices.Contains(k.EnforceNodeAllocatable, what) }
	if enforced(validation.EnforcePods) {
		milli, memory, err := facts.ForPods(k)
		if err != nil {
			return Config{}, err
		}
		c.Pods = &Share{CPUMilli: milli, Memory: memory, HugePages: map[string]int64{}}
		if all := capacity.MaxTasks("/"); all > 0 {
			c.Pods.PIDs = max(all-pid(kube)-pid(system), 1)
		}
		for name, bytes := range facts.HugePages {
			if size, ok := allocated.HugePageSize(name); ok {
				c.Pods.HugePages[size] = bytes
			}
		}
	}
	reserve := func(setting, name, full, compressible string, list v1.ResourceList) {
		if enforced(full) || enforced(compressible) {
			c.Reserved = append(c.Reserved,
				Reserved{Setting: setting, Name: path.Join("/", name), Incompressible: enforced(full),
					Share: Share{CPUMilli: list.Cpu().MilliValue(), Memory: list.Memory().Value(),
						PIDs: pid(list)}})
		}
	}
	reserve("systemReservedCgroup", k.SystemReservedCgroup, validation.EnforceSystem,
		validation.EnforceSystemCompressible, system)
	reserve("kubeReservedCgroup", k.KubeReservedCgroup, validation.EnforceKube, validation.EnforceKubeCompressible,
		kube)
	return c, nil
}

// SwapForPods returns the swap that pods may use in total, in bytes.
func SwapForPods(k *v1beta1.KubeletConfiguration, facts capacity.Node) int64 {
	if k.MemorySwap.SwapBehavior != validation.LimitedSwap {
		return 0
	}
	return facts.Swap
}

// ReservesMemory reports whether pods' memory requests are reserved for them (KEP-2570).
func ReservesMemory(cfg *config.Config) bool {
	return cfg.Gates.Enabled(gates.MemoryQoS) &&
		cfg.Kubelet.MemoryReservationPolicy == v1beta1.TieredReservationMemoryReservationPolicy
}
