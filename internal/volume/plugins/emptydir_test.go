package plugins

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
	"github.com/deckhand-node/deckhand/internal/volume/subpath"
	"github.com/deckhand-node/deckhand/internal/volume/volumetest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

// unlimited is a plugin for pods without a memory limit, on a host that has huge pages of 2Mi.
func unlimited(t *testing.T) *EmptyDir { return limited(t, 0) }

func limited(t *testing.T, bytes int64) *EmptyDir {
	return NewEmptyDir(Config{
		MemoryLimit: func(*v1.Pod) (int64, bool) { return bytes, bytes > 0 },
		HugePages:   hugePagesDir(t, map[string]string{"hugepages-2048kB/nr_hugepages": "64\n"}),
	})
}

func emptyDirSpec(source v1.EmptyDirVolumeSource) volume.Spec {
	return volume.Spec{Volume: &v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &source}}}
}

func emptyDirRequest(t *testing.T, source v1.EmptyDirVolumeSource) volume.Request {
	dir := t.TempDir()
	r := volume.Request{Pod: &v1.Pod{}, Spec: emptyDirSpec(source), Place: volume.Place{
		Dir: filepath.Join(dir, "volumes", "data"), Meta: filepath.Join(dir, "plugins", "data"),
	}}
	t.Cleanup(func() { _ = unix.Unmount(r.Dir, unix.MNT_DETACH) }) // most are no mounts
	return r
}

func mountEmptyDir(t *testing.T, p *EmptyDir, r volume.Request) {
	t.Helper()
	m, err := p.Mount(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if m.Path != r.Dir || m.ReadOnly || m.Ownership {
		t.Errorf("it came to %+v", m)
	}
}

func stat(t *testing.T, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st
}

func TestEmptyDirContract(t *testing.T) {
	for name, c := range map[string]struct {
		medium   v1.StorageMedium
		inMemory bool
	}{
		"disk":       {"", false},
		"memory":     {v1.StorageMediumMemory, true},
		"huge pages": {"HugePages-2Mi", true},
	} {
		t.Run(name, func(t *testing.T) {
			volumetest.Run(t, volumetest.Case{
				Plugin: unlimited(t),
				Spec:   func(string) volume.Spec { return emptyDirSpec(v1.EmptyDirVolumeSource{Medium: c.medium}) },
				Pod:    func(p *v1.Pod) { p.Spec.Containers = []v1.Container{asking("hugepages-2Mi", "4Mi")} },
				// A file in huge pages is mapped, and can't be written.
				Writable: !strings.HasPrefix(string(c.medium), "HugePages"), InMemory: c.inMemory,
			})
		})
	}
}

// TestModes has the modes that Kubernetes' suites look for (EmptyDir volumes), and those of directories that are made
// for a subPath.
func TestModes(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for _, c := range []struct {
		name    string
		medium  v1.StorageMedium
		fsGroup *int64
		fs      int64 // 0: any
		mode    uint32
		gid     uint32
	}{
		{"disk", "", nil, 0, 0o777, 0},
		{"disk with fsGroup", "", ptr.To[int64](2000), 0, 0o2777, 2000},
		{"memory", v1.StorageMediumMemory, nil, unix.TMPFS_MAGIC, 0o1777, 0},
		{"memory with fsGroup", v1.StorageMediumMemory, ptr.To[int64](2000), unix.TMPFS_MAGIC, 0o3777, 2000},
		{"huge pages", v1.StorageMediumHugePages, nil, unix.HUGETLBFS_MAGIC, 0o777, 0},
		{"huge pages with fsGroup", v1.StorageMediumHugePages, ptr.To[int64](2000), unix.HUGETLBFS_MAGIC, 0o2777, 2000},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := emptyDirRequest(t, v1.EmptyDirVolumeSource{Medium: c.medium})
			r.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: c.fsGroup}
			r.Pod.Spec.Containers = []v1.Container{asking("hugepages-2Mi", "4Mi")}
			mountEmptyDir(t, unlimited(t), r)
			st := stat(t, r.Dir)
			if st.Mode != unix.S_IFDIR|c.mode || st.Gid != c.gid || st.Uid != 0 {
				t.Errorf("mode %o, user %d, group %d; want %o, 0, %d", st.Mode, st.Uid, st.Gid, c.mode, c.gid)
			}
			pods := t.TempDir()
			t.Cleanup(func() { _ = unix.Unmount(filepath.Join(pods, "uid/volume-subpaths/data/main/0"), unix.MNT_DETACH) })
			place, err := subpath.New(pods).Bind(t.Context(), subpath.Request{UID: "uid", Volume: "data", Container: "main", Root: r.Dir, Path: "test-sub/deeper"})
			if err != nil {
				t.Fatal(err)
			}
			for _, dir := range []string{place, filepath.Join(r.Dir, "test-sub")} {
				if st := stat(t, dir); st.Mode != unix.S_IFDIR|c.mode || st.Gid != c.gid || st.Uid != 0 {
					t.Errorf("%s, made for a subPath: mode %o, user %d, group %d; want %o, 0, %d", dir, st.Mode, st.Uid, st.Gid, c.mode, c.gid)
				}
			}
			var fs unix.Statfs_t
			if err := unix.Statfs(r.Dir, &fs); err != nil {
				t.Fatal(err)
			}
			if c.fs != 0 && fs.Type != c.fs {
				t.Errorf("it is on a file system of the type %#x, want %#x", fs.Type, c.fs)
			}
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
			r := emptyDirRequest(t, v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: c.sizeLimit})
			mountEmptyDir(t, limited(t, c.podLimit), r)
			if got := capacity(t, r.Dir); c.want != 0 && got != c.want || c.want == 0 && got < 64<<20 {
				t.Errorf("size %d, want %d", got, c.want)
			}
		})
	}
}

func capacity(t *testing.T, dir string) int64 {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	return int64(fs.Blocks) * fs.Bsize
}

// TestAMountThatVanished: somebody unmounted what is in memory while containers use it.
func TestAMountThatVanished(t *testing.T) {
	r := emptyDirRequest(t, v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory})
	r.InUse = true
	for range 2 {
		mountEmptyDir(t, unlimited(t), r)
		if st := stat(t, r.Dir); st.Mode&0o7777 != 0o1777 {
			t.Errorf("mode %o", st.Mode)
		}
		if err := unix.Unmount(r.Dir, 0); err != nil {
			t.Fatalf("it was not mounted: %v", err)
		}
	}
}

// TestADirThatVanished: it is made again, as ready as at first.
func TestADirThatVanished(t *testing.T) {
	r := emptyDirRequest(t, v1.EmptyDirVolumeSource{})
	for range 2 {
		mountEmptyDir(t, unlimited(t), r)
		if st := stat(t, r.Dir); st.Mode&0o7777 != 0o777 {
			t.Errorf("mode %o", st.Mode)
		}
		if err := os.Remove(r.Dir); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnsupportedMedia(t *testing.T) {
	for _, medium := range []v1.StorageMedium{"Tape", "HugePages-big", "HugePages-0"} {
		r := emptyDirRequest(t, v1.EmptyDirVolumeSource{Medium: medium})
		_, err := unlimited(t).Mount(t.Context(), r)
		if !errors.Is(err, volume.ErrUnsupported) || !strings.Contains(err.Error(), string(medium)) {
			t.Errorf("%s: %v", medium, err)
		}
		if _, err := os.Lstat(r.Dir); err == nil {
			t.Errorf("%s: a directory was made", medium)
		}
	}
}
