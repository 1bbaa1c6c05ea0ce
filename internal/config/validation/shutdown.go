package validation

import (
	"fmt"
	"time"
)

// shutdownByPriority is the gate of grace periods by pod priority.
const shutdownByPriority = "GracefulNodeShutdownBasedOnPodPriority"

// shutdown checks the grace periods of a node shutdown (KEP-2000, KEP-2712).
func (k *check) shutdown() {
	all, critical := k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration
	k.gracePeriod("shutdownGracePeriod", all)
	k.gracePeriod("shutdownGracePeriodCriticalPods", critical)
	if critical > all && all >= 0 {
		k.invalid(at("shutdownGracePeriodCriticalPods"), critical.String(),
			fmt.Sprintf("must be at most shutdownGracePeriod (%s), which it is a part of", all))
	}
	path := at("shutdownGracePeriodByPodPriority")
	if len(k.ShutdownGracePeriodByPodPriority) == 0 {
		return
	}
	k.needsGate(path, shutdownByPriority)
	if all != 0 || critical != 0 {
		k.forbidden(path, "can't be given together with shutdownGracePeriod or shutdownGracePeriodCriticalPods")
	}
	seen := map[int32]bool{}
	for i, p := range k.ShutdownGracePeriodByPodPriority {
		if seen[p.Priority] {
			k.duplicate(path.Index(i).Child("priority"), p.Priority)
		}
		seen[p.Priority] = true
		if p.ShutdownGracePeriodSeconds < 0 {
			k.invalid(path.Index(i).Child("shutdownGracePeriodSeconds"), p.ShutdownGracePeriodSeconds,
				"must be 0 or more")
		}
	}
}

func (k *check) gracePeriod(name string, d time.Duration) {
	if d != 0 && d < time.Second {
		k.invalid(at(name), d.String(), "must be at least 1s, or 0 for none")
	}
}
