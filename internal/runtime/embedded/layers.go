package embedded

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	leases "github.com/containerd/containerd/api/services/leases/v1"
	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// LayerDir returns the upper directory of a container's root file system, also after the container has ended; empty if
// there is no such container or directory. The CRI has neither the directory nor, after the end, its size.
func LayerDir(ctx context.Context, conn grpc.ClientConnInterface, container string) (string, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
	got, err := containers.NewContainersClient(conn).Get(ctx, &containers.GetContainerRequest{ID: container})
	if status.Code(err) == codes.NotFound {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("get containerd's record of container %s: %w", container, err)
	}
	c := got.GetContainer()
	r := &snapshots.MountsRequest{Snapshotter: c.GetSnapshotter(), Key: c.GetSnapshotKey()}
	list, err := snapshots.NewSnapshotsClient(conn).Mounts(ctx, r)
	if status.Code(err) == codes.NotFound {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("get the writable layer of container %s: %w", container, err)
	}
	for _, m := range list.GetMounts() {
		for _, option := range m.GetOptions() {
			if dir, ok := strings.CutPrefix(option, "upperdir="); ok {
				return dir, nil
			}
		}
	}
	return "", nil
}

// FreeLayers returns once the layers of removed containers are deleted. containerd deletes them in its next garbage
// collection, which may be seconds after the CRI's answer. The synchronous end of a lease is one, too.
func FreeLayers(ctx context.Context, conn grpc.ClientConnInterface) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
	client, id := leases.NewLeasesClient(conn), "deckhand-"+rand.Text()
	// If it isn't ended, containerd ends it later.
	expire := map[string]string{"containerd.io/gc.expire": time.Now().Add(time.Minute).Format(time.RFC3339)}
	_, err := client.Create(ctx, &leases.CreateRequest{ID: id, Labels: expire})
	if err == nil {
		_, err = client.Delete(ctx, &leases.DeleteRequest{ID: id, Sync: true})
	}
	if err != nil {
		return fmt.Errorf("wait until containerd has deleted the layers of removed containers: %w", err)
	}
	return nil
}
