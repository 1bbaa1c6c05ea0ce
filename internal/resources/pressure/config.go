package pressure

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Threshold is the least amount of a signal's resource that should be available.
type Threshold struct {
	Signal Signal
	Least  capacity.Amount
	// Grace is how long less than Least may be available before a pod is ended; 0 for a hard threshold.
	Grace time.Duration
	// Beyond is the amount above Least that has to be available before a threshold that was met counts as no longer met
	// (evictionMinimumReclaim).
	Beyond capacity.Amount
}

// id identifies the threshold by its values: if a value changes, the time for which the threshold has been met starts
// again.
func (t Threshold) id() string {
	return fmt.Sprintf("%s<%v+%v for %s", t.Signal, t.Least, t.Beyond, t.Grace)
}

// Settings are the settings of evictions. They are immutable.
type Settings struct {
	// Thresholds are in the order in which they are handled: by signal as in kinds, hard ones first.
	Thresholds []Threshold
	// Transition is how long a node condition stays true after its thresholds were last met.
	Transition time.Duration
	// MaxPodGrace is the longest grace period for soft thresholds; negative if only the pod's own applies.
	MaxPodGrace time.Duration
}

// longestTransition is the maximum of Transition. It prevents overflows when times are added.
const longestTransition = 365 * 24 * time.Hour

// SettingsOf returns the settings of a configuration. An error names the invalid value.
func SettingsOf(k *v1beta1.KubeletConfiguration) (Settings, error) {
	transition := cmp.Or(k.EvictionPressureTransitionPeriod.Duration, 5*time.Minute)
	s := Settings{Transition: min(transition, longestTransition),
		MaxPodGrace: pod.Seconds(int64(k.EvictionMaxPodGracePeriod))}
	for _, kind := range kinds() {
		name := string(kind.signal)
		beyond, err := amount("evictionMinimumReclaim", name, k.EvictionMinimumReclaim)
		if err != nil {
			return Settings{}, err
		}
		for _, list := range []struct {
			setting string
			values  map[string]string
			soft    bool
		}{{"evictionHard", hard(kind.signal, k), false}, {"evictionSoft", k.EvictionSoft, true}} {
			least, err := amount(list.setting, name, list.values)
			if err != nil {
				return Settings{}, err
			}
			if least.Off() {
				continue
			}
			t := Threshold{Signal: kind.signal, Least: least, Beyond: beyond}
			if list.soft {
				if t.Grace, err = time.ParseDuration(k.EvictionSoftGracePeriod[name]); err != nil {
					return Settings{}, fmt.Errorf("evictionSoftGracePeriod %s: %w", name, err)
				}
			}
			s.Thresholds = append(s.Thresholds, t)
		}
	}
	return s, nil
}

// hard returns evictionHard for a signal. If no threshold for the memory of all pods is set, and the limit of the pods'
// group is enforced, it is that of the node's memory.
func hard(s Signal, k *v1beta1.KubeletConfiguration) map[string]string {
	if s != PodsMemory || !slices.Contains(k.EnforceNodeAllocatable, "pods") {
		return k.EvictionHard
	}
	return map[string]string{string(s): cmp.Or(k.EvictionHard[string(s)], k.EvictionHard[string(NodeMemory)])}
}

func amount(setting, signal string, values map[string]string) (capacity.Amount, error) {
	a, err := capacity.ParseAmount(values[signal])
	if err != nil {
		return a, fmt.Errorf("%s %s %w", setting, signal, err)
	}
	return a, nil
}
