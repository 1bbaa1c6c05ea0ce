package observed

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

func TestAdoptsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.addSandbox("a", "s0", 0)
		w.addSandbox("a", "s1", 1)
		w.stopSandbox("s0")
		w.addContainer("s0", "c0", "main", 0)
		time.Sleep(time.Millisecond)
		w.addContainer("s1", "h0", "helper", 0)
		w.addContainer("s1", "c1", "main", 1)
		w.start("c0")
		w.exit("c0", 7)
		w.start("c1")
		w.set(func() { // somebody else's sandbox
			w.sandboxes["foreign"] = &runtimeapi.PodSandboxStatus{Id: "foreign", CreatedAt: 1}
		})
		x := watch(w)
		x.run(t)
		<-x.Synced()
		o := x.Get("a")
		if o.Name != "name-a" || o.Namespace != "ns" || len(o.Sandboxes) != 2 || o.Sandboxes[0].ID != "s1" || o.Sandboxes[1].ID != "s0" {
			t.Fatalf("sandboxes: %+v", o)
		}
		if !slices.Equal(o.Sandboxes[0].IPs, []string{"10.0.0.1", "fd00::1"}) || o.Sandboxes[1].IPs != nil {
			t.Errorf("addresses: %v, %v", o.Sandboxes[0].IPs, o.Sandboxes[1].IPs)
		}
		var order []string
		for _, c := range o.Containers {
			order = append(order, c.ID)
		}
		if !slices.Equal(order, []string{"c1", "c0", "h0"}) {
			t.Errorf("order of containers: %v", order)
		}
		if c := o.Containers[1]; c.State != pod.ContainerExited || c.ExitCode != 7 || c.SandboxID != "s0" {
			t.Errorf("the ended container: %+v", c)
		}
		if !slices.Equal(x.UIDs(), []types.UID{"a"}) {
			t.Errorf("pods: %v", x.UIDs())
		}
		if err := x.Healthy(time.Now()); err != nil {
			t.Error(err)
		}
	})
}

func TestEventsNeedNoCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		x := watch(w)
		x.run(t)
		time.Sleep(2 * subscribeTime)
		lists, statuses := w.called("list"), w.called("status")
		events := []*runtimeapi.ContainerEventResponse{w.addSandbox("a", "s", 0), w.addContainer("s", "c", "main", 0), w.start("c"), w.exit("c", 3)}
		w.send(events...)
		synctest.Wait()
		if c := x.one(t, "a"); c.State != pod.ContainerExited || c.ExitCode != 3 || c.LogPath != "/logs/c" || c.StartedAt.IsZero() {
			t.Errorf("container: %+v", c)
		}
		if n := x.wakes("a"); n != 4 {
			t.Errorf("%d wake-ups for four changes", n)
		}
		w.send(events...)
		w.send(events[1], events[0])
		synctest.Wait()
		if n := x.wakes("a"); n != 4 {
			t.Errorf("%d wake-ups: old news mustn't wake", n)
		}
		if w.called("list") != lists || w.called("status") != statuses {
			t.Error("events made calls to the runtime")
		}
		time.Sleep(time.Hour)
		if n := w.called("list") - lists; n != 12 {
			t.Errorf("%d lists in an hour without events, want one each 5 minutes", n)
		}
		if w.called("status") != statuses {
			t.Error("lists fetched the status of what hadn't changed")
		}
	})
}

func TestEventsOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		x := watch(w)
		x.run(t)
		synctest.Wait()
		made, created, started := w.addSandbox("a", "s", 0), w.addContainer("s", "c", "main", 0), w.start("c")
		ended := w.exit("c", 1)
		stopped := w.stopSandbox("s")
		deleted := w.removeContainer("c")
		w.send(stopped, ended)
		synctest.Wait()
		if c := x.one(t, "a"); c.State != pod.ContainerExited || x.Get("a").Sandboxes[0].State != pod.SandboxNotReady {
			t.Fatalf("%+v", x.Get("a"))
		}
		w.send(started, made, created)
		synctest.Wait()
		if c := x.one(t, "a"); c.State != pod.ContainerExited || x.Get("a").Sandboxes[0].State != pod.SandboxNotReady {
			t.Fatalf("went backward: %+v", x.Get("a"))
		}
		w.send(deleted, ended, started)
		w.send(w.removeSandbox("s")...)
		w.send(stopped, made)
		synctest.Wait()
		if o := x.Get("a"); o != nil {
			t.Fatalf("came back from the dead: %+v", o)
		}
	})
}

