package observed

import (
	"fmt"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// TestListsThatAreTooLong: what doesn't fit in one answer is listed in parts, and nothing is missing.
func TestListsThatAreTooLong(t *testing.T) {
	w := newWorld()
	for p := range 4 {
		sb := fmt.Sprint("s", p)
		w.addSandbox(fmt.Sprint("uid", p), sb, 0)
		w.addContainer(sb, fmt.Sprint("created", p), "created", 0)
		w.addContainer(sb, fmt.Sprint("running", p), "running", 0)
		w.start(fmt.Sprint("running", p))
		for i := range 3 {
			id := fmt.Sprintf("ended%d%d", p, i)
			w.addContainer(sb, id, "ended", uint32(i))
			w.start(id)
			w.exit(id, 1)
		}
	}
	w.stopSandbox("s3")
	w.set(func() { w.mostSandboxes, w.mostContainers = 3, 3 })
	x := watch(w)
	for _, long := range []bool{false, true} {
		w.set(func() { w.longStreams = long })
		if err := x.Relist(t.Context()); err != nil {
			t.Fatal(err)
		}
		for p := range 4 {
			o := x.Get(types.UID(fmt.Sprint("uid", p)))
			if o == nil || len(o.Sandboxes) != 1 || len(o.Containers) != 5 {
				t.Fatalf("pod %d: %+v", p, o)
			}
		}
	}
	w.removeContainer("ended12")
	if err := x.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o := x.Get("uid1"); len(o.Containers) != 4 || o.Instance("ended12") != nil {
		t.Errorf("%+v", o)
	}
	x.refreshPod(t.Context(), "uid2") // five containers are too many for one answer
	if o := x.Get("uid2"); len(o.Containers) != 5 || len(x.kick) > 0 {
		t.Errorf("%+v", o)
	}
}

// TestChangesBetweenParts: a container that changes its state while the parts are listed stays.
func TestChangesBetweenParts(t *testing.T) {
	for name, change := range map[string]func(*world){
		"start": func(w *world) { w.start("created") },
		"end":   func(w *world) { w.exit("running", 0) },
	} {
		for after := 1; after <= 9; after++ {
			w := newWorld()
			w.addSandbox("uid", "s", 0)
			w.addContainer("s", "created", "a", 0)
			w.addSandbox("uid2", "s2", 0)
			w.addContainer("s2", "running", "b", 0)
			w.start("running")
			x := watch(w)
			if err := x.Relist(t.Context()); err != nil {
				t.Fatal(err)
			}
			var lists atomic.Int32
			w.set(func() {
				w.mostContainers = 1
				w.onList = func() {
					if int(lists.Add(1)) == after {
						change(w)
					}
				}
			})
			if err := x.Relist(t.Context()); err != nil {
				t.Fatal(err)
			}
			if x.Get("uid").Instance("created") == nil || x.Get("uid2").Instance("running") == nil {
				t.Errorf("%s after list %d of %d: a container is gone", name, after, lists.Load())
			}
		}
	}
}

// TestLongDeadInstances: of many dead instances only the newest are asked for their details; the others count as ended.
func TestLongDeadInstances(t *testing.T) {
	w := newWorld()
	w.addSandbox("uid", "s", 0)
	for i := range 20 {
		id := fmt.Sprintf("c%02d", i)
		w.addContainer("s", id, "main", uint32(i))
		w.start(id)
		w.exit(id, 7)
	}
	x := watch(w)
	if err := x.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.called("status"); n != 1+detailed {
		t.Errorf("%d statuses are asked for, want %d", n, 1+detailed)
	}
	o := x.Get("uid")
	for i := range o.Containers {
		c, next := &o.Containers[i], &o.Containers[max(i-1, 0)]
		if c.Attempt != 19-i || c.State != pod.ContainerExited || c.FinishedAt.IsZero() {
			t.Errorf("%+v", c)
		}
		if want := i < detailed; (c.ExitCode == 7) != want || want && next.FinishedAt.Before(c.FinishedAt) {
			t.Errorf("%d: %+v", i, c)
		}
	}
	// Those that become the newest ones are asked.
	w.removeContainer("c19")
	w.removeContainer("c18")
	if err := x.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	o = x.Get("uid")
	for i := range detailed {
		if c := &o.Containers[i]; c.ExitCode != 7 || c.Attempt != 17-i {
			t.Errorf("%+v", c)
		}
	}
}
