package critest

import (
	"context"
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// watch is one event stream that is read continuously.
type watch struct {
	events chan *runtimeapi.ContainerEventResponse
	close  func()
}

// watch opens an event stream on a separate connection and waits until the subscription is effective: an open
// stream isn't necessarily subscribed yet.
func (f *fixture) watch(t *testing.T) *watch {
	t.Helper()
	ctx, cancel := context.WithCancel(f.ctx)
	stream, err := runtimeapi.NewRuntimeServiceClient(f.connect(t)).GetContainerEvents(ctx,
		&runtimeapi.GetEventsRequest{})
	if err != nil {
		cancel()
		t.Fatalf("GetContainerEvents: %v", err)
	}
	w := &watch{events: make(chan *runtimeapi.ContainerEventResponse, 1000)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(w.events)
		for {
			e, err := stream.Recv()
			if err != nil {
				return // the stream was closed, by the test or with the runtime
			}
			w.events <- e
		}
	}()
	w.close = func() { cancel(); <-done }
	t.Cleanup(w.close)

	// The first event proves that the subscription is effective.
	for {
		p := f.newPod().run(t)
		p.remove(t)
		select {
		case <-w.events:
			return w
		case <-time.After(time.Second):
		}
	}
}

// of returns the next event about one of ids.
func (w *watch) of(t *testing.T, ids ...string) *runtimeapi.ContainerEventResponse {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e, ok := <-w.events:
			if !ok {
				t.Fatal("the event stream ended")
			}
			for _, id := range ids {
				if e.GetContainerId() == id {
					return e
				}
			}
		case <-timeout:
			t.Fatalf("no event about %v within %s", ids, patience)
		}
	}
}

// await returns the next event of kind about id.
func (w *watch) await(t *testing.T, id string, kind runtimeapi.ContainerEventType) *runtimeapi.ContainerEventResponse {
	t.Helper()
	for {
		if e := w.of(t, id); e.GetContainerEventType() == kind {
			return e
		}
	}
}

// step is an expected event, with the pod's state at that time.
type step struct {
	about   string // "sandbox" or a container's name
	kind    runtimeapi.ContainerEventType
	sandbox string // Ready, NotReady
	main    string // Created, Running, Exited; empty if not in the snapshot
}

func (s step) String() string {
	return fmt.Sprintf("%s %s with sandbox %s, main %q", s.about, s.kind, s.sandbox, s.main)
}

func testEventsOfALife(t *testing.T, f *fixture) {
	w := f.watch(t)
	p := f.runPod(t)
	main := p.start(t, "main", "exit", "3", "300ms")
	f.awaitExit(t, main)
	f.removeContainer(t, main)
	p.stop(t)
	p.remove(t)

	const (
		created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
		started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
		stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
		deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	)
	var last int64
	for _, want := range []step{
		{"sandbox", created, "Ready", ""},
		{"sandbox", started, "Ready", ""},
		{"main", created, "Ready", "Created"},
		{"main", started, "Ready", "Running"},
		{"main", stopped, "Ready", "Exited"},
		{"main", deleted, "Ready", ""},
		{"sandbox", stopped, "NotReady", ""},
		{"sandbox", deleted, "NotReady", ""},
	} {
		e := w.of(t, p.id, main)
		if got := describe(e, p, main); got != want {
			t.Errorf("event is: %s\n    want: %s", got, want)
		}
		if e.GetCreatedAt() < last {
			t.Errorf("%s: event was created at %d, before the one that came before", want, e.GetCreatedAt())
		}
		last = e.GetCreatedAt()
		wantSnapshot(t, e, p)
	}
}

func describe(e *runtimeapi.ContainerEventResponse, p *pod, main string) step {
	s := step{about: "main", kind: e.GetContainerEventType(), sandbox: "NotReady"}
	if e.GetContainerId() == p.id {
		s.about = "sandbox"
	}
	if e.GetPodSandboxStatus() == nil {
		s.sandbox = "missing"
	} else if e.GetPodSandboxStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
		s.sandbox = "Ready"
	}
	for _, c := range e.GetContainersStatuses() {
		if c.GetId() == main {
			s.main = map[runtimeapi.ContainerState]string{
				runtimeapi.ContainerState_CONTAINER_CREATED: "Created",
				runtimeapi.ContainerState_CONTAINER_RUNNING: "Running",
				runtimeapi.ContainerState_CONTAINER_EXITED:  "Exited",
			}[c.GetState()]
		}
	}
	return s
}

