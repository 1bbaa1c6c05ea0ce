package kubeletconfig

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/kubelet/config/v1beta1"
)

// MemoryQoS is the feature gate of memory protection and throttling on cgroup v2
// (KEP-2570); alpha, and off unless it is turned on.
const MemoryQoS = "MemoryQoS"

// gates are the feature gates that this build knows, with their defaults.
func gates() map[string]bool { return map[string]bool{MemoryQoS: false} }

// Enabled reports whether a feature gate that this build knows is on.
func Enabled(c *v1beta1.KubeletConfiguration, gate string) bool {
	if on, given := c.FeatureGates[gate]; given {
		return on
	}
	return gates()[gate]
}

// gated are the fields that count only with a feature gate.
func gated() map[string]string {
	return map[string]string{"memoryThrottlingFactor": MemoryQoS, "memoryReservationPolicy": MemoryQoS}
}

// switchedOff tells of gates that this build doesn't know, and of fields whose gate is off.
func (d *Document) switchedOff() []found {
	var out []found
	for _, gate := range slices.Sorted(maps.Keys(d.Config.FeatureGates)) {
		if _, known := gates()[gate]; !known {
			line := d.LineOf("featureGates." + gate)
			out = append(out, found{line, fmt.Sprintf("featureGates[%s] (line %d): this build has no such switch", gate, line)})
		}
	}
	for field, gate := range gated() {
		if d.Given(field) && !d.isZero(field) && !Enabled(&d.Config, gate) {
			line := d.LineOf(field)
			out = append(out, found{line, fmt.Sprintf("%s (line %d): it needs the feature gate %s", field, line, gate)})
		}
	}
	return out
}
