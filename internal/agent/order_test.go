package agent_test

import (
	"slices"
	"testing"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/agent"
)

// Pods that are stopped stay so when the sources report them. An agent that only stops pods knows their specs before its
// workers stop what runs.
func TestModulesInOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stopAll bool
		order   []string
	}{
		{false, []string{"stopped pods", "manifest directory"}},
		{true, []string{"stopped pods", "last pods of source file", "last pods of source http", "workers"}},
	} {
		a, err := agent.New(newRig(t).cfg, agent.Options{Log: logr.Discard(), StopAll: c.stopAll})
		if err != nil {
			t.Fatal(err)
		}
		last := -1
		for _, name := range c.order {
			i := slices.Index(a.Modules(), name)
			if i <= last {
				t.Errorf("StopAll %t: %q is module %d of %q", c.stopAll, name, i, a.Modules())
			}
			last = i
		}
	}
}
