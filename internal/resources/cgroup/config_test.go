package cgroup

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/gates"
	"github.com/deckhand-node/deckhand/internal/host/capacity"
)

// TestQOSReserve: memory is kept for pods by what there is without reservations, and only with the feature gate.
func TestQOSReserve(t *testing.T) {
	for _, on := range []bool{false, true} {
		cfg := &config.Config{Kubelet: v1beta1.KubeletConfiguration{CPUCFSQuotaPeriod: &metav1.Duration{},
			QOSReserved: map[string]string{"memory": "40%"}, SystemReserved: map[string]string{"memory": "1Gi"},
			EvictionHard: map[string]string{"memory.available": "1Gi"}}}
		var problems []gates.Problem
		if cfg.Gates, problems = gates.Resolve(map[string]bool{gates.QOSReserved: on}); len(problems) > 0 {
			t.Fatal(problems)
		}
		got, err := ConfigOf(cfg, capacity.Node{CPUs: 2, Memory: 4 << 30})
		switch {
		case err != nil:
			t.Error(err)
		case !on && got.QOSReserve != nil:
			t.Errorf("without the gate: %+v", got.QOSReserve)
		case on && (got.QOSReserve == nil || *got.QOSReserve != (QOSReserve{Percent: 40, Memory: 3 << 30})):
			t.Errorf("with the gate: %+v", got.QOSReserve)
		}
	}
}
