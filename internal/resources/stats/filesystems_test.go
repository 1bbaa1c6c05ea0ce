package stats_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMeasureOneFileSystem(t *testing.T) {
	n := newNode(t)
	got := n.sampler().MeasureFileSystems(t.Context())
	if got.Images.Path != n.base || got.Images.Err != nil || !cmp.Equal(got.Images, got.Containers) || got.Node.Device == "" ||
		got.Node.Device != got.Images.Device {
		t.Errorf("got %+v", got)
	}
}

// TestMeasureTwoFileSystems: figures are of this moment, also right after a change.
func TestMeasureTwoFileSystems(t *testing.T) {
	n := newNode(t)
	s := n.sampler()
	n.imagesOnTheirOwn()
	if err := unix.Mount("tmpfs", n.base, "tmpfs", 0, "size=8m,nr_inodes=100"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(n.base, unix.MNT_DETACH)
	for _, files := range []uint64{0, 1, 2} {
		got := s.MeasureFileSystems(t.Context())
		images := &got.Images
		if got.Node.Err != nil || images.Err != nil || images.Device == got.Node.Device || images.Point != n.base || images.Source != "tmpfs" {
			t.Fatalf("got %+v", got)
		}
		if *images.Capacity != 8<<20 || *images.Available != (8-2*files)<<20 || *images.Inodes != 100 || *images.InodesFree != 99-files {
			t.Errorf("with %d files: %d of %d bytes, %d of %d inodes", files, *images.Available, *images.Capacity, *images.InodesFree, *images.Inodes)
		}
		if err := os.WriteFile(filepath.Join(n.base, string(rune('a'+files))), make([]byte, 2<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// imagesOnTheirOwn changes the runtime's directory, which was the node's root directory.
func (n *node) imagesOnTheirOwn() {
	n.t.Helper()
	n.base = filepath.Join(n.base, "images")
	if err := os.Mkdir(n.base, 0o755); err != nil {
		n.t.Fatal(err)
	}
}

func TestMeasureFileSystemsWithoutTheRuntime(t *testing.T) {
	n := newNode(t)
	n.images = errors.New("the runtime is away")
	got := n.sampler().MeasureFileSystems(t.Context())
	if got.Node.Err != nil || got.Node.Capacity == nil || got.Images.Err == nil || !strings.Contains(got.Images.Err.Error(), "is away") ||
		got.Containers.Err == nil || got.Images.Capacity != nil || !errors.Is(got.Unknown, n.images) {
		t.Errorf("got %+v", got)
	}
}

// TestMeasureFileSystemsAsBefore: a runtime that has answered once has the same file systems while it is away.
func TestMeasureFileSystemsAsBefore(t *testing.T) {
	n := newNode(t)
	s := n.sampler()
	for range 2 {
		if got := s.MeasureFileSystems(t.Context()); got.Unknown != nil || got.Images.Err != nil {
			t.Errorf("got %+v", got)
		}
		n.images = errors.New("the runtime is away")
	}
}

// TestMeasureFileSystemsThatHang: one that hangs has an error, and the other one figures.
func TestMeasureFileSystemsThatHang(t *testing.T) {
	n := newNode(t)
	s := n.sampler()
	n.imagesOnTheirOwn()
	server := mounttest.Mount(t, n.base)
	server.Hang()
	defer server.Resume()
	got := s.MeasureFileSystems(t.Context())
	if got.Node.Err != nil || got.Node.Capacity == nil || got.Images.Err == nil || got.Images.Capacity != nil {
		t.Errorf("got %+v", got)
	}
}

func BenchmarkMeasureFileSystems(b *testing.B) {
	s := newNode(b).sampler()
	for b.Loop() {
		if got := s.MeasureFileSystems(b.Context()); got.Node.Err != nil || got.Images.Err != nil {
			b.Fatalf("%+v", got)
		}
	}
}
