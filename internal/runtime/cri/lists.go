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

// StreamPodSandboxes calls yield with each sandbox that matches the filter. The runtime sends them in parts, so that
// there may be any number of them. Older runtimes don't implement it: see IsUnimplemented.
func (c *Conn) StreamPodSandboxes(ctx context.Context, filter *runtimeapi.PodSandboxFilter,
	yield func(*runtimeapi.PodSandbox)) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return call(ctx, c, c.exec, "stream_podsandboxes", "", func(ctx context.Context, s *execService) error {
		return streamSandboxes(ctx, runtimeapi.NewRuntimeServiceClient(s.conn), filter, yield)
	})
}

// StreamContainers is StreamPodSandboxes for containers.
func (c *Conn) StreamContainers(ctx context.Context, filter *runtimeapi.ContainerFilter,
	yield func(*runtimeapi.Container)) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return call(ctx, c, c.exec, "stream_containers", "", func(ctx context.Context, s *execService) error {
		return streamContainers(ctx, runtimeapi.NewRuntimeServiceClient(s.conn), filter, yield)
	})
}

// EachSandbox calls yield with each sandbox of a runtime: in a stream, or from one answer if the runtime doesn't
// implement streams.
func EachSandbox(ctx context.Context, rt runtimeapi.RuntimeServiceClient, yield func(*runtimeapi.PodSandbox)) error {
	err := streamSandboxes(ctx, rt, nil, yield)
	if !IsUnimplemented(err) {
		return err
	}
	list, err := rt.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}, grpc.MaxCallRecvMsgSize(listPartLimit))
	for _, sb := range list.GetItems() {
		yield(sb)
	}
	return err
}

// EachContainer is EachSandbox for containers.
func EachContainer(ctx context.Context, rt runtimeapi.RuntimeServiceClient, yield func(*runtimeapi.Container)) error {
	err := streamContainers(ctx, rt, nil, yield)
	if !IsUnimplemented(err) {
		return err
	}
	list, err := rt.ListContainers(ctx, &runtimeapi.ListContainersRequest{}, grpc.MaxCallRecvMsgSize(listPartLimit))
	for _, c := range list.GetContainers() {
		yield(c)
	}
	return err
}

func streamSandboxes(ctx context.Context, rt runtimeapi.RuntimeServiceClient, filter *runtimeapi.PodSandboxFilter,
	yield func(*runtimeapi.PodSandbox)) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream on every return
	defer cancel()
	stream, err := rt.StreamPodSandboxes(ctx, &runtimeapi.StreamPodSandboxesRequest{Filter: filter},
		grpc.MaxCallRecvMsgSize(listPartLimit))
	if err != nil {
		return err
	}
	return receive(stream, (*runtimeapi.StreamPodSandboxesResponse).GetPodSandboxes, yield)
}

func streamContainers(ctx context.Context, rt runtimeapi.RuntimeServiceClient, filter *runtimeapi.ContainerFilter,
	yield func(*runtimeapi.Container)) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream on every return
	defer cancel()
	stream, err := rt.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{Filter: filter},
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
