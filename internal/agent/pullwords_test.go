package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/status"
)

func podOf(images ...string) *v1.Pod {
	p := &v1.Pod{}
	p.UID = "u1"
	for i, name := range images {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: string(rune('a' + i)), Image: name})
	}
	return p
}

// TestWithPulls: exactly the reasons that are about an image under way get longer, and
// those who made them keep theirs.
func TestWithPulls(t *testing.T) {
	p := podOf("r.io/x", "r.io/y:1")
	reasons := []pod.Reason{
		{Container: "a", Text: lifecycle.ImageWait("r.io/x")}, {Container: "b", Text: lifecycle.ImageWait("r.io/y:1")},
		{Container: "a", Text: "is being created"}, {Text: lifecycle.ImageWait("r.io/x")}, {Container: "c", Text: lifecycle.ImageWait("r.io/x")},
	}
	asked := 0
	words := func() pullWords { asked++; return pullWords{"r.io/x:latest": "being pulled"} }
	got := withPulls(p, reasons, words)
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
	if asked = 0; len(withPulls(p, reasons[2:], words)) != 3 || asked > 0 {
		t.Error("where nobody waits for an image, pulls were looked at")
	}
}

func TestPullText(t *testing.T) {
	for want, p := range map[string]image.Progress{
		"number 2 in the queue":           {Position: 2},
		"being pulled":                    {},
		"1 of 3 layers, 0.5 MB of 2.0 MB": {Transfer: &image.Transfer{LayersDone: 1, Layers: 3, BytesDone: 5e5, Bytes: 2e6}},
	} {
		if got := pullText(&p); got != want {
			t.Errorf("%+v is %q, want %q", p, got, want)
		}
	}
}

// TestWatchersSeePulls: who watches is woken every second while a pod waits for an image,
// and otherwise only by changes.
func TestWatchersSeePulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := view{&Agent{status: status.New(), merger: desired.New(logr.Discard())}}
		changed, cancel := a.Changed()
		defer cancel()
		p := podOf("r.io/x")
		publish := func(text string) {
			a.status.Publish(p.UID, pod.Report{Desired: &pod.Desired{Pod: p}, Status: &v1.PodStatus{}, Reasons: []pod.Reason{{Container: "a", Text: text}}})
		}
		count := func(d time.Duration) (n int) {
			for end := time.After(d); ; n++ {
				select {
				case <-changed:
				case <-end:
					return n
				}
			}
		}
		count(time.Minute) // what there was before
		publish(lifecycle.ImageWait("r.io/x"))
		if n := count(10500 * time.Millisecond); n != 11 {
			t.Errorf("in 10 s of a pull, who watches was woken %d times, want once for the change and 10 times more", n)
		}
		publish("is being created")
		if n := count(time.Hour); n != 1 {
			t.Errorf("after it, who watches was woken %d times, want once for the change", n)
		}
	})
}
