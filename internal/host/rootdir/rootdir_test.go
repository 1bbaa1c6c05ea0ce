package rootdir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/runtime/userns"
)

// modes are what a kubelet 1.36.3 was seen to make, but for the root itself (0750).
var modes = map[string]fs.FileMode{
	".":                0o751,
	"pods":             0o750,
	"plugins":          0o750,
	"plugins_registry": 0o750,
	"pod-resources":    0o750,
	"device-plugins":   0o750,
	"checkpoints":      0o700,
	"pki":              0o755,
}

func newLayout(t *testing.T) rootdir.Layout {
	t.Helper()
	l, err := rootdir.New(filepath.Join(t.TempDir(), "var", "root"), "")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustMake(t *testing.T, l rootdir.Layout) {
	t.Helper()
	if err := l.Make(); err != nil {
		t.Fatal(err)
	}
}

// mode is what ls shows, with the bits beyond rwx.
func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !info.IsDir() {
		t.Errorf("%s is no directory", path)
	}
	return info.Mode() &^ fs.ModeDir
}

func TestMake(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077} {
		l := newLayout(t)
		before := unix.Umask(umask)
		err := errors.Join(l.Make(), l.Make())
		unix.Umask(before)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range modes {
			if got := mode(t, filepath.Join(l.Root, name)); got != want {
				t.Errorf("umask %04o: %s has %04o, want %04o", umask, name, got, want)
			}
		}
		entries, err := os.ReadDir(l.Root)
		if err != nil || len(entries) != len(modes)-1 {
			t.Errorf("made %v, %v", entries, err)
		}
	}
}

func TestNames(t *testing.T) {
	l, err := rootdir.New("/var/lib/kubelet/", "/etc/pki/kubelet")
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		l.Root: "/var/lib/kubelet", l.Certs: "/etc/pki/kubelet", l.Pods(): "/var/lib/kubelet/pods",
		l.Plugins(): "/var/lib/kubelet/plugins", l.PluginsRegistry(): "/var/lib/kubelet/plugins_registry",
		l.PodResources(): "/var/lib/kubelet/pod-resources", l.DevicePlugins(): "/var/lib/kubelet/device-plugins",
		l.Checkpoints(): "/var/lib/kubelet/checkpoints",
	} {
		if got != want {
			t.Errorf("%s instead of %s", got, want)
		}
	}
	for _, c := range [][2]string{{"relative", ""}, {"/", ""}, {"/x", "pki"}, {"/x", "/.."}} {
		if _, err := rootdir.New(c[0], c[1]); err == nil {
			t.Errorf("%q is accepted", c)
		}
	}
}

// What is there keeps its mode, as long as only its owner can write to it.
func TestExistingDirs(t *testing.T) {
	for name, c := range map[string]struct{ before, after fs.FileMode }{
		"closed further": {0o700, 0o700},
		"readable":       {0o755, 0o755},
		"group writes":   {0o770 | fs.ModeSetgid, 0o750 | fs.ModeSetgid},
		"all write":      {0o777 | fs.ModeSticky, 0o755 | fs.ModeSticky},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLayout(t)
			mustMake(t, l)
			kept := filepath.Join(l.Plugins(), "kept")
			if err := os.WriteFile(kept, nil, 0o666); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(l.Plugins(), c.before); err != nil {
				t.Fatal(err)
			}
			mustMake(t, l)
			if got := mode(t, l.Plugins()); got != c.after {
				t.Errorf("%v has become %v, want %v", c.before, got, c.after)
			}
			if _, err := os.Stat(kept); err != nil {
				t.Error(err)
			}
		})
	}
	l := newLayout(t)
	mustMake(t, l)
	if err := os.Chmod(l.Root, 0o700); err != nil {
		t.Fatal(err)
	}
	mustMake(t, l)
	if got := mode(t, l.Root); got != 0o700 {
		t.Errorf("the root was loosened to %04o", got)
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(l rootdir.Layout) error
		want  []string
	}{
		"file":                {func(l rootdir.Layout) error { return os.WriteFile(l.Plugins(), nil, 0o600) }, []string{"/plugins: ", "isn't a directory"}},
		"socket":              {func(l rootdir.Layout) error { return unix.Mkfifo(l.PodResources(), 0o600) }, []string{"/pod-resources: ", "isn't a directory"}},
		"link to a directory": {func(l rootdir.Layout) error { return os.Symlink("/tmp", l.Plugins()) }, []string{"/plugins: ", "symbolic link", "mount --bind"}},
		"link to nowhere":     {func(l rootdir.Layout) error { return os.Symlink("/nowhere", l.Pods()) }, []string{"/pods: ", "symbolic link"}},
		"two at once": {func(l rootdir.Layout) error {
			return errors.Join(os.WriteFile(l.Plugins(), nil, 0o600), os.WriteFile(l.Certs, nil, 0o600))
		}, []string{"/plugins: ", "--cert-dir"}},
		"another's": {func(l rootdir.Layout) error {
			return errors.Join(os.Mkdir(l.Pods(), 0o755), os.Chown(l.Pods(), 12345, 0))
		}, []string{"/pods: ", "the user 12345", "chown root"}},
		"root another's": {func(l rootdir.Layout) error { return os.Chown(l.Root, 12345, 0) }, []string{"--root-dir", "the user 12345"}},
		"root shared":    {func(l rootdir.Layout) error { return os.Chmod(l.Root, 0o777|fs.ModeSticky) }, []string{"--root-dir", "0777", "chmod go-w"}},
		"certificates shared": {func(l rootdir.Layout) error {
			return errors.Join(os.Mkdir(l.Certs, 0o755), os.Chmod(l.Certs, 0o775))
		}, []string{"--cert-dir", "0775"}},
		"root a file": {func(l rootdir.Layout) error {
			return errors.Join(os.Remove(l.Root), os.WriteFile(l.Root, nil, 0o600))
		}, []string{"--root-dir", "isn't a directory"}},
		"root in a file": {func(l rootdir.Layout) error {
			return errors.Join(os.RemoveAll(filepath.Dir(l.Root)), os.WriteFile(filepath.Dir(l.Root), nil, 0o600))
		}, []string{"--root-dir", "not a directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLayout(t)
			if err := os.MkdirAll(l.Root, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := c.spoil(l); err != nil {
				t.Fatal(err)
			}
			err := l.Make()
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("says %v, not %q", err, want)
				}
			}
		})
	}
}

