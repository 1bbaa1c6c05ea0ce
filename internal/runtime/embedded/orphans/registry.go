package orphans

import (
	"context"
	"fmt"
	"maps"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	sandboxes "github.com/containerd/containerd/api/services/sandbox/v1"
	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// namespace is containerd's namespace of the CRI's containers.
	namespace = "k8s.io"
	// kindLabel is the CRI's label that distinguishes sandboxes from containers.
	kindLabel   = "io.cri-containerd.kind"
	kindSandbox = "sandbox"
	// maxList is the maximum size of a list in bytes; grpc's default of 4 MiB is too small for a node full of pods.
	maxList = 16 << 20
)

// container is containerd's record of a container.
type container struct {
	snapshotter, snapshot string
}

// registry queries containerd's records.
type registry struct {
	cri        cri.RuntimeServiceClient
	sandboxes  sandboxes.StoreClient
	containers containers.ContainersClient
	tasks      tasks.TasksClient
	snapshots  snapshots.SnapshotsClient
}

func newRegistry(conn *grpc.ClientConn) registry {
	return registry{
		cri:        cri.NewRuntimeServiceClient(conn),
		sandboxes:  sandboxes.NewStoreClient(conn),
		containers: containers.NewContainersClient(conn),
		tasks:      tasks.NewTasksClient(conn),
		snapshots:  snapshots.NewSnapshotsClient(conn),
	}
}

func inNamespace(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
}

// lost returns the given orphans that neither the CRI nor containerd's stores have.
func (r registry) lost(ctx context.Context, there map[string]*orphan) (map[string]*orphan, error) {
	known, err := r.listed(ctx)
	if err != nil {
		return nil, err
	}
	lost := maps.Clone(there)
	maps.DeleteFunc(lost, func(id string, _ *orphan) bool { return known[id] })
	for id, o := range lost {
		known, err := r.stored(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		if known {
			delete(lost, id)
		}
	}
	return lost, nil
}

// listed returns the sandboxes and containers that the CRI lists.
func (r registry) listed(ctx context.Context) (map[string]bool, error) {
	known := map[string]bool{}
	pods, err := r.cri.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{}, grpc.MaxCallRecvMsgSize(maxList))
	if err != nil {
		return nil, fmt.Errorf("list the sandboxes: %w", err)
	}
	for _, s := range pods.GetItems() {
		known[s.GetId()] = true
	}
	list, err := r.cri.ListContainers(ctx, &cri.ListContainersRequest{}, grpc.MaxCallRecvMsgSize(maxList))
	if err != nil {
		return nil, fmt.Errorf("list the containers: %w", err)
	}
	for _, c := range list.GetContainers() {
		known[c.GetId()], known[c.GetPodSandboxId()] = true, true
	}
	return known, nil
}

// stored reports whether containerd has a record that the CRI doesn't list: of a sandbox that is being created, or
// of a container that is being created or isn't the CRI's.
func (r registry) stored(ctx context.Context, o *orphan) (known bool, err error) {
	ctx = inNamespace(ctx)
	_, err = r.sandboxes.Get(ctx, &sandboxes.StoreGetRequest{SandboxID: o.id})
	if err == nil || status.Code(err) != codes.NotFound {
		return err == nil, err
	}
	got, err := r.containers.Get(ctx, &containers.GetContainerRequest{ID: o.id})
	if status.Code(err) == codes.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c := got.GetContainer()
	if c.GetLabels()[kindLabel] != kindSandbox {
		return true, nil
	}
	o.container = &container{snapshotter: c.GetSnapshotter(), snapshot: c.GetSnapshotKey()}
	return false, nil
}

// forget makes containerd delete a container whose shim was killed.
func (r registry) forget(ctx context.Context, id string, c *container) error {
	ctx = inNamespace(ctx)
	// The first call cleans up after the shim, but fails because the shim is gone. The second one reports that the
	// task is gone.
	_, err := r.tasks.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id})
	if err != nil {
		_, err = r.tasks.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id})
	}
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("delete the task: %w", err)
	}
	_, err = r.containers.Delete(ctx, &containers.DeleteContainerRequest{ID: id})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("delete the container: %w", err)
	}
	if c.snapshot == "" {
		return nil
	}
	_, err = r.snapshots.Remove(ctx, &snapshots.RemoveSnapshotRequest{Snapshotter: c.snapshotter, Key: c.snapshot})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("remove the snapshot: %w", err)
	}
	return nil
}
