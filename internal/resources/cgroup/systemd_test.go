//go:build systemd

// Needs systemd as the first process: test/systemd builds and runs this where there is one.

package cgroup

import (
	"os/exec"
	"testing"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	v1 "k8s.io/api/core/v1"
)

// What systemd does to itself undoes nothing, and cuts nobody off from it for good.
func TestLimitsOutliveAReload(t *testing.T) {
	m := onHostWith(t, Config{PIDsLimit: 50})
	l, _ := m.hierarchies()
	pods := []*v1.Pod{makePod("guaranteed", exact), makePod("b-u-r_s@t", loose), makePod("best", nothing)}
	lim := allocated.Limits{CPUMilli: 100, CPULimitMilli: 155, MemoryLimit: 64 * mi}
	for _, p := range pods {
		m.mustEnsure(t, p, lim)
	}
	lim.CPULimitMilli = 333 // a new pod's, and a changed one's: systemd keeps them in different places
	m.mustEnsure(t, pods[0], lim)
	for _, how := range []string{"daemon-reload", "daemon-reexec"} {
		if out, err := exec.CommandContext(t.Context(), "systemctl", how).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, p := range pods {
			m.mustEnsure(t, makePod("another-"+how, loose), allocated.Limits{CPUMilli: 100}) // has systemd look at them all
			want := lim
			if p != pods[0] {
				want.CPULimitMilli = 155
			}
			m.reads(t, m.Group(p), m.podSettings(p, want))
		}
		m.reads(t, m.QoSCgroup(v1.PodQOSBestEffort), []setting{m.rules(l).Shares(allocated.MinShares)})
		if err := m.Remove(t.Context(), "another-"+"daemon-reload"); err != nil {
			t.Error(err)
		}
		if how == "daemon-reload" {
			m.burstableWeighs(t, 102)
		}
	}
}
