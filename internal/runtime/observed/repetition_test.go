package observed

import (
	"testing"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Every event repeats what is known of all containers: that costs neither wake-ups nor memory.
func TestRepetitionsShareWhatIsKnown(t *testing.T) {
	w := newWorld()
	x := watch(w)
	x.handle(w.addSandbox("a", "s", 0))
	x.handle(w.addContainer("s", "c", "main", 0))
	first, wakes := x.one(t, "a"), x.wakes("a")
	if first.CreatedWith.Resources.Requests.Cpu().Value() != 1 || len(first.CreatedWith.Ports) != 1 || first.RuntimeReported.User.Linux.UID != 1 || len(first.RuntimeReported.VolumeMounts) != 1 {
		t.Fatalf("%+v, %+v", first.CreatedWith, first.RuntimeReported)
	}
	x.handle(w.addContainer("s", "other", "other", 0))
	x.handle(w.start("c"))
	w.exit("c", 1)
	if err := x.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := *x.Get("a").Newest("main")
	if now.State != pod.ContainerExited || now.CreatedWith != first.CreatedWith || now.RuntimeReported != first.RuntimeReported {
		t.Errorf("%+v", now)
	}
	if got := x.wakes("a") - wakes; got != 3 {
		t.Errorf("%d wake-ups, want one each for the other container, the start and the end", got)
	}
}
