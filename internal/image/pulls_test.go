package image

import (
	"context"
	"testing"

	"github.com/deckhand-node/deckhand/internal/image/pull"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/engine"
)

// TestAdd: exactly the waits for an image under way say how far it is, and those who made
// them keep theirs.
func TestAdd(t *testing.T) {
	image := func(container, name string) pod.Wait {
		return pod.Wait{Code: pod.WaitAction, Container: container, Action: pod.EnsureImage, Image: name}
	}
	waits := []pod.Wait{image("a", "r.io/x"), image("b", "r.io/y:1"), {Code: pod.WaitAction, Container: "a", Action: pod.CreateContainer},
		{Code: pod.WaitRetry, Container: "a", Action: pod.EnsureImage, Image: "r.io/x"}}
	asked := 0
	u := Underway(func() map[string]pod.Pull {
		asked++
		return map[string]pod.Pull{"r.io/x:latest": {Begun: true}}
	})
	for i, w := range u.Add(waits) {
		want := waits[i]
		want.Pull.Begun = i == 0
		if w != want {
			t.Errorf("wait %d is %+v, want %+v", i, w, want)
		}
	}
	if waits[0].Pull != (pod.Pull{}) {
		t.Error("the waits that were given have changed")
	}
	if asked = 0; len(u.Add(waits[2:])) != 2 || asked > 0 {
		t.Error("where nobody waits for an image, pulls were looked at")
	}
}

// manager has pulls under way, and counts who asks.
type manager struct {
	under []pull.Progress
	asked int
}

func (m *manager) Progress(context.Context) []pull.Progress { m.asked++; return m.under }

// TestNow: pulls are looked at once, and only when it is needed; of several of one image
// that counts which is under way.
func TestNow(t *testing.T) {
	m := &manager{under: []pull.Progress{{Image: "a:1", Transfer: &engine.Transfer{LayersDone: 1, Layers: 3, BytesDone: 5e5, Bytes: 2e6}},
		{Image: "a:1", Position: 1}, {Image: "b:1", Position: 2}, {Image: "c:1", Position: 3}, {Image: "c:1"}}}
	u := pullsUnderWay(t.Context(), m)
	if m.asked > 0 {
		t.Error("pulls were looked at before that was needed")
	}
	for range 2 {
		for name, want := range map[string]pod.Pull{
			"a:1": {Begun: true, LayersDone: 1, Layers: 3, BytesDone: 5e5, Bytes: 2e6}, "b:1": {Queued: 2}, "c:1": {Begun: true}, "d:1": {},
		} {
			if got := u()[name]; got != want {
				t.Errorf("the pull of %s is %+v, want %+v", name, got, want)
			}
		}
	}
	if m.asked != 1 {
		t.Errorf("pulls were looked at %d times", m.asked)
	}
}
