package critest

import (
	"context"
	"errors"
	"io"
	"regexp"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// holder is the end of the error of a create call whose name is reserved.
var holder = regexp.MustCompile(`is reserved for "([0-9a-f]{64})"$`)

// holderOf returns the ID that the name in an error is reserved for.
func holderOf(err error) string {
	if m := holder.FindStringSubmatch(status.Convert(err).Message()); m != nil {
		return m[1]
	}
	return ""
}

// If the answer to a create call is lost, the name is reserved, and the error of the next call ends with the ID.
func testReservedNames(t *testing.T, f *fixture) {
	p := f.runPod(t)
	config := p.containerConfig("main", "sleep", "1h")
	id := p.create(t, config)
	_, err := p.tryCreate(config)
	if got := holderOf(err); got != id {
		t.Errorf("the error %v names the container %q, want %q", err, got, id)
	}
	f.removeContainer(t, id)
	p.create(t, config)
	_, err = f.runtime.RunPodSandbox(f.ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
	if got := holderOf(err); got != p.id {
		t.Errorf("the error %v names the sandbox %q, want %q", err, got, p.id)
	}
}

// A create call that is broken off may leave a reserved name until the runtime has cleaned up. Or it leaves an object:
// then the error of the next call names the object, and the object has a status.
func testBrokenOffCreates(t *testing.T, f *fixture) {
	p := f.runPod(t)
	for n, after := range []time.Duration{time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond} {
		config := p.containerConfig("main", "sleep", "1h")
		config.Metadata.Attempt = uint32(n)
		brief, cancel := context.WithTimeout(f.ctx, after)
		_, lost := f.runtime.CreateContainer(brief, &runtimeapi.CreateContainerRequest{PodSandboxId: p.id, Config: config, SandboxConfig: p.config})
		cancel()
		f.eventually(t, "the container's name can be used", func() bool {
			_, err := p.tryCreate(config)
			id := holderOf(err)
			t.Logf("broken off after %s: %v; then %v", after, lost, err)
			if id == "" {
				return err == nil
			}
			st, err := f.runtime.ContainerStatus(f.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
			if err == nil {
				wantState(t, st.GetStatus(), runtimeapi.ContainerState_CONTAINER_CREATED)
				f.removeContainer(t, id)
			} else {
				wantCode(t, "status of an unfinished container", err, codes.NotFound)
			}
			return false
		})
	}
	for _, after := range []time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 150 * time.Millisecond} {
		q := f.newPod()
		brief, cancel := context.WithTimeout(f.ctx, after)
		_, lost := f.runtime.RunPodSandbox(brief, &runtimeapi.RunPodSandboxRequest{Config: q.config})
		cancel()
		f.eventually(t, "the sandbox's name can be used", func() bool {
			r, err := f.runtime.RunPodSandbox(f.ctx, &runtimeapi.RunPodSandboxRequest{Config: q.config})
			t.Logf("broken off after %s: %v; then %v", after, lost, err)
			q.id = r.GetPodSandboxId()
			if id := holderOf(err); id != "" {
				q.id = id
				if _, err := f.runtime.PodSandboxStatus(f.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}); err != nil {
					wantCode(t, "status of an unfinished sandbox", err, codes.NotFound)
					return false
				}
				err = nil
			}
			if err != nil {
				return false
			}
			q.stop(t)
			q.remove(t)
			return true
		})
	}
}

// A streamed list has the same objects as the list in one answer. Not all runtimes have streams.
func testStreamedLists(t *testing.T, f *fixture) {
	p := f.runPod(t)
	id := p.start(t, "runs", "sleep", "1h")
	containers, err := f.runtime.StreamContainers(f.ctx, &runtimeapi.StreamContainersRequest{
		Filter: &runtimeapi.ContainerFilter{PodSandboxId: p.id}})
	if err != nil {
		t.Fatal(err)
	}
	var got []*runtimeapi.Container
	for {
		part, err := containers.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("StreamContainers: %v", err)
		}
		got = append(got, part.GetContainers()...)
	}
	if len(got) != 1 || got[0].GetId() != id || got[0].GetPodSandboxId() != p.id {
		t.Errorf("the stream has %v, want %s", got, id)
	}
	sandboxes, err := f.runtime.StreamPodSandboxes(f.ctx, &runtimeapi.StreamPodSandboxesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*runtimeapi.PodSandbox{}
	for {
		part, err := sandboxes.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("StreamPodSandboxes: %v", err)
		}
		for _, sb := range part.GetPodSandboxes() {
			all[sb.GetId()] = sb
		}
	}
	wantHas(t, "the streamed list of sandboxes", all, p.id)
}
