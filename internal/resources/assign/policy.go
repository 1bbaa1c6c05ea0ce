package assign

import (
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/gates"
	"github.com/deckhand-node/deckhand/internal/host/topology"
	"github.com/deckhand-node/deckhand/internal/resources/assign/cpu"
)

// PolicyOf returns the policy of a valid configuration.
func PolicyOf(cfg *config.Config) Policy {
	k := &cfg.Kubelet
	on := func(option string) bool {
		on, _ := strconv.ParseBool(k.CPUManagerPolicyOptions[option])
		return on
	}
	p := Policy{Static: k.CPUManagerPolicy == policyStatic, Strict: on("strict-cpu-reservation"),
		Options:   cpu.Options{WholeCores: on("full-pcpus-only"), ByCache: on("prefer-align-cpus-by-uncorecache")},
		KeepQuota: !cfg.Gates.Enabled(gates.DisableCPUQuotaWithExclusiveCPUs), Patient: cfg.Standalone,
		Reserved: func(*topology.Machine) cpuset.CPUSet { return cpuset.New() }}
	if !p.Static {
		return p
	}
	if set, err := cpuset.Parse(k.ReservedSystemCPUs); err == nil && !set.IsEmpty() {
		p.Reserved = func(*topology.Machine) cpuset.CPUSet { return set }
		return p
	}
	var sum resource.Quantity
	for _, amounts := range []map[string]string{k.KubeReserved, k.SystemReserved} {
		if q, err := resource.ParseQuantity(amounts["cpu"]); err == nil {
			sum.Add(q)
		}
	}
	count := int(sum.Value()) // rounded up
	p.Reserved = func(m *topology.Machine) cpuset.CPUSet {
		set, _ := cpu.Take(m, m.Online(), count, cpu.Options{})
		return set
	}
	return p
}
