package embedded_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

// TestLayerDir: what a container has written is found after its end, when the CRI has no statistics of it.
func TestLayerDir(t *testing.T) {
	in := embeddedtest.Start(t)
	conn := in.Connect(t)
	runtime := cri.NewRuntimeServiceClient(conn)
	p := in.RunPod(t, "writer", nil)
	dir, err := embedded.LayerDir(t.Context(), conn, p.Container)
	if err != nil || dir == "" {
		t.Fatalf("the directory is %q: %v", dir, err)
	}
	file := filepath.Join(dir, "written")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := runtime.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: p.Container}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		st, err := runtime.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: p.Container})
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the container hasn't ended: %v", err)
		}
		if st.Status.State == cri.ContainerState_CONTAINER_EXITED {
			break
		}
	}
	stats, err := runtime.ContainerStats(t.Context(), &cri.ContainerStatsRequest{ContainerId: p.Container})
	t.Logf("the CRI's statistics: %v, %v", stats.GetStats().GetWritableLayer(), err)
	after, err := embedded.LayerDir(t.Context(), conn, p.Container)
	if _, there := os.Stat(file); err != nil || after != dir || there != nil {
		t.Errorf("after the end the directory is %q, before %q: %v, %v", after, dir, err, there)
	}
	if _, err := runtime.RemoveContainer(t.Context(), &cri.RemoveContainerRequest{ContainerId: p.Container}); err != nil {
		t.Fatal(err)
	}
	if dir, err := embedded.LayerDir(t.Context(), conn, p.Container); err != nil || dir != "" {
		t.Errorf("of a removed container it is %q: %v", dir, err)
	}
	// The CRI has answered, but the space isn't free yet.
	if err := embedded.FreeLayers(t.Context(), conn); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the layer of a removed container is still there: %v", err)
	}
}
