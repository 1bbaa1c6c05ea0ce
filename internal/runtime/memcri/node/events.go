package node

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// GetContainerEvents streams new events, after the queued events of the time without a reader (at most those of the
// last five minutes).
func (n *Node) GetContainerEvents(_ *runtimeapi.GetEventsRequest,
	out grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	n.mu.Lock()
	off := n.noEvents
	n.mu.Unlock()
	if off {
		return status.Error(codes.Unimplemented, "method GetContainerEvents not implemented")
	}
	sub := n.events.Subscribe()
	defer sub.Close()
	for {
		events, err := sub.Next(out.Context())
		if err != nil {
			return status.FromContextError(err).Err()
		}
		for _, e := range events {
			if err := out.Send(e); err != nil {
				return err
			}
		}
	}
}

// publish publishes an event with the current status of the pod. The caller holds n.mu.
func (n *Node) publish(s *sandbox, id string, kind runtimeapi.ContainerEventType) {
	if n.down || n.dropEvents || n.noEvents {
		return
	}
	statuses := make([]*runtimeapi.ContainerStatus, 0, len(s.containers))
	for _, c := range s.containers {
		statuses = append(statuses, c.status)
	}
	n.events.Publish(&runtimeapi.ContainerEventResponse{
		ContainerId:        id,
		ContainerEventType: kind,
		CreatedAt:          time.Now().UnixNano(),
		PodSandboxStatus:   s.status,
		ContainersStatuses: statuses,
	})
}
