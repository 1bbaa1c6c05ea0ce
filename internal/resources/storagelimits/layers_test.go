package storagelimits

import (
	"context"
	"errors"
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
	layers := NewContainerLayers(ContainerLayersConfig{Observed: runtime, Runtime: runtime, Meter: usage.New(usage.Config{}),
		LayerDir: func(context.Context, string) (string, error) { return "", errors.ErrUnsupported }})
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
	// The directory outlives the mount, and the runtime needn't be asked for it.
	if err := unix.Unmount(root, 0); err != nil {
		t.Fatal(err)
	}
	runtime.containers = []pod.Container{{Name: "a", ID: "overlaid", State: pod.ContainerExited}, {Name: "d", ID: "other", State: pod.ContainerRunning}}
	written, err := layers.WritableLayer(t.Context(), "uid")
	if a := written["a"].Bytes; err != nil || a < 2<<20 || a > 3<<20 {
		t.Errorf("after the end the layers are %v: %v", written, err)
	}
}

// TestLayersOfEndedContainers: the newest instance that was started counts, also after its end, as its container may fail by
// what it wrote.
func TestLayersOfEndedContainers(t *testing.T) {
	dir, calls := t.TempDir(), map[string]int{}
	for name, mib := range map[string]int64{"ended": 3, "older": 5, "failed": 4} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "file"), make([]byte, mib<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runtime := &runs{containers: []pod.Container{
		{Name: "a", ID: "made", State: pod.ContainerCreated},
		{Name: "a", ID: "ended", State: pod.ContainerExited},
		{Name: "a", ID: "older", State: pod.ContainerExited},
		{Name: "b", ID: "removed", State: pod.ContainerExited},
		{Name: "c", ID: "runs", State: pod.ContainerRunning},
		{Name: "c", ID: "older", State: pod.ContainerExited},
	}}
	layers := NewContainerLayers(ContainerLayersConfig{Observed: runtime, Runtime: runtime, Meter: usage.New(usage.Config{}),
		LayerDir: func(_ context.Context, id string) (string, error) {
			calls[id]++
			if id == "removed" {
				return "", nil
			}
			return filepath.Join(dir, id), nil
		}})
	for range 2 {
		written, err := layers.WritableLayer(t.Context(), "uid")
		if err != nil {
			t.Fatal(err)
		}
		if a := written["a"].Bytes; len(written) != 2 || a < 3<<20 || a > 4<<20 || written["c"].Bytes != 7 {
			t.Errorf("the layers are %v", written)
		}
	}
	if len(calls) != 2 || calls["ended"] != 1 {
		t.Errorf("the runtime was asked for %v", calls)
	}

	// The snapshot still has it as running, but its root file system is unmounted.
	runtime.containers = []pod.Container{{Name: "d", ID: "failed", State: pod.ContainerRunning}}
	if written, err := layers.WritableLayer(t.Context(), "uid"); err != nil || written["d"].Bytes != 7 {
		t.Errorf("the layers are %v: %v", written, err)
	}
	runtime.containers[0].State = pod.ContainerExited
	if written, err := layers.WritableLayer(t.Context(), "uid"); err != nil || written["d"].Bytes < 4<<20 {
		t.Errorf("after its end was seen the layers are %v: %v", written, err)
	}
}
