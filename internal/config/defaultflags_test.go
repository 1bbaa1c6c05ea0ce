package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/deckhand-node/deckhand/internal/config/flags"
)

// TestShownDefaultsHold: to give a flag the value that /flagz shows for it changes nothing, standalone and in a cluster.
// Help shows the same values.
func TestShownDefaultsHold(t *testing.T) {
	fields := map[string]bool{}
	for name := range flags.New(DefaultRootDir).Fields() {
		fields[name] = true
	}
	if len(fields) < 90 {
		t.Fatalf("%d flags stand for fields", len(fields))
	}
	for world, args := range map[string][]string{"standalone": nil, "cluster": {"--kubeconfig=/k"}} {
		t.Run(world, func(t *testing.T) {
			want := mustLoad(t, parse(t, args...))
			for _, shown := range want.Flags {
				if !fields[shown.Name] {
					continue
				}
				if shown.Name == "cpu-manager-policy-options" && shown.Value == "" {
					continue // none; it can't be given as such
				}
				value := strings.TrimSuffix(strings.TrimPrefix(shown.Value, "["), "]")
				got := mustLoad(t, parse(t, append([]string{"--" + shown.Name + "=" + value}, args...)...))
				if diff := cmp.Diff(want.Kubelet, got.Kubelet, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("--%s=%s isn't the default (-default +given):\n%s", shown.Name, value, diff)
				}
			}
		})
	}
}
