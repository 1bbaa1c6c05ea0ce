package cri_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/cri"
)

// A runtimeServer's lists of everything are too long for one answer if it has streams, or if long is set. Then parts of
// its streams are too long, too.

var errTooLong = status.Error(codes.ResourceExhausted, "trying to send message larger than max")

func (s *runtimeServer) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	all := []*runtimeapi.PodSandbox{{Id: "s1"}, {Id: "s2"}}
	switch state := r.GetFilter().GetState(); {
	case state != nil:
		return &runtimeapi.ListPodSandboxResponse{Items: all[state.GetState() : state.GetState()+1]}, nil
	case s.streams || s.long:
		return nil, errTooLong
	}
	return &runtimeapi.ListPodSandboxResponse{Items: all}, nil
}

func (s *runtimeServer) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	f := r.GetFilter()
	exited := f.GetState().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && f.GetState() != nil
	switch {
	case exited && f.GetPodSandboxId() != "": // those of one sandbox fit
		return &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{Id: "c" + f.GetPodSandboxId()[1:]}}}, nil
	case f.GetState() != nil && !exited:
		return &runtimeapi.ListContainersResponse{}, nil
	case s.streams || s.long:
		return nil, errTooLong
	}
	return &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{Id: "c1"}, {Id: "c2"}}}, nil
}

func (s *runtimeServer) StreamPodSandboxes(_ *runtimeapi.StreamPodSandboxesRequest, out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	if !s.streams {
		return status.Error(codes.Unimplemented, "no streams here")
	}
	if s.long {
		return errTooLong
	}
	for _, id := range []string{"s1", "s2"} {
		if err := out.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: []*runtimeapi.PodSandbox{{Id: id}}}); err != nil {
			return err
		}
	}
	return nil
}

func (s *runtimeServer) StreamContainers(_ *runtimeapi.StreamContainersRequest, out grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	if !s.streams {
		return status.Error(codes.Unimplemented, "no streams here")
	}
	if s.long {
		return errTooLong
	}
	for _, id := range []string{"c1", "c2"} {
		if err := out.Send(&runtimeapi.StreamContainersResponse{Containers: []*runtimeapi.Container{{Id: id}}}); err != nil {
			return err
		}
	}
	return nil
}

// TestEachOfAList: a list comes in one answer, as a stream, or in parts, for a Conn and for a client.
func TestEachOfAList(t *testing.T) {
	for name, s := range map[string]runtimeServer{
		"one answer": {}, "a stream": {streams: true}, "no streams": {long: true}, "a long part of a stream": {streams: true, long: true},
	} {
		socket := filepath.Join(t.TempDir(), "cri.sock")
		serve(t, socket, &runtimeServer{streams: s.streams, long: s.long})
		conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []cri.Lister{cri.ListerOf(runtimeapi.NewRuntimeServiceClient(conn)), dial(t, socket, nil)} {
			var sandboxes, containers []string
			if err := cri.EachSandbox(t.Context(), l, nil, func(s *runtimeapi.PodSandbox) { sandboxes = append(sandboxes, s.Id) }); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := cri.EachContainer(t.Context(), l, nil, sandboxes, func(c *runtimeapi.Container) { containers = append(containers, c.Id) }); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			slices.Sort(containers) // lists of several sandboxes are under way at once
			if got := fmt.Sprint(sandboxes, containers); got != "[s1 s2] [c1 c2]" {
				t.Errorf("%s: %s", name, got)
			}
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}
