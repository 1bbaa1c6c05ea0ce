package gates_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deckhand-node/deckhand/internal/config/gates"
)

// The golden file is what the kubelet itself says; its header says how it was made.
func TestGatesAreTheKubelets(t *testing.T) {
	text, err := os.ReadFile("testdata/kubelet-1.36-gates.txt")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			want = append(want, strings.TrimSuffix(line, "\n"))
		}
	}
	for _, g := range gates.All() {
		lock, needs := "free", "-"
		if g.Locked {
			lock = "locked"
		}
		if len(g.Needs) > 0 {
			needs = strings.Join(g.Needs, ",")
		}
		got = append(got, fmt.Sprintf("%s %s %t %s %s", g.Name, g.Stage, g.Default, lock, needs))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-kubelet +table):\n%s", diff)
	}
}

// Nothing is left open, nothing said twice, and no constant is without its gate.
func TestEffectOfEachGateIsSaid(t *testing.T) {
	known := map[gates.Effect]bool{gates.Switched: true, gates.AlwaysOn: true, gates.NeverOn: true, gates.Elsewhere: true}
	var switched []string
	for _, g := range gates.All() {
		if !known[g.Effect] || g.Acts == "" {
			t.Errorf("%s: effect %q, %q", g.Name, g.Effect, g.Acts)
		}
		if g.Effect == gates.Switched {
			switched = append(switched, g.Name)
		}
	}
	if want := []string{gates.AllAlpha, gates.AllBeta, "CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions", gates.ContainerCheckpoint, gates.DisableCPUQuotaWithExclusiveCPUs, gates.MemoryQoS, gates.PreventStaticPodAPIReferences, gates.QOSReserved, gates.ReduceDefaultCrashLoopBackOffDecay, gates.ResourceHealthStatus, "RotateKubeletServerCertificate"}; !slices.Equal(switched, want) {
		t.Errorf("switched are %q, constants there are for %q", switched, want)
	}
}

func TestLabelIsTheMetrics(t *testing.T) {
	for stage, want := range map[gates.Stage]string{gates.Alpha: "ALPHA", gates.Beta: "BETA", gates.GA: "", gates.Deprecated: "DEPRECATED"} {
		if got := stage.Label(); got != want {
			t.Errorf("%s is %q, want %q", stage, got, want)
		}
	}
}