// What a planted link leads to isn't changed, not even when it looks as if it should be.
func TestLinkIsNotFollowed(t *testing.T) {
	l := newLayout(t)
	mustMake(t, l)
	target := t.TempDir()
	if err := errors.Join(os.Chmod(target, 0o777), os.Remove(l.Plugins()), os.Symlink(target, l.Plugins())); err != nil {
		t.Fatal(err)
	}
	if err := l.Make(); err == nil {
		t.Error("a link is taken for a directory")
	}
	if got := mode(t, target); got != 0o777 {
		t.Errorf("the link's target was changed to %04o", got)
	}
}

// People move the kubelet's directory to another disk by a link.
func TestNamedDirsMayBeLinks(t *testing.T) {
	disk := t.TempDir()
	l := newLayout(t)
	certificates := filepath.Join(disk, "certificates")
	if err := errors.Join(
		os.Mkdir(filepath.Dir(l.Root), 0o755), os.Mkdir(filepath.Join(disk, "root"), 0o755), os.Symlink(filepath.Join(disk, "root"), l.Root),
		os.Mkdir(certificates, 0o750), os.Symlink(certificates, l.Certs),
	); err != nil {
		t.Fatal(err)
	}
	mustMake(t, l)
	if got := mode(t, filepath.Join(disk, "root", "checkpoints")); got != 0o700 {
		t.Errorf("checkpoints has %04o", got)
	}
	if got := mode(t, certificates); got != 0o750 {
		t.Errorf("the directory of certificates was changed to %04o", got)
	}
}

// The embedded runtime's marker and pods with user namespaces go on working, whoever
// makes the root directory.
func TestWithTheEmbeddedRuntime(t *testing.T) {
	// Not t.TempDir: the test's own directory lets nobody through.
	base, err := os.MkdirTemp("/var/lib", "deckhand-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, claimed := range map[string]bool{"claimed": true, "not claimed": false} {
		t.Run(name, func(t *testing.T) {
			l, err := rootdir.New(filepath.Join(base, name), "")
			if err != nil {
				t.Fatal(err)
			}
			runtime, err := rootdir.NewRuntime(l.Root)
			if err != nil {
				t.Fatal(err)
			}
			if claimed {
				if err := runtime.Claim(); err != nil {
					t.Fatal(err)
				}
			}
			mustMake(t, l)
			if runtime.Claimed() != claimed {
				t.Errorf("claimed: %v", runtime.Claimed())
			}
			if err := userns.Reach(l.Root); err != nil {
				t.Error(err)
			}
			for _, private := range []string{l.Pods(), l.Checkpoints(), l.Plugins()} {
				if userns.Reach(private) == nil {
					t.Errorf("others get into %s", private)
				}
			}
		})
	}
}