func TestFindsWhatHappenedWhileTheStreamWasBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.addSandbox("a", "s", 0)
		w.addContainer("s", "c", "main", 0)
		w.start("c")
		x := watch(w)
		x.run(t)
		time.Sleep(time.Minute)
		w.exit("c", 9) // the events of these two are never sent
		w.addSandbox("b", "s2", 0)
		w.set(func() { w.breakStreams() })
		synctest.Wait() // no time passes: the list follows the break at once
		if c := x.one(t, "a"); c.ExitCode != 9 || x.Get("b") == nil {
			t.Fatalf("%+v, %+v", c, x.Get("b"))
		}
		time.Sleep(2 * subscribeTime)
		w.send(w.stopSandbox("s2"))
		synctest.Wait()
		if x.Get("b").Sandboxes[0].State != pod.SandboxNotReady {
			t.Error("events don't flow again")
		}
	})
}

func TestRuntimeAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.addSandbox("a", "s", 0)
		x := watch(w)
		if x.Healthy(time.Now()) == nil {
			t.Error("healthy before anything was listed")
		}
		x.run(t)
		<-x.Synced()
		time.Sleep(10 * time.Minute)
		w.setDown(true)
		time.Sleep(2 * time.Minute)
		if err := x.Healthy(time.Now()); err != nil {
			t.Errorf("unhealthy too soon: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if x.Healthy(time.Now()) == nil {
			t.Error("healthy after 4 minutes without the runtime")
		}
		if x.Get("a") == nil {
			t.Error("the cache was lost")
		}
		tries := w.called("list") + w.called("stream")
		time.Sleep(time.Minute)
		if n := w.called("list") + w.called("stream") - tries; n > 125 {
			t.Errorf("%d tries in a minute", n)
		}
		w.setDown(false)
		w.addSandbox("b", "s2", 0)
		time.Sleep(maxRetry)
		synctest.Wait()
		if x.Get("b") == nil || x.Healthy(time.Now()) != nil {
			t.Error("not back after a second")
		}
		if len(x.logs) != 3 {
			t.Errorf("an outage is worth three lines, not %d:\n%s", len(x.logs), strings.Join(x.logs, "\n"))
		}
	})
}

func TestRuntimeWithoutEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.noStream = true
		x := watch(w)
		x.run(t)
		<-x.Synced()
		w.addSandbox("a", "s", 0)
		w.addContainer("s", "c", "main", 0)
		time.Sleep(pollPeriod)
		synctest.Wait()
		if c := x.one(t, "a"); c.State != pod.ContainerCreated {
			t.Fatalf("%+v", c)
		}
		w.start("c")
		w.exit("c", 4)
		time.Sleep(pollPeriod)
		synctest.Wait()
		if c := x.one(t, "a"); c.ExitCode != 4 {
			t.Fatalf("%+v", c)
		}
		w.addSandbox("b", "s2", 0)
		x.SandboxCreated("b", "name-b", "ns", pod.Sandbox{ID: "s2", State: pod.SandboxReady})
		synctest.Wait()
		if o := x.Get("b"); len(o.Sandboxes[0].IPs) == 0 {
			t.Error("without events, a new sandbox's addresses have to be looked up at once")
		}
		time.Sleep(time.Hour)
		if len(x.logs) != 1 {
			t.Errorf("logged %q", x.logs)
		}
	})
}

func TestEventWithoutStatuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.addSandbox("a", "s", 0)
		w.addContainer("s", "c", "main", 0)
		x := watch(w)
		x.run(t)
		time.Sleep(2 * subscribeTime)

		release := make(chan struct{})
		w.set(func() { w.onList = func() { <-release } })
		w.start("c")
		w.send(&runtimeapi.ContainerEventResponse{ContainerId: "c", CreatedAt: time.Now().UnixNano(), ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT})
		w.send(w.addSandbox("b", "s2", 0))
		synctest.Wait()
		if x.Get("b") == nil {
			t.Fatal("the stream waits for the runtime")
		}
		close(release)
		synctest.Wait()
		if c := x.one(t, "a"); c.State != pod.ContainerRunning {
			t.Fatalf("%+v", c)
		}
		// About something that was never heard of: only a list helps.
		w.set(func() { w.onList = nil })
		w.addSandbox("d", "s3", 0)
		w.send(&runtimeapi.ContainerEventResponse{ContainerId: "s3", CreatedAt: time.Now().UnixNano(), ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT})
		synctest.Wait()
		if x.Get("d") == nil {
			t.Fatal("not looked up")
		}
	})
}

func TestOldEventsOfAnEarlierLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		old := []*runtimeapi.ContainerEventResponse{w.addSandbox("a", "s", 0), w.addContainer("s", "c", "main", 0), w.start("c")}
		w.removeSandbox("s") // its events are lost
		time.Sleep(time.Second)
		x := watch(w)
		x.run(t)
		<-x.Synced()
		w.send(old...)
		synctest.Wait()
		if o := x.Get("a"); o != nil {
			t.Fatalf("came back from the dead: %+v", o)
		}
	})
}

func TestStatusRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.addSandbox("a", "s", 0)
		w.addContainer("s", "c", "main", 0)
		w.start("c")
		w.exit("c", 5)
		w.refuse["c"] = errors.New("image store is broken")
		x := watch(w)
		x.run(t)
		<-x.Synced() // one broken container must not hold up the node
		if c := x.one(t, "a"); c.State != pod.ContainerUnknown || !strings.Contains(c.Message, "image store is broken") {
			t.Fatalf("an end without a status must not look like a success: %+v", c)
		}
		w.set(func() { delete(w.refuse, "c") })
		time.Sleep(incompletePeriod + subscribeTime)
		synctest.Wait()
		if c := x.one(t, "a"); c.State != pod.ContainerExited || c.ExitCode != 5 {
			t.Fatalf("%+v", c)
		}
		if len(x.logs) != 1 {
			t.Errorf("logged %q", x.logs)
		}
	})
}

func TestListAgainstChangesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.addSandbox("a", "s", 0)
		w.addContainer("s", "c", "main", 0)
		x := watch(w)
		if err := x.Relist(t.Context()); err != nil {
			t.Fatal(err)
		}
		var late []*runtimeapi.ContainerEventResponse
		w.onList = func() {
			w.onList = nil
			time.Sleep(time.Second)
			// While the sandboxes' list is on its way: one pod comes, one goes.
			x.handle(w.addSandbox("b", "s2", 0))
			late = append(late, w.start("c"))
			for _, e := range w.removeSandbox("s") {
				x.handle(e)
			}
		}
		time.Sleep(time.Second)
		if err := x.Relist(t.Context()); err != nil {
			t.Fatal(err)
		}
		x.handle(late[0])
		if x.Get("b") == nil {
			t.Error("a pod made during the list was dropped")
		}
		if o := x.Get("a"); o != nil {
			t.Errorf("a pod removed during the list came back: %+v", o)
		}
	})
}

func TestRuntimeFailsDuringRelist(t *testing.T) {
	w := newWorld()
	w.addSandbox("a", "s", 0)
	x := watch(w)
	w.refuse["s"] = status.Error(codes.Unavailable, "going down")
	if err := x.Relist(t.Context()); status.Code(err) != codes.Unavailable {
		t.Fatalf("unexpected error: %v", err)
	}
	if isSynced(x) {
		t.Error("synced by half a list")
	}
	delete(w.refuse, "s")
	if err := x.Relist(t.Context()); err != nil || !isSynced(x) {
		t.Errorf("not synced: %v", err)
	}
}

