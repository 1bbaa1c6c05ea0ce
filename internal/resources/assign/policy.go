package assign

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/gates"
	"github.com/deckhand-node/deckhand/internal/host/topology"
	"github.com/deckhand-node/deckhand/internal/resources/assign/cpu"
)

// PolicyOf returns the policy of a valid configuration. It fails if this machine doesn't allow it.
func PolicyOf(cfg *config.Config, machine func() (topology.Machine, error)) (Policy, error) {
	k := &cfg.Kubelet
	p := Policy{Static: k.CPUManagerPolicy == policyStatic, Patient: cfg.Standalone,
		KeepQuota: !cfg.Gates.Enabled(gates.DisableCPUQuotaWithExclusiveCPUs)}
	if !p.Static {
		return p, nil
	}
	now, err := machine()
	if err != nil {
		return p, fmt.Errorf("cpuManagerPolicy static: %w", err)
	}
	if p.Policy, err = cpu.PolicyOf(&now, k.CPUManagerPolicyOptions); err != nil {
		return p, err
	}
	if set, err := cpuset.Parse(k.ReservedSystemCPUs); err == nil && !set.IsEmpty() {
		if gone := set.Difference(now.Online()); !gone.IsEmpty() {
			return p, fmt.Errorf("reservedSystemCPUs %s: this machine has no CPU %s (online are %s); reserve others",
				set, gone, now.Online())
		}
		p.Reserved = func(*topology.Machine) cpuset.CPUSet { return set }
		return p, nil
	}
	var sum resource.Quantity
	for _, amounts := range []map[string]string{k.KubeReserved, k.SystemReserved} {
		if q, err := resource.ParseQuantity(amounts["cpu"]); err == nil {
			sum.Add(q)
		}
	}
	count := int(sum.Value()) // rounded up
	p.Reserved = func(m *topology.Machine) cpuset.CPUSet {
		set, _ := p.Reserve(m, count)
		return set
	}
	return p, nil
}
