package plugins

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/volumetest"
)

func hostPathSpec(path string, kind *v1.HostPathType) volume.Spec {
	source := &v1.HostPathVolumeSource{Path: path, Type: kind}
	return volume.Spec{Volume: &v1.Volume{Name: "node", VolumeSource: v1.VolumeSource{HostPath: source}}}
}

// claimed is a claim that is bound to a PersistentVolume with this source.
func claimed(source v1.PersistentVolumeSource) volume.Spec {
	pv := &v1.PersistentVolume{}
	pv.Name, pv.Spec.PersistentVolumeSource = "pv", source
	claim := &v1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}
	return volume.Spec{
		Volume: &v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: claim}},
		Claim:  &v1.PersistentVolumeClaim{}, Persistent: pv,
	}
}

func hostPathClaim(path string, kind *v1.HostPathType) volume.Spec {
	return claimed(v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: kind}})
}

func mountHostPath(t *testing.T, path string, kind *v1.HostPathType) error {
	t.Helper()
	m, err := HostPath{}.Mount(t.Context(), volume.Request{Spec: hostPathSpec(path, kind)})
	if err == nil && (m.Path != path || m.ReadOnly || m.Ownership) {
		t.Errorf("it came to %+v", m)
	}
	return err
}

func TestHostPathContract(t *testing.T) {
	created := ptr.To(v1.HostPathDirectoryOrCreate)
	for name, of := range map[string]func(string, *v1.HostPathType) volume.Spec{"of a pod": hostPathSpec, "of a PersistentVolume": hostPathClaim} {
		t.Run(name, func(t *testing.T) {
			volumetest.Run(t, volumetest.Case{
				Plugin:   HostPath{},
				Spec:     func(host string) volume.Spec { return of(filepath.Join(host, "a", "b"), created) },
				Writable: true, Outlives: true, Elsewhere: true, IgnoresGroup: true,
			})
		})
	}
	t.Run("without a type", func(t *testing.T) {
		volumetest.Run(t, volumetest.Case{
			Plugin: HostPath{},
			Spec:   func(host string) volume.Spec { return hostPathSpec(host, nil) },
			Prepare: func(host string) error {
				return os.WriteFile(filepath.Join(host, "file"), []byte("the node's"), 0o600)
			},
			Want:     map[string]string{"file": "the node's"},
			Writable: true, Outlives: true, Elsewhere: true, IgnoresGroup: true, Stepless: true,
		})
	})
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
			if err := mountHostPath(t, path, ptr.To(kind)); (err == nil) != slices.Contains(want, name) {
				t.Errorf("type %q with %s: %v", kind, name, err)
			}
		}
		if _, err := os.Lstat(filepath.Join(filepath.Dir(paths["dir"]), "nowhere")); err == nil {
			t.Errorf("type %q made something through a link", kind)
		}
		st, err := os.Lstat(paths["missing"])
		switch kind {
		case v1.HostPathDirectoryOrCreate:
			if err != nil || st.Mode() != fs.ModeDir|0o755 {
				t.Errorf("the directory made: %v, %v", st, err)
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
	if err := mountHostPath(t, "/nowhere", nil); err != nil {
		t.Errorf("without a type: %v", err)
	}
}

// What was mounted once is checked again before each start of a container (kubernetes/kubernetes#128814): it may be gone, or something else.
func TestRecheckOfAHostPath(t *testing.T) {
	for kind, thing := range map[v1.HostPathType]string{
		v1.HostPathDirectoryOrCreate: "dir", v1.HostPathDirectory: "dir", v1.HostPathFileOrCreate: "file", v1.HostPathFile: "file",
		v1.HostPathSocket: "socket", v1.HostPathCharDev: "char", v1.HostPathBlockDev: "block",
	} {
		for name, of := range map[string]func(string, *v1.HostPathType) volume.Spec{"pod": hostPathSpec, "PersistentVolume": hostPathClaim} {
			t.Run(string(kind)+" of a "+name, func(t *testing.T) {
				paths := things(t)
				path, spec := paths[thing], of(paths[thing], &kind)
				makes := strings.HasSuffix(string(kind), "OrCreate")
				recheck := func() error { return HostPath{}.Recheck(t.Context(), spec) }
				if err := recheck(); err != nil {
					t.Fatal(err)
				}
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				err := recheck()
				if makes != (err == nil) || err != nil && !strings.Contains(err.Error(), "does not exist, and type "+string(kind)+" makes nothing: put it there") {
					t.Errorf("it is gone: %v", err)
				}
				if _, err := os.Lstat(path); makes != (err == nil) {
					t.Errorf("something was made, or not: %v", err)
				}
				_ = os.Remove(path) // what was made
				other := unix.Mkfifo(path, 0o600)
				if err := recheck(); other != nil || err == nil || !strings.Contains(err.Error(), "is a named pipe, and type "+string(kind)+" wants ") {
					t.Errorf("something else is there: %v, %v", other, err)
				}
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(things(t)[thing], path); err != nil {
					t.Fatal(err)
				}
				if err := recheck(); err != nil {
					t.Errorf("it is back: %v", err)
				}
			})
		}
	}
	if err := (HostPath{}).Recheck(t.Context(), hostPathSpec("/nowhere", nil)); err != nil {
		t.Errorf("without a type: %v", err)
	}
}

func TestMadeWithTheirModesWhateverTheUmask(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	dir := t.TempDir()
	deep, file := filepath.Join(dir, "a", "b")+"/", filepath.Join(dir, "file")
	for path, kind := range map[string]v1.HostPathType{deep: v1.HostPathDirectoryOrCreate, file: v1.HostPathFileOrCreate} {
		if err := mountHostPath(t, path, &kind); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]fs.FileMode{deep: fs.ModeDir | 0o755, file: 0o644} {
		if st, err := os.Stat(path); err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", path, st.Mode(), err, want)
		}
	}
	if err := mountHostPath(t, filepath.Join(dir, "none", "file"), ptr.To(v1.HostPathFileOrCreate)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("FileOrCreate made the directory, too: %v", err)
	}
}

