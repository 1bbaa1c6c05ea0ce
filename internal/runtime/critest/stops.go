package critest

import (
	"context"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testStopGrace(t *testing.T, f *fixture) {
	p := f.runPod(t)
	id := p.startReady(t, "main", "serve")
	began := time.Now()
	f.stopContainer(t, id, 20)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("stopping took %s, though the program ends on the stop signal", took)
	}
	st := f.containerStatus(t, id) // StopContainer returned, so the container has exited
	wantState(t, st, runtimeapi.ContainerState_CONTAINER_EXITED)
	if st.GetExitCode() != 0 || st.GetReason() != "Completed" {
		t.Errorf("it ended with code %d and reason %q, want its own 0 and Completed", st.GetExitCode(), st.GetReason())
	}
	created := p.create(t, p.containerConfig("created", "sleep", "1h"))
	f.stopContainer(t, created, 1) // stopping a container that was never started isn't an error, and changes nothing
	wantState(t, f.containerStatus(t, created), runtimeapi.ContainerState_CONTAINER_CREATED)
}

func testStopKillsAfterGrace(t *testing.T, f *fixture) {
	p := f.runPod(t)
	id := p.startReady(t, "main", "ignore-term")
	began := time.Now()
	f.stopContainer(t, id, 1)
	if took := time.Since(began); took < time.Second || took > 10*time.Second {
		t.Errorf("stopping with a grace of 1s took %s", took)
	}
	wantKilled(t, f, id)

	now := p.startReady(t, "now", "ignore-term")
	began = time.Now()
	f.stopContainer(t, now, 0)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("stopping without grace took %s", took)
	}
	wantKilled(t, f, now)
}

func wantKilled(t *testing.T, f *fixture, id string) {
	t.Helper()
	st := f.containerStatus(t, id)
	wantState(t, st, runtimeapi.ContainerState_CONTAINER_EXITED)
	if st.GetExitCode() != 137 || st.GetReason() != "Error" {
		t.Errorf("it ended with code %d and reason %q, want 137 and Error", st.GetExitCode(), st.GetReason())
	}
}

// A second stop with a shorter grace period cuts the first one short.
func testStopShortened(t *testing.T, f *fixture) {
	p := f.runPod(t)
	id := p.startReady(t, "main", "ignore-term")
	first := make(chan error, 1)
	began := time.Now()
	go func() {
		_, err := f.runtime.StopContainer(f.ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 60})
		first <- err
	}()
	f.stopContainer(t, id, 1)
	if err := <-first; err != nil {
		t.Errorf("the first stop: %v", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("both stops together took %s, want the shorter grace", took)
	}
	wantKilled(t, f, id)
}

// A second stop without a grace period ends the first one at once.
func testStopNow(t *testing.T, f *fixture) {
	p := f.runPod(t)
	id := p.startReady(t, "main", "ignore-term")
	first := make(chan error, 1)
	go func() {
		_, err := f.runtime.StopContainer(f.ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 60})
		first <- err
	}()
	began := time.Now()
	f.stopContainer(t, id, 0)
	if err := <-first; err != nil {
		t.Errorf("the first stop: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("both stops together took %s, though the second has no grace", took)
	}
	wantKilled(t, f, id)
}

// If a caller gives up, the container continues, and can be stopped later.
func testStopGivenUp(t *testing.T, f *fixture) {
	p := f.runPod(t)
	id := p.startReady(t, "main", "ignore-term")
	ctx, cancel := context.WithTimeout(f.ctx, 200*time.Millisecond)
	defer cancel()
	_, err := f.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 60})
	wantError(t, "a stop whose caller gives up", err)
	wantState(t, f.containerStatus(t, id), runtimeapi.ContainerState_CONTAINER_RUNNING)
	began := time.Now()
	f.stopContainer(t, id, 1) // its grace period starts again
	if took := time.Since(began); took < time.Second || took > 10*time.Second {
		t.Errorf("stopping with a grace of 1s took %s", took)
	}
	wantKilled(t, f, id)
}
