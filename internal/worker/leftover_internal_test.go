package worker

import (
	"testing"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// `deckhand down` ends when the rest of a pod is for a later agent: a driver gets a minute to register.
func TestLeftToOthers(t *testing.T) {
	driver := pod.Object{Kind: pod.CSIDriver, Name: "csi.example.com"}
	for name, c := range map[string]struct {
		wait pod.Wait
		want bool
	}{
		"a full disk":                 {pod.Wait{Code: pod.WaitRetry, Action: pod.CleanPod, Disk: true, Attempts: 1}, true},
		"an absent driver":            {pod.Wait{Code: pod.WaitRetry, Action: pod.CleanPod, Object: driver, Attempts: 2}, true},
		"one that may still register": {pod.Wait{Code: pod.WaitRetry, Action: pod.CleanPod, Object: driver, Attempts: 1}, false},
		"another object":              {pod.Wait{Code: pod.WaitRetry, Action: pod.CleanPod, Object: pod.Object{Kind: "Secret"}, Attempts: 9}, false},
		"containers that are there":   {pod.Wait{Code: pod.WaitRetry, Action: pod.StopContainer, Object: driver, Attempts: 9}, false},
		"the clean-up that runs":      {pod.Wait{Code: pod.WaitAction, Action: pod.CleanPod}, false},
	} {
		if got := leftToOthers(c.wait); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
