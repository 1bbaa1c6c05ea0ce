package validation

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// memoryAvailable is the eviction signal of the node's memory.
const memoryAvailable = "memory.available"

// signals are the eviction signals (kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction).
func signals() []string {
	return []string{
		memoryAvailable, "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
		"containerfs.available", "containerfs.inodesFree", "pid.available", "allocatableMemory.available",
	}
}

// eviction checks the settings of evictions.
func (k *check) eviction() {
	k.notNegative(at("evictionPressureTransitionPeriod"), k.EvictionPressureTransitionPeriod.Duration)
	k.signalled(at("evictionHard"), k.EvictionHard, func(path *field.Path, _, value string) {
		k.threshold(path, value)
	})
	k.signalled(at("evictionSoft"), k.EvictionSoft, func(path *field.Path, signal, value string) {
		if k.threshold(path, value) && k.EvictionSoftGracePeriod[signal] == "" {
			k.required(at("evictionSoftGracePeriod").Key(signal), path,
				`it is needed beside its evictionSoft: how long the node may stay below that threshold, such as "1m30s"`)
		}
	})
	// A grace period without a threshold is harmless; drop-ins may leave it behind.
	k.signalled(at("evictionSoftGracePeriod"), k.EvictionSoftGracePeriod, func(path *field.Path, _, value string) {
		if d, err := time.ParseDuration(value); err != nil || d < 0 {
			k.invalid(path, value, `must be a duration such as "1m30s", 0 or more`)
		}
	})
	k.signalled(at("evictionMinimumReclaim"), k.EvictionMinimumReclaim, k.reclaim)
}

// signalled calls do for each entry of values whose key is an eviction signal, and rejects entries with other keys.
func (k *check) signalled(path *field.Path, values map[string]string, do func(path *field.Path, signal, value string)) {
	known := signals()
	for _, signal := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(known, signal) {
			k.unknownKey(path, signal, known...)
			continue
		}
		do(path.Key(signal), signal, values[signal])
	}
}

// threshold checks a threshold, and reports whether it is in effect: 0% and 100% disable it.
func (k *check) threshold(path *field.Path, value string) bool {
	if text, ok := strings.CutSuffix(value, "%"); ok {
		p, err := strconv.ParseFloat(text, 64)
		if err != nil || !(p >= 0 && p <= 100) { // this form rejects NaN, too
			k.invalid(path, value, `must be a percentage from "0%" to "100%", which both turn it off`)
		}
		return p > 0 && p < 100
	}
	q, err := parseQuantity(value)
	if err != nil || q.Sign() <= 0 {
		k.invalid(path, value, `must be a quantity of more than 0 such as "100Mi", or a percentage such as "10%"`)
	}
	return true
}

// reclaim checks a minimum amount to reclaim (evictionMinimumReclaim). Like the kubelet, it accepts more than 100%.
func (k *check) reclaim(path *field.Path, _, value string) {
	if text, ok := strings.CutSuffix(value, "%"); ok {
		if p, err := strconv.ParseFloat(text, 64); err != nil || !(p > 0) {
			k.invalid(path, value, `must be a percentage of more than 0 such as "5%"`)
		}
		return
	}
	if q, err := parseQuantity(value); err != nil || q.Sign() < 0 {
		k.invalid(path, value, `must be a quantity such as "500Mi", 0 or more, or a percentage such as "5%"`)
	}
}