// wantSnapshot checks that the event's statuses are as complete as those of PodSandboxStatus and ContainerStatus,
// so that no further call is needed.
func wantSnapshot(t *testing.T, e *runtimeapi.ContainerEventResponse, p *pod) {
	t.Helper()
	sb := e.GetPodSandboxStatus()
	if sb.GetId() != p.id || sb.GetMetadata().GetUid() != p.config.GetMetadata().GetUid() || sb.GetCreatedAt() == 0 ||
		len(sb.GetLabels()) == 0 {
		t.Errorf("the sandbox in the snapshot is %v, want all of it", sb)
	}
	if sb.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && sb.GetNetwork().GetIp() == "" {
		t.Error("the ready sandbox in the snapshot has no address")
	}
	for _, c := range e.GetContainersStatuses() {
		if c.GetMetadata().GetName() == "" || len(c.GetLabels()) == 0 || len(c.GetAnnotations()) == 0 ||
			c.GetCreatedAt() == 0 || c.GetImageRef() == "" || c.GetLogPath() == "" {
			t.Errorf("a container in the snapshot is %v, want all of it", c)
		}
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED &&
			(c.GetExitCode() != 3 || c.GetReason() != "Error" || c.GetFinishedAt() == 0) {
			t.Errorf("the exited container in the snapshot has code %d, reason %q and end %d", c.GetExitCode(),
				c.GetReason(), c.GetFinishedAt())
		}
	}
}

// A snapshot is never older than the call that caused its event, and calls after an event return at least the
// event's state.
func testEventsFollowCalls(t *testing.T, f *fixture) {
	w := f.watch(t)
	p := f.runPod(t)
	id := p.create(t, p.containerConfig("main", "sleep", "1h"))
	began := time.Now().UnixNano()
	f.startContainer(t, id)
	e := w.await(t, id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	if len(e.GetContainersStatuses()) != 1 || e.GetContainersStatuses()[0].GetStartedAt() < began {
		t.Errorf("the snapshot of the start is %v, want a start after %d", e.GetContainersStatuses(), began)
	}
	f.stopContainer(t, id, 20)
	w.await(t, id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	wantState(t, f.containerStatus(t, id), runtimeapi.ContainerState_CONTAINER_EXITED)

	// Stopping a sandbox first reports the end of its containers.
	last := p.start(t, "last", "sleep", "1h")
	p.stop(t)
	for _, id := range []string{last, p.id} {
		for {
			e := w.of(t, last, p.id)
			if e.GetContainerEventType() != runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
				continue
			}
			if e.GetContainerId() != id {
				t.Errorf("first stop told is of %s, want %s", e.GetContainerId(), id)
			}
			break
		}
	}
	// Removing it also reports their removal first.
	p.remove(t)
	gone := map[string]bool{}
	for !gone[p.id] {
		e := w.of(t, id, last, p.id)
		if e.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
			gone[e.GetContainerId()] = true
		}
	}
	if !gone[id] || !gone[last] {
		t.Error("the sandbox's removal was told before that of its containers")
	}
}

func testEventsToEveryReader(t *testing.T, f *fixture) {
	a, b := f.watch(t), f.watch(t)
	p := f.runPod(t)
	for _, w := range []*watch{a, b} {
		w.await(t, p.id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
		w.await(t, p.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	}
}

// After a break events are delivered again. Events during the break may be missing or late.
func testEventsAfterReconnect(t *testing.T, f *fixture) {
	w := f.watch(t)
	w.close()
	f.runPod(t)
	w = f.watch(t)
	p := f.runPod(t)
	e := w.await(t, p.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	if e.GetPodSandboxStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("the snapshot after a reconnect has the sandbox %s", e.GetPodSandboxStatus().GetState())
	}
}
