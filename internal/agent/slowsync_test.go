package agent_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

// TestSlowSync: while no fsync in the root directory returns, only pods wait whose record has to be on disk, here for
// their end. Others are started, restarted and removed, and commands are answered.
func TestSlowSync(t *testing.T) {
	t.Parallel()
	r := newReloads(t, quietDisk+"crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n")
	for _, dir := range []string{"root", "disk"} {
		if err := os.Mkdir(r.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("deckhand-test", r.path("disk"), "tmpfs", 0, "size=40m,mode=755"); err != nil {
		t.Fatal(err)
	}
	mirror := mounttest.MountMirror(t, r.path("disk"), r.path("root"))
	r.want("a", momentSpec)
	r.want("goes", momentSpec)
	r.up()
	r.await("the pods run", r.running("a/main", "goes/main"))
	r.awaitPod("a", ready)
	const jobs = 20 // more than there are records written at once
	var removed string
	r.awaitPod("goes", func(v local.PodView) string { removed = string(v.Pod.UID); return ready(v) })
	release := mirror.HoldSyncs()
	defer release()       // before the agent is stopped
	for i := range jobs { // the end of each has to be on disk before it is reported
		r.want(fmt.Sprint("job", i), onceSpec)
	}
	for i := range jobs {
		r.awaitPod(fmt.Sprint("job", i), func(v local.PodView) string {
			if !slices.ContainsFunc(v.Waits, func(w local.Wait) bool { return w.Action == pod.SaveCheckpoint }) {
				return fmt.Sprintf("%+v", v.Waits)
			}
			return ""
		})
	}
	if err := r.Exit(r.newest("a/main").Id, 1, "Error"); err != nil {
		t.Fatal(err)
	}
	r.want("comes", momentSpec)
	r.unwant("goes")
	r.await("others go on", func() string {
		if r.newest("a/main").Metadata.Attempt == 0 {
			return "a isn't restarted"
		}
		return r.running("a/main", "comes/main")()
	})
	r.awaitPod("a", ready)
	r.awaitPod("comes", ready)
	r.await("the removed pod is gone", func() string {
		if _, err := os.Stat(r.path("root/pods/" + removed)); err == nil {
			return "its directory is there"
		}
		return r.nothing("goes")()
	})
	r.awaitPod("job0", func(v local.PodView) string {
		if v.Pod.Status.Phase == v1.PodSucceeded {
			t.Error("the end of a pod is reported that isn't on disk")
		}
		return ""
	})
	const hangs = "doesn't answer: a write of "
	problem := func() string {
		n, err := r.client.Node(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range n.Problems {
			if strings.Contains(p.Message, hangs+r.path("root/checkpoints/pods/")) {
				return p.Message
			}
		}
		return ""
	}
	r.await("the node reports a disk that doesn't answer", func() string {
		if problem() == "" {
			return "it doesn't"
		}
		return ""
	})
	r.awaitPod("job0", func(v local.PodView) string {
		why, err := r.client.Why(t.Context(), v.Pod.Namespace, v.Pod.Name)
		if err != nil || !slices.ContainsFunc(why.Waits, func(w local.Wait) bool {
			return len(w.Because) == 1 && strings.Contains(w.Because[0], hangs)
		}) {
			return fmt.Sprintf("%+v, %v", why.Waits, err)
		}
		return ""
	})
	events, err := r.client.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(slices.DeleteFunc(events, func(e local.Event) bool {
		return e.Reason != string(pod.ReasonStorageFailed) || !strings.Contains(e.Message, hangs)
	})); n != 1 {
		t.Errorf("%d events of a disk that doesn't answer", n)
	}
	release()
	r.await("the node reports a disk that answers", problem)
	for i := range jobs {
		r.ended(fmt.Sprint("job", i), v1.PodSucceeded, "")
	}
}
