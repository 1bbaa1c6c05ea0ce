package emptydir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

func unlimited(*v1.Pod) (int64, bool) { return 0, false }

func request(t *testing.T, source v1.EmptyDirVolumeSource) volume.Request {
	dir := t.TempDir()
	r := volume.Request{
		Pod:    &v1.Pod{},
		Volume: &v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &source}},
		Dir:    filepath.Join(dir, "volumes", "data"),
	}
	t.Cleanup(func() { _ = unix.Unmount(r.Dir, unix.MNT_DETACH) }) // most are no mounts
	return r
}

func stat(t *testing.T, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st
}

func TestModes(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for _, c := range []struct {
		name    string
		medium  v1.StorageMedium
		fsGroup *int64
		mode    uint32
		gid     uint32
	}{
		{"disk", "", nil, 0o777, 0},
		{"disk with fsGroup", "", ptr.To[int64](2000), 0o2777, 2000},
		{"memory", v1.StorageMediumMemory, nil, 0o1777, 0},
		{"memory with fsGroup", v1.StorageMediumMemory, ptr.To[int64](2000), 0o3777, 2000},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request(t, v1.EmptyDirVolumeSource{Medium: c.medium})
			r.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: c.fsGroup}
			p := New(unlimited)
			if err := p.Prepare(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			st := stat(t, p.HostPath(r))
			if st.Mode != unix.S_IFDIR|c.mode || st.Gid != c.gid || st.Uid != 0 {
				t.Errorf("mode %o, user %d, group %d; want %o, 0, %d", st.Mode, st.Uid, st.Gid, c.mode, c.gid)
			}
			var fs unix.Statfs_t
			if err := unix.Statfs(r.Dir, &fs); err != nil {
				t.Fatal(err)
			}
			if inMemory := fs.Type == unix.TMPFS_MAGIC; inMemory != (c.medium == v1.StorageMediumMemory) && c.medium != "" {
				t.Errorf("in memory: %v", inMemory)
			}
			// A pod may change its volume; preparing it again leaves that alone.
			if err := os.WriteFile(filepath.Join(r.Dir, "file"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := unix.Chmod(r.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := p.Prepare(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if st := stat(t, r.Dir); st.Mode&0o7777 != 0o700 {
				t.Errorf("the mode the pod set was changed to %o", st.Mode)
			}
			stat(t, filepath.Join(r.Dir, "file"))
		})
	}
}

func TestSizeInMemory(t *testing.T) {
	quantity := func(s string) *resource.Quantity { return ptr.To(resource.MustParse(s)) }
	for _, c := range []struct {
		name      string
		sizeLimit *resource.Quantity
		podLimit  int64
		want      int64 // 0: the kernel's default
	}{
		{"size limit", quantity("1Mi"), 0, 1 << 20},
		{"pod's memory limit", nil, 2 << 20, 2 << 20},
		{"the smaller one is the size limit", quantity("1Mi"), 2 << 20, 1 << 20},
		{"the smaller one is the pod's", quantity("1Gi"), 2 << 20, 2 << 20},
		{"none", nil, 0, 0},
		{"zero is none", quantity("0"), 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request(t, v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: c.sizeLimit})
			p := New(func(*v1.Pod) (int64, bool) { return c.podLimit, c.podLimit > 0 })
			if err := p.Prepare(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			var fs unix.Statfs_t
			if err := unix.Statfs(r.Dir, &fs); err != nil {
				t.Fatal(err)
			}
			got := int64(fs.Blocks) * fs.Bsize
			if c.want != 0 && got != c.want || c.want == 0 && got < 64<<20 {
				t.Errorf("size %d, want %d", got, c.want)
			}
		})
	}
}

func TestAfterACrashOrAReboot(t *testing.T) {
	p := New(unlimited)
	t.Run("a crash before the mode was set", func(t *testing.T) {
		r := request(t, v1.EmptyDirVolumeSource{})
		if err := os.MkdirAll(filepath.Join(filepath.Dir(r.Dir), ".data.new"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := p.Prepare(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if st := stat(t, r.Dir); st.Mode&0o7777 != 0o777 {
			t.Errorf("mode %o", st.Mode)
		}
	})
	t.Run("a reboot takes what is in memory", func(t *testing.T) {
		r := request(t, v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory})
		for range 2 {
			if err := p.Prepare(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if st := stat(t, r.Dir); st.Mode&0o7777 != 0o1777 {
				t.Errorf("mode %o", st.Mode)
			}
			if err := unix.Unmount(r.Dir, 0); err != nil {
				t.Fatalf("it was not mounted: %v", err)
			}
		}
	})
	t.Run("the folder is gone", func(t *testing.T) {
		r := request(t, v1.EmptyDirVolumeSource{})
		for range 2 {
			if err := p.Prepare(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(r.Dir); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestUnsupportedMedia(t *testing.T) {
	for _, medium := range []v1.StorageMedium{"HugePages", "HugePages-2Mi", "Tape"} {
		r := request(t, v1.EmptyDirVolumeSource{Medium: medium})
		err := New(unlimited).Prepare(t.Context(), r)
		if !errors.Is(err, volume.ErrUnsupported) || !strings.Contains(err.Error(), string(medium)) {
			t.Errorf("%s: %v", medium, err)
		}
		if _, err := os.Lstat(r.Dir); err == nil {
			t.Errorf("%s: a folder was made", medium)
		}
	}
}
