package agent

import (
	"errors"
	"slices"
	"testing"
)

// TestMovedThenAdjusted: what depends on the limits of the agent's control group is set in the group that the agent
// moves itself into, not in the one that it leaves.
func TestMovedThenAdjusted(t *testing.T) {
	failure := errors.New("no such group")
	for _, failed := range []error{nil, failure} {
		var did []string
		m := processesModule(func() error { did = append(did, "move"); return failed }, func() { did = append(did, "adjust") })
		want := []string{"move", "adjust"}
		if failed != nil {
			want = want[:1]
		}
		if err := m.Start(t.Context()); !errors.Is(err, failed) || !slices.Equal(did, want) {
			t.Errorf("did %q, want %q; %v", did, want, err)
		}
	}
}
