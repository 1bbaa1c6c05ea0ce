package embedded

import (
	"context"
	"fmt"
	"strings"

	api "github.com/containerd/containerd/api/services/tasks/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// TaskLeft reports whether a container couldn't be removed because of a task that containerd's CRI lost track of.
// If a start is aborted at the wrong moment (the client died or gave up), containerd 2.4.2 has a container that the
// CRI reports as exited while its task still exists: the container can't be removed then, however often a client
// tries. containerd has no error code for that, only this message.
func TaskLeft(err error) bool {
	return err != nil && strings.Contains(err.Error(), "cannot delete running task")
}

// ClearTask kills the container's task and removes it. Use it for a container that has exited according to the CRI.
// A missing task isn't an error.
func ClearTask(ctx context.Context, conn grpc.ClientConnInterface, container string) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
	client := api.NewTasksClient(conn)
	_, err := client.Kill(ctx, &api.KillRequest{ContainerID: container, Signal: uint32(unix.SIGKILL), All: true})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("kill remaining processes of container %s: %w", container, err)
	}
	// Wait returns when the task's first process has ended, at once if it already has.
	if _, err := client.Wait(ctx, &api.WaitRequest{ContainerID: container}); err != nil &&
		status.Code(err) != codes.NotFound {
		return fmt.Errorf("wait for remaining processes of container %s: %w", container, err)
	}
	if _, err := client.Delete(ctx, &api.DeleteTaskRequest{ContainerID: container}); err != nil &&
		status.Code(err) != codes.NotFound {
		return fmt.Errorf("remove the task of container %s: %w", container, err)
	}
	return nil
}
