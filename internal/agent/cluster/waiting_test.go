package cluster

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// TestWaiting: of the API server's pods, those are named whose end can't be told, and those that need what it alone knows.
func TestWaiting(t *testing.T) {
	statuses := podstatus.NewStore()
	publish := func(name string, source pod.Source, r pod.Report) {
		p := &v1.Pod{}
		p.Namespace, p.Name, p.UID = "default", name, types.UID(name)
		r.Desired, r.Status = &pod.Desired{Pod: p, Source: source}, &v1.PodStatus{}
		statuses.Publish(p.UID, r)
	}
	needs := []pod.Wait{{Code: pod.WaitRetry, Object: pod.Object{Kind: "Secret", Namespace: "default", Name: "s"}}}
	publish("static", pod.SourceFile, pod.Report{Waits: needs})
	publish("runs", pod.SourceAPI, pod.Report{})
	if got := waiting(statuses.List(), nil); got != "" {
		t.Errorf("nobody waits: %q", got)
	}
	publish("ended", pod.SourceAPI, pod.Report{Gone: true})
	for i := range 12 {
		publish(fmt.Sprintf("waits-%02d", i), pod.SourceAPI, pod.Report{Waits: needs})
	}
	text := waiting(statuses.List(), []string{"default/runs"})
	for _, want := range []string{"have ended: default/ended;", "only it knows: default/waits-00,", "default/waits-09 and 2 more; these run with service account tokens that have ended: default/runs"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q isn't in %q", want, text)
		}
	}
	if strings.Contains(text, "static") {
		t.Errorf("%q", text)
	}
}
