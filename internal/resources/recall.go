package resources

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/resources/knob"
)

// recall counts the pods that an earlier agent left, by what their groups have in
// force. Else the groups above them would lose what is theirs, and get it back only
// as this agent comes to one pod after the other.
//
// A value that can't be read counts for nothing until the agent comes to its pod.
func (m *Manager) recall(l layout) {
	for _, class := range [...]v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable} {
		entries, err := os.ReadDir(filepath.Join(l.mounts["cpu"], m.tier(class)))
		if err != nil {
			continue
		}
		for _, e := range entries {
			uid, ok := m.uid(class, e.Name())
			if _, known := m.asked[uid]; !ok || known {
				continue
			}
			if asked := m.inForce(l, class, uid); asked != (sums{}) {
				m.asked[uid] = asked
			}
		}
	}
}

// inForce is what a pod once asked for of the groups above it, by its own group.
func (m *Manager) inForce(l layout, class v1.PodQOSClass, uid types.UID) sums {
	rules, name := m.rules(l), m.name(class, uid)
	var asked sums
	if class == v1.PodQOSBurstable {
		asked.burstableCPU = rules.CPUMilli(number(l, name, rules.Shares(0)))
	}
	switch {
	case !rules.ReserveMemory:
	case class == v1.PodQOSBurstable:
		asked.burstable = number(l, name, knob.Setting{Controller: "memory", File: "memory.low"})
	default:
		asked.guaranteed = number(l, name, knob.Setting{Controller: "memory", File: "memory.min"})
	}
	return asked
}

// number is what the setting's file says now; 0 if that is no number.
func number(l layout, name string, s knob.Setting) int64 {
	text, err := cgroups.ReadFile(filepath.Join(l.mounts[s.Controller], name), s.File)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
