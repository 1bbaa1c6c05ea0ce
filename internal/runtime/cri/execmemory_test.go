package cri_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/cri"
)

const (
	// execSocket makes this test binary the client of the server at that socket.
	execSocket = "DECKHAND_TEST_EXEC_SOCKET"
	// noisyCalls commands print noisyBytes each.
	noisyCalls, noisyBytes = 16, 15 << 20
)

// What commands print doesn't blow up the agent: the heap of a client, which is a
// process of its own, stays well below even one copy of what all of them print.
// cri-client's call takes from two to five.
func TestExecMemory(t *testing.T) {
	if socket := os.Getenv(execSocket); socket != "" {
		listen(t, socket)
		return
	}
	socket := filepath.Join(t.TempDir(), "s")
	shout(t, socket)
	client := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestExecMemory$", "-test.v")
	client.Env = append(os.Environ(), execSocket+"="+socket)
	out, err := client.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, text, _ := strings.Cut(string(out), "heap: ")
	var heap struct{ Before, After int64 }
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&heap); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	grown := heap.After - heap.Before
	t.Logf("%d commands that print %d MiB each took %d MiB", noisyCalls, noisyBytes>>20, grown>>20)
	if grown > noisyCalls*noisyBytes/2 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// shout serves one answer to noisyCalls calls at once.
func shout(t *testing.T, socket string) {
	answer, err := proto.Marshal(&runtimeapi.ExecSyncResponse{Stdout: make([]byte, noisyBytes), ExitCode: 5})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Add(noisyCalls)
	g := grpc.NewServer(grpc.MaxSendMsgSize(16<<20), grpc.ForceServerCodecV2(wired{encoding.GetCodecV2(protocodec.Name), answer}))
	runtimeapi.RegisterRuntimeServiceServer(g, &runtimeServer{exec: func(context.Context, *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
		all.Done()
		all.Wait()
		return nil, nil
	}})
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.Serve(l)
	}()
	t.Cleanup(func() { g.Stop(); <-served })
}

// wired sends the same bytes as the answer to each ExecSync, without a copy.
type wired struct {
	encoding.CodecV2
	answer []byte
}

func (w wired) Marshal(v any) (mem.BufferSlice, error) {
	if _, ok := v.(*runtimeapi.ExecSyncResponse); ok {
		return mem.BufferSlice{mem.SliceBuffer(w.answer)}, nil
	}
	return w.CodecV2.Marshal(v)
}

// listen makes the calls and tells what the heap took from the system, which never shrinks.
func listen(t *testing.T, socket string) {
	c, err := cri.New(cri.Options{Endpoint: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var calls sync.WaitGroup
	for range noisyCalls {
		calls.Go(func() {
			r, err := c.ExecSync(t.Context(), "id", []string{"yes"}, 5*time.Minute)
			if err != nil || r.ExitCode != 5 || len(r.Stdout) != cri.ExecOutputLimit {
				t.Errorf("%d bytes, code %d, %v", len(r.Stdout), r.ExitCode, err)
			}
		})
	}
	calls.Wait()
	runtime.ReadMemStats(&after)
	text, err := json.Marshal(map[string]uint64{"Before": before.HeapSys, "After": after.HeapSys})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("heap: %s", text)
}
