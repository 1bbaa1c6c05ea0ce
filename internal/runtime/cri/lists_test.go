package cri_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/cri"
)

// The lists of a runtimeServer come in two parts if it has streams; then they are too long for one answer.

var errTooLong = status.Error(codes.ResourceExhausted, "trying to send message larger than max")

func (s *runtimeServer) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	if s.streams {
		return nil, errTooLong
	}
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: "s1"}, {Id: "s2"}}}, nil
}

func (s *runtimeServer) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	if s.streams {
		return nil, errTooLong
	}
	return &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{Id: "c1"}, {Id: "c2"}}}, nil
}

func (s *runtimeServer) StreamPodSandboxes(_ *runtimeapi.StreamPodSandboxesRequest, out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	if !s.streams {
		return status.Error(codes.Unimplemented, "no streams here")
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
	for _, id := range []string{"c1", "c2"} {
		if err := out.Send(&runtimeapi.StreamContainersResponse{Containers: []*runtimeapi.Container{{Id: id}}}); err != nil {
			return err
		}
	}
	return nil
}

// TestEachOfAList: a list comes from a stream, or from one answer if the runtime has no streams.
func TestEachOfAList(t *testing.T) {
	for _, streams := range []bool{true, false} {
		socket := filepath.Join(t.TempDir(), "cri.sock")
		serve(t, socket, &runtimeServer{streams: streams})
		conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		addSandbox := func(s *runtimeapi.PodSandbox) { ids = append(ids, s.Id) }
		addContainer := func(c *runtimeapi.Container) { ids = append(ids, c.Id) }
		rt := runtimeapi.NewRuntimeServiceClient(conn)
		if err := cri.EachSandbox(t.Context(), rt, addSandbox); err != nil {
			t.Error(err)
		}
		if err := cri.EachContainer(t.Context(), rt, addContainer); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(ids); got != "[s1 s2 c1 c2]" {
			t.Errorf("with streams %v: %s", streams, got)
		}
		ids = nil
		c := dial(t, socket, nil)
		for _, err := range []error{c.StreamPodSandboxes(t.Context(), nil, addSandbox), c.StreamContainers(t.Context(), nil, addContainer)} {
			if cri.IsUnimplemented(err) == streams || streams && err != nil {
				t.Errorf("with streams %v: %v", streams, err)
			}
		}
		if got := fmt.Sprint(ids); streams && got != "[s1 s2 c1 c2]" {
			t.Errorf("streams: %s", got)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}
