package pressure_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/kubelet/config/v1beta1"

	. "github.com/deckhand-node/deckhand/internal/resources/pressure"
)

func configuration(hard map[string]string) *v1beta1.KubeletConfiguration {
	return &v1beta1.KubeletConfiguration{EvictionHard: hard, EnforceNodeAllocatable: []string{"pods"}}
}

func TestSettingsThatAreOff(t *testing.T) {
	s, err := SettingsOf(configuration(map[string]string{"memory.available": "0%", "nodefs.available": "100%", "containerfs.available": "10%"}))
	if err != nil || len(s.Thresholds) > 0 {
		t.Errorf("%v, %v", s.Thresholds, err)
	}
}

func TestInvalidSettings(t *testing.T) {
	for value, want := range map[string]string{"lots": `evictionHard memory.available "lots"`, "NaN%": `"NaN%"`, "-1": "negative"} {
		_, err := SettingsOf(configuration(map[string]string{"memory.available": value}))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %s", value, err, want)
		}
	}
	k := configuration(nil)
	k.EvictionSoft = map[string]string{"pid.available": "10"}
	if _, err := SettingsOf(k); err == nil || !strings.Contains(err.Error(), "evictionSoftGracePeriod pid.available") {
		t.Errorf("soft without a grace period: %v", err)
	}
}

// TestSoftWithoutGrace: a soft threshold with a grace period of 0 is a hard one.
func TestSoftWithoutGrace(t *testing.T) {
	k := configuration(nil)
	k.EvictionSoft, k.EvictionSoftGracePeriod = map[string]string{"pid.available": "10"}, map[string]string{"pid.available": "0s"}
	s, err := SettingsOf(k)
	if err != nil || len(s.Thresholds) != 1 || s.Thresholds[0].Grace != 0 {
		t.Errorf("%+v, %v", s.Thresholds, err)
	}
	s.MaxPodGrace = time.Minute
	o := Observation{Readings: map[Signal]Reading{Processes: {1, 100}}}
	pods := []Pod{{UID: "a", Active: true, Processes: 50, Grace: 30 * time.Second}}
	if _, act := Decide(s, Memory{}, o, pods, 0); act.Victim == nil || act.Victim.Grace != time.Second {
		t.Errorf("at once: %+v", act)
	}
}
