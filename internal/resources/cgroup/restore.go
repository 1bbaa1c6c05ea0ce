package cgroup

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// restore counts the requests of pods that an earlier agent has left, from the values of their groups. Otherwise the
// values of the QoS cgroups wouldn't include these pods until this agent syncs them.
//
// A value that can't be read counts as 0 until the agent syncs the pod.
func (m *Manager) restore(l hierarchies) {
	for _, class := range [...]v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable} {
		uids, _ := m.PodsIn(l.Mounts["cpu"], class)
		for _, uid := range uids {
			if _, counted := m.requested[uid]; counted {
				continue
			}
			if request := m.inForce(l, class, uid); request != (sums{}) {
				m.requested[uid] = request
			}
		}
	}
}

// inForce returns a pod's requests, as far as the values of its group show them.
func (m *Manager) inForce(l hierarchies, class v1.PodQOSClass, uid types.UID) sums {
	rules, name := m.rules(l), m.GroupOf(class, uid)
	var request sums
	if class == v1.PodQOSBurstable {
		request.burstableCPU = rules.CPUMilli(readNumber(l, name, rules.Shares(0)))
	}
	switch {
	case !rules.ReserveMemory:
	case class == v1.PodQOSBurstable:
		request.burstable = readNumber(l, name, setting{Controller: "memory", File: "memory.low"})
	default:
		request.guaranteed = readNumber(l, name, setting{Controller: "memory", File: "memory.min"})
	}
	return request
}

// readNumber returns the current value of the setting's file, or 0 if it isn't a number.
func readNumber(l hierarchies, name string, s setting) int64 {
	text, err := cgroups.ReadFile(filepath.Join(l.Mounts[s.Controller], name), s.File)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
