package plugins

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen/safeopentest"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/teardown"
	"github.com/deckhand-node/deckhand/internal/volume/volumetest"
)

func localClaim(path string) volume.Spec {
	return claimed(v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}})
}

func TestLocalVolumeContract(t *testing.T) {
	prepare := func(host string) error {
		if err := os.MkdirAll(filepath.Join(host, "disk"), 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(host, "disk", "file"), []byte("kept"), 0o600)
	}
	readOnly := func(host string) volume.Spec {
		s := localClaim(filepath.Join(host, "disk"))
		s.Volume.PersistentVolumeClaim.ReadOnly = true
		return s
	}
	for name, c := range map[string]volumetest.Case{
		"a directory": {Spec: func(host string) volume.Spec { return localClaim(filepath.Join(host, "disk")) }, Writable: true},
		// Files that can't be given to a group are read as they are.
		"read-only": {Spec: readOnly, IgnoresGroup: true},
	} {
		t.Run(name, func(t *testing.T) {
			c.Plugin, c.Prepare, c.Want, c.Outlives = LocalVolume{}, prepare, map[string]string{"file": "kept"}, true
			volumetest.Run(t, c)
		})
	}
}

// localDisk is a PersistentVolume's directory, with a file in it, and a place for the volume.
func localDisk(t *testing.T) (string, volume.Request) {
	t.Helper()
	dir := t.TempDir()
	disk := filepath.Join(dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(disk, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := volume.Request{Pod: &v1.Pod{}, Spec: localClaim(disk), Place: volume.Place{Dir: filepath.Join(dir, "pods", "pv")}}
	t.Cleanup(func() {
		if err := teardown.Remove(context.Background(), dir, "pods"); err != nil {
			t.Error(err)
		}
		_ = unix.Unmount(disk, unix.MNT_DETACH) // mostly no mount
	})
	return disk, r
}

func mountLocal(t *testing.T, r volume.Request) volume.Mounted {
	t.Helper()
	m, err := LocalVolume{}.Mount(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mountFlagsOf(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return st.Flags
}

// TestAPathOverALink: an administrator may give a disk another name.
func TestAPathOverALink(t *testing.T) {
	disk, r := localDisk(t)
	r.Spec.Persistent.Spec.Local.Path = disk + "-link"
	if err := os.Symlink("disk", disk+"-link"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		mountLocal(t, r)
	}
	if _, err := os.Stat(filepath.Join(r.Dir, "file")); err != nil {
		t.Errorf("it isn't the disk that is mounted: %v", err)
	}
	if list, err := mounts.List(r.Dir); err != nil || len(list) != 1 {
		t.Errorf("mounts in its place: %+v, %v", list, err)
	}
}

func TestOptionsAreFlagsOfTheMount(t *testing.T) {
	disk, r := localDisk(t)
	r.Spec.Persistent.Spec.MountOptions = []string{"noexec", "rw", "nosuid", "noatime"}
	const want = unix.ST_NOEXEC | unix.ST_NOSUID | unix.ST_NOATIME
	if m := mountLocal(t, r); m.ReadOnly || !m.Ownership {
		t.Errorf("it came to %+v", m)
	}
	if got := mountFlagsOf(t, r.Dir); got&want != want || got&unix.ST_RDONLY != 0 {
		t.Errorf("flags %#x, want %#x", got, want)
	}
	if got := mountFlagsOf(t, disk); got&unix.ST_NOEXEC != 0 {
		t.Error("the node's own directory has the option, too")
	}
	// Another reading of the manifest has one more.
	r.Spec.Persistent.Spec.MountOptions = []string{"ro"}
	if m := mountLocal(t, r); !m.ReadOnly || m.Ownership {
		t.Errorf("it came to %+v", m)
	}
	if got := mountFlagsOf(t, r.Dir); got&(want|unix.ST_RDONLY) != want|unix.ST_RDONLY {
		t.Errorf("flags %#x, want %#x and read-only", got, want)
	}
	if err := os.WriteFile(filepath.Join(r.Dir, "more"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("written to a read-only volume: %v", err)
	}
}

// TestRestrictionsOfTheDiskStay: what an administrator forbade on a disk isn't given back.
func TestRestrictionsOfTheDiskStay(t *testing.T) {
	disk, r := localDisk(t)
	if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, ""); err != nil {
		t.Fatal(err)
	}
	r.Spec.Volume.PersistentVolumeClaim.ReadOnly = true
	mountLocal(t, r)
	const want = unix.ST_NODEV | unix.ST_NOSUID | unix.ST_RDONLY
	if got := mountFlagsOf(t, r.Dir); got&want != want {
		t.Errorf("flags %#x, want %#x", got, want)
	}
}

// TestSomethingElseInItsPlace gives way, unless containers may use it.
func TestSomethingElseInItsPlace(t *testing.T) {
	_, r := localDisk(t)
	if err := os.MkdirAll(r.Dir, 0o750); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := unix.Mount("tmpfs", r.Dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(r.Dir, "file")
	r.InUse = true
	mountLocal(t, r)
	if _, err := os.Stat(file); err == nil {
		t.Error("what containers use was unmounted")
	}
	r.InUse = false
	mountLocal(t, r)
	if _, err := os.Stat(file); err != nil {
		t.Errorf("it isn't the volume that is mounted: %v", err)
	}
	if list, err := mounts.List(r.Dir); err != nil || len(list) != 1 {
		t.Errorf("mounts in its place: %+v, %v", list, err)
	}
}

// TestADiskThatIsMountedWhenItIsUsed: what is below it isn't taken for the disk.
func TestADiskThatIsMountedWhenItIsUsed(t *testing.T) {
	disk, r := localDisk(t)
	safeopentest.Automount(t, disk)
	if _, err := (LocalVolume{}).Mount(t.Context(), r); err == nil || !strings.Contains(err.Error(), "does not exist on this node") {
		t.Errorf("it was passed over: %v", err)
	}
}

func TestLocalVolumeErrors(t *testing.T) {
	disk, r := localDisk(t)
	device := filepath.Join(filepath.Dir(disk), "device")
	if err := unix.Mknod(device, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*v1.PersistentVolumeSpec)
		want   string
		never  bool
	}{
		"missing":      {func(s *v1.PersistentVolumeSpec) { s.Local.Path = disk + "/none" }, "/none does not exist on this node", false},
		"a file":       {func(s *v1.PersistentVolumeSpec) { s.Local.Path = disk + "/file" }, "/file isn't a directory", false},
		"a device":     {func(s *v1.PersistentVolumeSpec) { s.Local.Path = device }, "/device is a block device", true},
		"block mode":   {func(s *v1.PersistentVolumeSpec) { s.VolumeMode = ptr.To(v1.PersistentVolumeBlock) }, "volumeMode Block", true},
		"mount option": {func(s *v1.PersistentVolumeSpec) { s.MountOptions = []string{"discard"} }, `"discard"`, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := r
			r.Spec = localClaim(disk)
			c.change(&r.Spec.Persistent.Spec)
			_, err := LocalVolume{}.Mount(t.Context(), r)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "PersistentVolume pv: ") || errors.Is(err, volume.ErrUnsupported) != c.never {
				t.Errorf("got %v, want %q in it; for good: %v", err, c.want, c.never)
			}
			if _, err := os.Lstat(r.Dir); err == nil {
				t.Error("a directory was made")
			}
		})
	}
}
