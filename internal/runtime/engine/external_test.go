package engine

import (
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
)

// TestExternalLayers: only a runtime without containerd's own functions frees the layers of removed containers at once.
func TestExternalLayers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "other.sock")
	external := External("unix://" + socket)
	if err := external.FreeLayers(t.Context()); err == nil {
		t.Error("a runtime that doesn't answer has freed them")
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server, ended := grpc.NewServer(), make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	if err := external.FreeLayers(t.Context()); err != nil {
		t.Error(err)
	}
	server.Stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
