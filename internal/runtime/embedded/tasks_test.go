package embedded_test

import (
	"testing"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	api "github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc/metadata"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

// TestClear makes what a cut-off start leaves: a container whose task exists without
// the CRI's knowledge. It can't be removed before that is cleared away.
func TestClear(t *testing.T) {
	in := embeddedtest.Start(t)
	conn := in.Connect(t)
	runtime := cri.NewRuntimeServiceClient(conn)
	p := in.RunPod(t, "cutoff", nil)
	sandbox := in.SandboxConfig("cutoff", nil)
	made, err := runtime.CreateContainer(t.Context(), &cri.CreateContainerRequest{PodSandboxId: p.Sandbox, SandboxConfig: sandbox, Config: &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "second"}, Image: &cri.ImageSpec{Image: embeddedtest.WebImage},
		Linux: &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	id := made.ContainerId
	ctx := metadata.AppendToOutgoingContext(t.Context(), "containerd-namespace", "k8s.io")
	c, err := containers.NewContainersClient(conn).Get(ctx, &containers.GetContainerRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := snapshots.NewSnapshotsClient(conn).Mounts(ctx, &snapshots.MountsRequest{Snapshotter: c.Container.Snapshotter, Key: c.Container.SnapshotKey})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.NewTasksClient(conn).Create(ctx, &api.CreateTaskRequest{ContainerID: id, Rootfs: mounts.Mounts}); err != nil {
		t.Fatal(err)
	}
	_, err = runtime.RemoveContainer(t.Context(), &cri.RemoveContainerRequest{ContainerId: id})
	if !embedded.TaskLeft(err) {
		t.Fatalf("the removal came to %v, which isn't taken for a task that is left", err)
	}
	if err := embedded.ClearTask(t.Context(), conn, id); err != nil {
		t.Fatal(err)
	}
	if _, err := runtime.RemoveContainer(t.Context(), &cri.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Errorf("it still can't be removed: %v", err)
	}
	if err := embedded.ClearTask(t.Context(), conn, id); err != nil {
		t.Errorf("where nothing is left: %v", err)
	}
	st, err := runtime.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: p.Container})
	if err != nil || st.Status.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("its neighbour doesn't run any more: %v %v", st, err)
	}
}
