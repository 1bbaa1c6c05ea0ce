package stats_test

import (
	"os"
	"path/filepath"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/resources/stats"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// TestFullDisks: a disk without room comes with what it holds and who uses most of it, by bytes or by inodes.
func TestFullDisks(t *testing.T) {
	n := newNode(t)
	if err := unix.Mount("deckhand-test", n.base, "tmpfs", 0, "size=40m,nr_inodes=400"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(n.base, 0); err != nil {
			t.Error(err)
		}
	})
	o := n.add("a", nil, idle())
	data := filepath.Join(n.base, "data")
	i := volume.Instance{Spec: volume.Spec{Volume: &v1.Volume{Name: "data"}}, Mounted: volume.Mounted{Path: data}}
	i.UID = o.UID
	n.volumes = []volume.Instance{i}
	for _, dir := range []string{data, filepath.Join(n.base, "logs", "ns_a_"+string(o.UID), "main")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := n.sampler()
	if got := s.FullDisks(t.Context()); len(got) > 0 {
		t.Errorf("a disk with room: %+v", got)
	}
	for path, size := range map[string]int{filepath.Join(data, "large"): 20 << 20, filepath.Join(n.base, "other"): 8 << 20} {
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := s.FullDisks(t.Context())
	if len(got) != 1 || got[0].Point != n.base || !gocmp.Equal(got[0].Holds, []string{"the root directory", "images", "the pods' logs"}) || len(got[0].Most) != 2 {
		t.Fatalf("a disk without room: %+v", got)
	}
	for i, want := range []stats.DiskUser{{Name: "pod ns/a", Bytes: 20 << 20}, {Name: "other files", Bytes: 8 << 20}} {
		if u := got[0].Most[i]; u.Name != want.Name || u.Bytes < want.Bytes-1<<20 || u.Bytes > want.Bytes+1<<20 {
			t.Errorf("user %d is %+v, want %+v", i, u, want)
		}
	}
}
