package node

import (
	"context"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// batch is how many items a streamed list sends at once.
const batch = 500

// ListPodSandbox returns the sandboxes that match the filter, unordered.
func (n *Node) ListPodSandbox(_ context.Context,
	r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: n.listSandboxes(r.GetFilter())}, nil
}

// StreamPodSandboxes is ListPodSandbox in batches.
func (n *Node) StreamPodSandboxes(r *runtimeapi.StreamPodSandboxesRequest,
	out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	return inBatches(n.listSandboxes(r.GetFilter()), func(items []*runtimeapi.PodSandbox) error {
		return out.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: items})
	})
}

// ListContainers returns the containers that match the filter, unordered.
func (n *Node) ListContainers(_ context.Context,
	r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: n.listContainers(r.GetFilter())}, nil
}

// StreamContainers is ListContainers in batches.
func (n *Node) StreamContainers(r *runtimeapi.StreamContainersRequest,
	out grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	return inBatches(n.listContainers(r.GetFilter()), func(items []*runtimeapi.Container) error {
		return out.Send(&runtimeapi.StreamContainersResponse{Containers: items})
	})
}

func (n *Node) listSandboxes(f *runtimeapi.PodSandboxFilter) []*runtimeapi.PodSandbox {
	n.mu.Lock()
	defer n.mu.Unlock()
	items := make([]*runtimeapi.PodSandbox, 0, len(n.sandboxes))
	for _, s := range n.sandboxes {
		switch {
		case f.GetId() != "" && f.GetId() != s.id():
		case f.GetState() != nil && f.GetState().GetState() != s.status.State:
		case !matches(f.GetLabelSelector(), s.status.Labels):
		default:
			items = append(items, s.item)
		}
	}
	return items
}

func (n *Node) listContainers(f *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	n.mu.Lock()
	defer n.mu.Unlock()
	among := n.containers
	if id := f.GetPodSandboxId(); id != "" {
		s := n.sandboxes[id]
		if s == nil {
			return nil
		}
		among = s.containers
	}
	items := make([]*runtimeapi.Container, 0, len(among))
	for _, c := range among {
		switch {
		case f.GetId() != "" && f.GetId() != c.id():
		case f.GetState() != nil && f.GetState().GetState() != c.status.State:
		case !matches(f.GetLabelSelector(), c.status.Labels):
		default:
			items = append(items, c.item)
		}
	}
	return items
}

func matches(selector, labels map[string]string) bool {
	for k, want := range selector {
		if got, ok := labels[k]; !ok || got != want {
			return false
		}
	}
	return true
}

func inBatches[T any](items []T, send func([]T) error) error {
	for len(items) > 0 {
		some := items[:min(batch, len(items))]
		if err := send(some); err != nil {
			return err
		}
		items = items[len(some):]
	}
	return nil
}