func TestHostPathErrors(t *testing.T) {
	paths := things(t)
	for _, c := range []struct {
		thing string
		kind  v1.HostPathType
		want  string
	}{
		{"file", v1.HostPathDirectory, "file is a regular file, and type Directory wants a directory"},
		{"dir", v1.HostPathFileOrCreate, "dir is a directory, and type FileOrCreate wants a regular file"},
		{"fifo", v1.HostPathSocket, "fifo is a named pipe, and type Socket wants a UNIX socket"},
		{"char", v1.HostPathBlockDev, "char is a character device, and type BlockDevice wants a block device"},
		{"block", v1.HostPathCharDev, "block is a block device, and type CharDevice wants a character device"},
		{"socket", v1.HostPathFile, "socket is a UNIX socket, and type File wants a regular file"},
		{"missing", v1.HostPathDirectory, "missing does not exist, and type Directory makes nothing"},
		{"link-to-nowhere", v1.HostPathFile, "link-to-nowhere is a link to nowhere, which does not exist"},
		{"link-to-nowhere", v1.HostPathFileOrCreate, "nothing is made through a link"},
		{"link-to-nowhere", v1.HostPathDirectoryOrCreate, "nothing is made through a link"},
	} {
		if err := mountHostPath(t, paths[c.thing], &c.kind); err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, volume.ErrUnsupported) {
			t.Errorf("type %s with %s: %v, want %q in it", c.kind, c.thing, err, c.want)
		}
	}
}

func TestWhatNobodyCanDo(t *testing.T) {
	block, options := hostPathClaim("/", nil), hostPathClaim("/", nil)
	block.Persistent.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
	options.Persistent.Spec.MountOptions = []string{"noexec"}
	for want, s := range map[string]volume.Spec{
		`"Tape"`:                          hostPathSpec("/", ptr.To(v1.HostPathType("Tape"))),
		`"here"`:                          hostPathSpec("here", nil),
		"PersistentVolume pv: volumeMode": block,
		"mountOptions":                    options,
	} {
		_, err := HostPath{}.Mount(t.Context(), volume.Request{Spec: s})
		if !errors.Is(err, volume.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

func TestAReadOnlyClaim(t *testing.T) {
	s := hostPathClaim(t.TempDir(), nil)
	s.Volume.PersistentVolumeClaim.ReadOnly = true
	if m, err := (HostPath{}).Mount(t.Context(), volume.Request{Spec: s}); err != nil || !m.ReadOnly {
		t.Errorf("%+v, %v", m, err)
	}
}
