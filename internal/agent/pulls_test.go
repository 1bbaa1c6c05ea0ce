package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/status"
)

// TestWatchersSeePulls: who watches is woken every second while a pod waits for an image,
// and otherwise only by changes.
func TestWatchersSeePulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := view{&Agent{status: status.New(), merger: desired.New(logr.Discard())}}
		changed, cancel := a.Changed()
		defer cancel()
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a", Image: "r.io/x"}}}}
		p.UID = "u1"
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
