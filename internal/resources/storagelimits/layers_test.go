package storagelimits

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

// runs is a runtime whose statistics are old.
type runs struct{ containers []pod.Container }

func (r *runs) Get(types.UID) *pod.Observed { return &pod.Observed{Containers: r.containers} }

func (r *runs) ContainerStats(context.Context, string) (*runtimeapi.ContainerStats, error) {
	return &runtimeapi.ContainerStats{WritableLayer: &runtimeapi.FilesystemUsage{UsedBytes: &runtimeapi.UInt64Value{Value: 7}}}, nil
}

// What a container writes counts at once where its root file system is an overlay of this host, as containerd makes it; else the
// runtime is asked.
func TestAnOverlaysUpperDirIsMeasured(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil { // an upper directory can't be on an overlay
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	root := filepath.Join(dir, "tasks", "overlaid", "rootfs")
	for _, name := range []string{"lower", "upper", "work", "tasks/overlaid/rootfs"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("overlay", root, "overlay", 0, "lowerdir="+dir+"/lower,upperdir="+dir+"/upper,workdir="+dir+"/work"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	runtime := &runs{containers: []pod.Container{
		{Name: "a", ID: "overlaid", State: pod.ContainerRunning},
		{Name: "b", ID: "elsewhere", State: pod.ContainerRunning},
		{Name: "c", ID: "ended", State: pod.ContainerExited},
	}}
	layers := NewContainerLayers(ContainerLayersConfig{Observed: runtime, Runtime: runtime, Meter: usage.New(usage.Config{})})
	for mib := int64(1); mib <= 2; mib++ {
		if err := os.WriteFile(filepath.Join(root, "file"), make([]byte, mib<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		written, err := layers.WritableLayer(t.Context(), "uid")
		if err != nil {
			t.Fatal(err)
		}
		if a, b := written["a"].Bytes, written["b"].Bytes; len(written) != 2 || a < mib<<20 || a > (mib+1)<<20 || b != 7 {
			t.Errorf("after %d MiB the layers are %v", mib, written)
		}
	}
}
