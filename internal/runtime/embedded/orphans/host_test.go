package orphans_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	sandboxes "github.com/containerd/containerd/api/services/sandbox/v1"
	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/go-logr/logr/testr"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/orphans"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

// host is a running containerd with a sweeper of its own; the runtime's doesn't run.
type host struct {
	*embeddedtest.Instance
	*orphans.Sweeper
	layout rootdir.Runtime
	cri    cri.RuntimeServiceClient
	// gate is a FIFO: while it is there, runc creates no container, or has created
	// it and doesn't end, until somebody writes to it.
	gate string
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir() // Before Prepare, whose teardown still needs it.
	in := embeddedtest.Prepare(t)
	h := &host{Instance: in, gate: filepath.Join(dir, "gate")}
	runc := fmt.Sprintf(`#!/bin/sh
case " $* " in *' create '*)
	%[1]s "$@" || exit
	[ ! -e %[2]s ] || read x <%[2]s
	exit 0
esac
exec %[1]s "$@"
`, filepath.Join(embeddedtest.Bin(t), "runc"), h.gate)
	if err := os.WriteFile(filepath.Join(dir, "runc"), []byte(runc), 0o755); err != nil {
		t.Fatal(err)
	}
	in.Config.BinDirs = append([]string{dir}, in.Config.BinDirs...)
	in.Launch(t)
	in.StopRun(t)
	var err error
	if h.layout, err = in.Config.Layout(); err != nil {
		t.Fatal(err)
	}
	h.Sweeper = orphans.New(h.layout, func() (*grpc.ClientConn, error) { return embedded.Dial(in.Config) }, testr.New(t))
	h.cri = cri.NewRuntimeServiceClient(in.Connect(t))
	return h
}

func (h *host) close(t *testing.T) {
	t.Helper()
	if err := unix.Mkfifo(h.gate, 0o600); err != nil {
		t.Fatal(err)
	}
}

// open returns when runc waits at the gate, which is open now.
func (h *host) open(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(h.gate, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(h.gate); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// look looks at the given time after the first look, and says whether it has to
// look again.
func (h *host) look(t *testing.T, after time.Duration, again bool) {
	t.Helper()
	got, err := h.Sweep(t.Context(), time.Unix(1000, 0).Add(after))
	if err != nil {
		t.Fatal(err)
	}
	if got != again {
		t.Errorf("after %v the sweeper wants to look again: %v", after, got)
	}
}

// shims are the shims that run for this containerd, by ID.
func (h *host) shims(t *testing.T) map[string]orphans.Shim {
	t.Helper()
	list, err := orphans.Shims(h.layout.Socket())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]orphans.Shim{}
	for _, s := range list {
		found[s.ID] = s
	}
	return found
}

// mounts are the mount points with text in them.
func mounts(t *testing.T, text string) []string {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range bytes.Lines(table) {
		if bytes.Contains(line, []byte(text)) {
			found = append(found, string(line))
		}
	}
	return found
}

// gone checks that nothing of the sandbox is left.
func (h *host) gone(t *testing.T, id string) {
	t.Helper()
	if s, ok := h.shims(t)[id]; ok {
		t.Errorf("the shim %d of %s still runs", s.PID, id)
	}
	for _, m := range mounts(t, id) {
		t.Errorf("still mounted: %s", m)
	}
	for _, dir := range h.layout.Of(id) {
		if _, err := os.Lstat(dir); err == nil {
			t.Errorf("%s is still there", dir)
		}
	}
	cgroups, err := filepath.Glob("/sys/fs/cgroup/*" + h.CgroupRoot + "/kubepods/*/" + id)
	if err != nil || len(cgroups) > 0 {
		t.Errorf("still there: %q, error %v", cgroups, err)
	}
}

func (h *host) runs(t *testing.T, pod embeddedtest.Pod) {
	t.Helper()
	status, err := h.cri.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: pod.Container})
	if err != nil || status.GetStatus().GetState() != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the live pod's container is %v, error %v", status.GetStatus().GetState(), err)
	}
	if s, ok := h.shims(t)[pod.Sandbox]; !ok || !s.Lives() {
		t.Error("the live pod's shim is gone")
	}
}

// run calls RunPodSandbox and returns when the sandbox's shim runs and runc is
// held up by the gate.
func (h *host) run(ctx context.Context, t *testing.T, name string) (id string, answer chan error) {
	t.Helper()
	before := h.shims(t)
	answer = make(chan error, 1)
	config := h.SandboxConfig(name, nil)
	if err := os.MkdirAll(config.GetLogDirectory(), 0o755); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := h.cri.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
		answer <- err
	}()
	await(t, "runc waits at the gate", func() bool {
		for now, shim := range h.shims(t) {
			if _, ok := before[now]; ok {
				continue
			}
			started, err := orphans.Descendants(shim.Process)
			if err == nil && len(started) > 0 {
				id = now
				return true
			}
		}
		return false
	})
	return id, answer
}

// await asks again and again: for what another process does there is no event.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// stored is how many sandboxes containerd has stored, those under way included.
func (h *host) stored(t *testing.T) int {
	t.Helper()
	list, err := sandboxes.NewStoreClient(h.Connect(t)).List(namespaced(t), &sandboxes.StoreListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.GetList())
}

// containers are those that containerd has a record of.
func (h *host) containers(t *testing.T) []string {
	t.Helper()
	list, err := containers.NewContainersClient(h.Connect(t)).List(namespaced(t), &containers.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range list.GetContainers() {
		ids = append(ids, c.GetID())
	}
	return ids
}

// snapshots are those that containerd has a record of; it removes the directories of
// others in its own time.
func (h *host) snapshots(t *testing.T) []string {
	t.Helper()
	list, err := containers.NewContainersClient(h.Connect(t)).List(namespaced(t), &containers.ListContainersRequest{})
	if err != nil || len(list.GetContainers()) == 0 {
		t.Fatalf("the containers are %v, error %v", list.GetContainers(), err)
	}
	snapshotter := list.GetContainers()[0].GetSnapshotter()
	stream, err := snapshots.NewSnapshotsClient(h.Connect(t)).List(namespaced(t), &snapshots.ListSnapshotsRequest{Snapshotter: snapshotter})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for {
		some, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range some.GetInfo() {
			names = append(names, s.GetName())
		}
	}
}

func namespaced(t *testing.T) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "containerd-namespace", "k8s.io")
}

// lose asks for a sandbox and goes away in the moment when runc has created its
// container. It returns when containerd is done with that.
func (h *host) lose(t *testing.T, name string, after time.Duration) {
	t.Helper()
	h.close(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, answer := h.run(ctx, t, name)
	h.open(t)
	time.Sleep(after)
	cancel()
	<-answer
	await(t, "containerd is done with the sandbox", func() bool {
		list, err := h.cri.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
		if err != nil {
			t.Fatal(err)
		}
		// As an agent does with sandboxes that it didn't get.
		for _, s := range list.GetItems() {
			if s.GetMetadata().GetName() != name {
				continue
			}
			if _, err := h.cri.RemovePodSandbox(t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: s.GetId()}); err != nil {
				t.Log(err)
			}
		}
		return h.stored(t) == 1
	})
}
