package gates_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deckhand-node/deckhand/internal/config/gates"
)

func resolve(t *testing.T, wanted map[string]bool) gates.Set {
	t.Helper()
	s, problems := gates.Resolve(wanted)
	if len(problems) > 0 {
		t.Fatalf("problems: %v", problems)
	}
	return s
}

func TestNotActedOn(t *testing.T) {
	s := resolve(t, map[string]bool{
		"MemoryQoS": true,
		// In force here as asked for, or nothing is asked for.
		"EventedPLEG": true, "SidecarContainers": true, "NodeDeclaredFeatures": true, "ExtendWebSocketsToKubelet": true, "PodsAPI": false, "JobManagedBy": true,
		// In vain.
		"EnvFiles": false, "ContainerStopSignals": false, "CRIListStreaming": true, "PodAndContainerStatsFromCRI": true, "HPAScaleToZero": true,
	})
	want := []gates.Note{
		{"CRIListStreaming", "never on in this build: it streams only lists of the runtime's objects that are too long for one answer"},
		{"ContainerStopSignals", "always on in this build: containers may name the signal that stops them"},
		{"EnvFiles", "always on in this build: environment variables may come from files that containers write"},
		{"HPAScaleToZero", "changes nothing in a node agent: it is about the controllers"},
		{"PodAndContainerStatsFromCRI", "never on in this build: it reads control groups itself, even if the runtime " +
			"has statistics"},
	}
	if diff := cmp.Diff(want, s.NotActedOn()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTogetherInVain(t *testing.T) {
	for name, wanted := range map[string]map[string]bool{
		"their defaults":   {gates.AllAlpha: false},
		"nothing is given": {},
	} {
		if notes := resolve(t, wanted).NotActedOn(); len(notes) > 0 {
			t.Errorf("%s: %v", name, notes)
		}
	}
	s := resolve(t, map[string]bool{gates.AllAlpha: true, gates.MemoryQoS: true, "PodsAPI": true})
	changed, followed := 0, 0
	for _, st := range s.All() {
		if st.Stage == gates.Alpha && !st.Given {
			changed++
			if st.Effect == gates.AlwaysOn || st.Effect == gates.Switched {
				followed++
			}
		}
	}
	if followed == 0 || followed == changed {
		t.Errorf("of %d alpha gates, %d are on here", changed, followed)
	}
	want := []gates.Note{
		{gates.AllAlpha, fmt.Sprintf("%d of the %d gates that it turns on change nothing in this build", changed-followed, changed)},
		{"PodsAPI", "never on in this build: it has no gRPC service about pods"},
	}
	if diff := cmp.Diff(want, s.NotActedOn()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRetiring(t *testing.T) {
	s := resolve(t, map[string]bool{"SidecarContainers": true, "KMSv1": true, "MemoryQoS": true, "EnvFiles": true})
	want := []gates.Note{
		{"KMSv1", "the gate is DEPRECATED, and a later release will refuse it as unknown: leave it out"},
		{"SidecarContainers", "the gate is GA, and a later release will refuse it as unknown: leave it out"},
	}
	if diff := cmp.Diff(want, s.Retiring()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
