package hostpath

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/volume"
)

func request(path string, kind *v1.HostPathType) volume.Request {
	return volume.Request{Volume: &v1.Volume{VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: kind}}}}
}

// things makes one of each kind of thing, and returns their paths.
func things(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	paths := map[string]string{}
	add := func(kind string, make func(path string) error) {
		paths[kind] = filepath.Join(dir, kind)
		if err := make(paths[kind]); err != nil {
			t.Fatalf("%s: %v (this test makes devices: run it as root)", kind, err)
		}
	}
	add("dir", func(p string) error { return os.Mkdir(p, 0o700) })
	add("file", func(p string) error { return os.WriteFile(p, nil, 0o600) })
	add("fifo", func(p string) error { return unix.Mkfifo(p, 0o600) })
	add("char", func(p string) error { return unix.Mknod(p, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) })
	add("block", func(p string) error { return unix.Mknod(p, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))) })
	add("link-to-dir", func(p string) error { return os.Symlink(paths["dir"], p) })
	add("link-to-nowhere", func(p string) error { return os.Symlink("nowhere", p) })
	add("socket", func(p string) error {
		l, err := net.Listen("unix", p)
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
		return err
	})
	paths["missing"] = filepath.Join(dir, "missing")
	return paths
}

func TestTypes(t *testing.T) {
	accepted := map[v1.HostPathType][]string{
		v1.HostPathDirectoryOrCreate: {"dir", "link-to-dir", "missing"},
		v1.HostPathDirectory:         {"dir", "link-to-dir"},
		v1.HostPathFileOrCreate:      {"file", "missing"},
		v1.HostPathFile:              {"file"},
		v1.HostPathSocket:            {"socket"},
		v1.HostPathCharDev:           {"char"},
		v1.HostPathBlockDev:          {"block"},
		v1.HostPathUnset:             {"dir", "file", "fifo", "char", "block", "link-to-dir", "link-to-nowhere", "socket", "missing"},
	}
	for kind, want := range accepted {
		paths := things(t)
		for name, path := range paths {
			err := Plugin{}.Prepare(t.Context(), request(path, ptr.To(kind)))
			ok := false
			for _, w := range want {
				ok = ok || w == name
			}
			if (err == nil) != ok {
				t.Errorf("type %q with %s: %v", kind, name, err)
			}
		}
		st, err := os.Lstat(paths["missing"])
		switch kind {
		case v1.HostPathDirectoryOrCreate:
			if err != nil || st.Mode() != fs.ModeDir|0o755 {
				t.Errorf("the folder made: %v, %v", st, err)
			}
		case v1.HostPathFileOrCreate:
			if err != nil || st.Mode() != 0o644 || st.Size() != 0 {
				t.Errorf("the file made: %v, %v", st, err)
			}
		default:
			if err == nil {
				t.Errorf("type %q made something", kind)
			}
		}
	}
	if err := (Plugin{}).Prepare(t.Context(), request("/nowhere", nil)); err != nil {
		t.Errorf("without a type: %v", err)
	}
}

func TestMadeWithTheirModesWhateverTheUmask(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	dir := t.TempDir()
	deep, file := filepath.Join(dir, "a", "b"), filepath.Join(dir, "file")
	for path, kind := range map[string]v1.HostPathType{deep: v1.HostPathDirectoryOrCreate, file: v1.HostPathFileOrCreate} {
		if err := (Plugin{}).Prepare(t.Context(), request(path, &kind)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]fs.FileMode{deep: fs.ModeDir | 0o755, file: 0o644} {
		if st, err := os.Stat(path); err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", path, st.Mode(), err, want)
		}
	}
	if err := (Plugin{}).Prepare(t.Context(), request(filepath.Join(dir, "none", "file"), ptr.To(v1.HostPathFileOrCreate))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("FileOrCreate made the folder, too: %v", err)
	}
}

func TestUnknownTypeIsPermanent(t *testing.T) {
	err := Plugin{}.Prepare(t.Context(), request("/", ptr.To(v1.HostPathType("Tape"))))
	if !errors.Is(err, volume.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}