func isSynced(x *watcher) bool {
	select {
	case <-x.Synced():
		return true
	default:
		return false
	}
}

func TestFacts(t *testing.T) {
	w := newWorld()
	x := watch(w)
	x.SandboxCreated("a", "name-a", "ns", pod.Sandbox{ID: "s", State: pod.SandboxReady, CreatedAt: time.Now()})
	x.ContainerCreated("a", "name-a", "ns", pod.Container{ID: "c", Name: "main", SandboxID: "s", State: pod.ContainerCreated, Backoff: time.Second})
	before := x.Get("a")
	started := time.Now()
	x.ContainerCreated("a", "name-a", "ns", pod.Container{ID: "c", Name: "main", SandboxID: "s", State: pod.ContainerRunning, StartedAt: started})
	if c := x.one(t, "a"); c.State != pod.ContainerRunning || !c.StartedAt.Equal(started) || c.Backoff != time.Second {
		t.Fatalf("%+v", c)
	}
	if before.Containers[0].State != pod.ContainerCreated {
		t.Error("a snapshot that was handed out changed")
	}
	x.SandboxStopped("s")
	if sb := x.Get("a").Sandboxes[0]; sb.State != pod.SandboxNotReady {
		t.Fatalf("%+v", sb)
	}
	x.SandboxStopped("nobody")
	if n := x.wakes("a"); n != 4 {
		t.Errorf("%d wake-ups for four facts", n)
	}
	x.SandboxRemoved("s")
	if o := x.Get("a"); o != nil {
		t.Fatalf("a removed sandbox leaves its containers: %+v", o)
	}

	// What the runtime tells counts for more than the fact, whichever is first.
	e := w.addSandbox("b", "s2", 0)
	w.addContainer("s2", "c2", "main", 0)
	run := w.start("c2")
	x.handle(e)
	x.handle(run)
	x.ContainerCreated("b", "name-b", "ns", pod.Container{ID: "c2", Name: "main", SandboxID: "s2", State: pod.ContainerRunning, StartedAt: time.Now().Add(time.Hour)})
	if c := x.one(t, "b"); c.StartedAt.UnixNano() != run.ContainersStatuses[0].StartedAt {
		t.Errorf("started at %s", c.StartedAt)
	}
	x.ContainerRemoved("c2")
	x.handle(run)
	if o := x.Get("b"); len(o.Containers) != 0 || len(o.Sandboxes) != 1 {
		t.Errorf("%+v", o)
	}
}

// An effect that stopped a container, or couldn't start it, asks the runtime how it ended.
func TestFactOfAnEnd(t *testing.T) {
	x := watch(newWorld())
	x.ContainerCreated("a", "name-a", "ns", pod.Container{ID: "c", Name: "main", SandboxID: "s", Attempt: 2, State: pod.ContainerCreated, Hash: "h"})
	x.ContainerCreated("a", "name-a", "ns", pod.Container{ID: "c", Name: "main", Attempt: 2, State: pod.ContainerExited, ExitCode: 128, Reason: "StartError", FinishedAt: time.Unix(1, 0)})
	c := x.one(t, "a")
	if c.State != pod.ContainerExited || c.ExitCode != 128 || c.Reason != "StartError" || c.FinishedAt.IsZero() || c.SandboxID != "s" || c.Hash != "h" {
		t.Errorf("%+v", c)
	}
}

func TestDetailsOfAFactAreFetched(t *testing.T) {
	w := newWorld()
	w.addSandbox("a", "s", 0)
	x := watch(w)
	x.SandboxCreated("a", "name-a", "ns", pod.Sandbox{ID: "s", State: pod.SandboxReady})
	if err := x.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sb := x.Get("a").Sandboxes[0]; len(sb.IPs) != 2 || sb.CreatedAt.IsZero() {
		t.Errorf("%+v", sb)
	}
}
