package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// remains is what another agent left of pods named "a": sandboxes, some of them live.
func remains(live bool, uids ...types.UID) map[types.UID]*pod.Observed {
	state := pod.SandboxNotReady
	if live {
		state = pod.SandboxReady
	}
	all := map[types.UID]*pod.Observed{}
	for _, uid := range uids {
		all[uid] = &pod.Observed{UID: uid, Name: "a", Namespace: "default", Sandboxes: []pod.Sandbox{{ID: "of-" + string(uid), State: state, IPs: []string{"10.0.0.1"}}}}
	}
	return all
}

// A pod that runs already has a worker at once, whatever else of its name is there: its
// predecessor's remains may take long to remove, or be nobody's to judge yet.
func TestRunningPodWaitsForNoOrphanOfItsName(t *testing.T) {
	for _, synced := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := bareWorld()
			w.synced, w.runtime = synced, remains(true, "a0", "a1", "a2")
			w.hold["a0/StopSandbox"], w.hold["a2/StopSandbox"] = make(chan struct{}), make(chan struct{})
			w.pods = []*pod.Desired{newPod("a", "a1")}
			close(w.known)
			w.start(t)
			time.Sleep(10 * time.Second)
			if !w.running("a1") {
				t.Errorf("synced %v: the pod isn't looked after: %v", synced, w.log)
			}
		})
	}
}

func TestOrphansOfOneNameAreRemovedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld()
		w.runtime = remains(false, "a1", "a2", "a3")
		close(w.known)
		w.start(t)
		time.Sleep(10 * time.Second)
		if left := w.UIDs(); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	})
}
