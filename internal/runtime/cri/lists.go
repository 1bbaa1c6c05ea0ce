package cri

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// listPartLimit is the maximum size of one answer of a list; containerd and CRI-O send no more.
const listPartLimit = 16 << 20

// StreamPodSandboxes calls yield with each sandbox that matches the filter. The runtime sends the sandboxes in several
// messages, so their number isn't limited. Older runtimes don't implement this call: see IsUnimplemented.
func (c *Conn) StreamPodSandboxes(ctx context.Context, filter *runtimeapi.PodSandboxFilter,
	yield func(*runtimeapi.PodSandbox)) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return call(ctx, c, c.exec, "stream_podsandboxes", "", func(ctx context.Context, s *execService) error {
		return client{runtimeapi.NewRuntimeServiceClient(s.conn)}.StreamPodSandboxes(ctx, filter, yield)
	})
}

// StreamContainers is StreamPodSandboxes for containers.
func (c *Conn) StreamContainers(ctx context.Context, filter *runtimeapi.ContainerFilter,
	yield func(*runtimeapi.Container)) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return call(ctx, c, c.exec, "stream_containers", "", func(ctx context.Context, s *execService) error {
		return client{runtimeapi.NewRuntimeServiceClient(s.conn)}.StreamContainers(ctx, filter, yield)
	})
}

// client implements Lister by a client of the CRI.
type client struct {
	rt runtimeapi.RuntimeServiceClient
}

// ListerOf returns a Lister that uses a client. Its calls end with their contexts.
func ListerOf(rt runtimeapi.RuntimeServiceClient) Lister { return client{rt} }

func (c client) ListPodSandbox(ctx context.Context,
	filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	list, err := c.rt.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter},
		grpc.MaxCallRecvMsgSize(listPartLimit))
	return list.GetItems(), err
}

func (c client) ListContainers(ctx context.Context,
	filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	list, err := c.rt.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter},
		grpc.MaxCallRecvMsgSize(listPartLimit))
	return list.GetContainers(), err
}

func (c client) StreamPodSandboxes(ctx context.Context, filter *runtimeapi.PodSandboxFilter,
	yield func(*runtimeapi.PodSandbox)) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream on every return
	defer cancel()
	stream, err := c.rt.StreamPodSandboxes(ctx, &runtimeapi.StreamPodSandboxesRequest{Filter: filter},
		grpc.MaxCallRecvMsgSize(listPartLimit))
	if err != nil {
		return err
	}
	return receive(stream, (*runtimeapi.StreamPodSandboxesResponse).GetPodSandboxes, yield)
}

func (c client) StreamContainers(ctx context.Context, filter *runtimeapi.ContainerFilter,
	yield func(*runtimeapi.Container)) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream on every return
	defer cancel()
	stream, err := c.rt.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{Filter: filter},
		grpc.MaxCallRecvMsgSize(listPartLimit))
	if err != nil {
		return err
	}
	return receive(stream, (*runtimeapi.StreamContainersResponse).GetContainers, yield)
}

// receive calls yield with the items of each part of a stream.
func receive[Part, Item any](stream grpc.ServerStreamingClient[Part], items func(*Part) []Item,
	yield func(Item)) error {
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, item := range items(part) {
			yield(item)
		}
	}
}
