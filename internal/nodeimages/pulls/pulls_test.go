package pulls

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
)

func podOf(images ...string) *v1.Pod {
	p := &v1.Pod{}
	for i, name := range images {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: string(rune('a' + i)), Image: name})
	}
	return p
}

// TestExplain: exactly the reasons that are about an image under way get longer, and
// those who made them keep theirs.
func TestExplain(t *testing.T) {
	p := podOf("r.io/x", "r.io/y:1")
	reasons := []pod.Reason{
		{Container: "a", Text: lifecycle.ImageWait("r.io/x")}, {Container: "b", Text: lifecycle.ImageWait("r.io/y:1")},
		{Container: "a", Text: "is being created"}, {Text: lifecycle.ImageWait("r.io/x")}, {Container: "c", Text: lifecycle.ImageWait("r.io/x")},
	}
	asked := 0
	words := Words(func() map[string]string { asked++; return map[string]string{"r.io/x:latest": "being pulled"} })
	got := words.Explain(p, reasons)
	for i, r := range got {
		want := reasons[i].Text
		if i == 0 {
			want += ": being pulled"
		}
		if r.Text != want {
			t.Errorf("reason %d reads %q, want %q", i, r.Text, want)
		}
	}
	if reasons[0].Text != lifecycle.ImageWait("r.io/x") {
		t.Error("the reasons that were given have changed")
	}
	if asked = 0; len(words.Explain(p, reasons[2:])) != 3 || asked > 0 {
		t.Error("where nobody waits for an image, pulls were looked at")
	}
}

func TestText(t *testing.T) {
	for want, p := range map[string]image.Progress{
		"number 2 in the queue":           {Position: 2},
		"being pulled":                    {},
		"1 of 3 layers, 0.5 MB of 2.0 MB": {Transfer: &image.Transfer{LayersDone: 1, Layers: 3, BytesDone: 5e5, Bytes: 2e6}},
	} {
		if got := text(&p); got != want {
			t.Errorf("%+v is %q, want %q", p, got, want)
		}
	}
}

// manager has pulls under way, and counts who asks.
type manager struct {
	under []image.Progress
	asked int
}

func (m *manager) Progress(context.Context) []image.Progress { m.asked++; return m.under }

// TestNow: pulls are looked at once, and only when it is needed; of several of one image
// that counts which is under way.
func TestNow(t *testing.T) {
	m := &manager{under: []image.Progress{{Image: "a:1"}, {Image: "a:1", Position: 1}, {Image: "b:1", Position: 2}}}
	words := Now(t.Context(), m)
	if m.asked > 0 {
		t.Error("pulls were looked at before a word was needed")
	}
	for range 2 {
		if got := words(); len(got) != 2 || got["a:1"] != "being pulled" || got["b:1"] != "number 2 in the queue" {
			t.Errorf("the words are %q", got)
		}
	}
	if m.asked != 1 {
		t.Errorf("pulls were looked at %d times", m.asked)
	}
}
