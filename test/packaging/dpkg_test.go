package packaging

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// host is a directory that dpkg takes for a whole machine.
type host struct {
	t    *testing.T
	root string
}

func newHost(t *testing.T) host {
	t.Helper()
	h := host{t, t.TempDir()}
	for _, dir := range []string{"info", "updates"} {
		if err := os.MkdirAll(h.path("var/lib/dpkg", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.write("var/lib/dpkg/status", "")
	h.write("var/lib/dpkg/available", "")
	return h
}

func (h host) path(elem ...string) string {
	return filepath.Join(append([]string{h.root}, elem...)...)
}

func (h host) write(path, text string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.path(path)), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.path(path), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h host) has(path string) bool {
	_, err := os.Lstat(h.path(path))
	return err == nil
}

// dpkg runs dpkg on this machine alone; the packages that deckhand needs aren't on it.
func (h host) dpkg(args ...string) string {
	h.t.Helper()
	return output(h.t, "dpkg", append([]string{"--root=" + h.root, "--force-script-chrootless", "--force-depends"}, args...)...)
}

// purge runs the script of a purge on this machine alone.
func (h host) purge() string {
	h.t.Helper()
	return output(h.t, "env", "DPKG_ROOT="+h.root, "DPKG_MAINTSCRIPT_PACKAGE=deckhand", "sh", checkout("packaging/debian/postrm"), "purge")
}

// files lists everything but dpkg's own.
func (h host) files() (list []string) {
	h.t.Helper()
	err := filepath.WalkDir(h.root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == h.path("var/lib/dpkg"), path == h.path("var/log"):
			return fs.SkipDir
		}
		list = append(list, strings.TrimPrefix(path, h.root))
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return list
}

func TestFromInstallationToPurge(t *testing.T) {
	h := newHost(t)
	before := h.files()
	if said := h.dpkg("--install", file(t, older, ".deb")); !strings.Contains(said, "systemctl enable --now deckhand") {
		t.Errorf("the output doesn't say how to start it:\n%s", said)
	}
	if text := output(t, h.path("usr/bin/deckhand"), "version", "--client"); !strings.Contains(text, version) {
		t.Errorf("it is %s", text)
	}
	if text := h.dpkg("--verify", "deckhand"); text != "" {
		t.Errorf("dpkg finds changed:\n%s", text)
	}
	const edited = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 7\n"
	h.write("etc/deckhand/config.yaml", edited)
	h.write("etc/deckhand/manifests/web.yaml", "mine")
	h.write("var/lib/deckhand/.deckhand", "")
	h.write("var/lib/deckhand/footprint.json", "{}")

	if said := h.dpkg("--install", file(t, newer, ".deb")); strings.Contains(said, "run on without it") || strings.Contains(said, "enable") {
		t.Errorf("an upgrade says:\n%s", said)
	}
	if text := output(t, h.path("usr/bin/deckhand"), "version", "--client"); !strings.Contains(text, newerVersion) {
		t.Errorf("upgraded, it is %s", text)
	}
	if got := read(t, h.path("etc/deckhand/config.yaml")); got != edited {
		t.Errorf("the configuration was replaced:\n%s", got)
	}
	if said := h.dpkg("--remove", "deckhand"); !strings.Contains(said, "deckhand reset") {
		t.Errorf("the output doesn't say that pods run on:\n%s", said)
	}
	for _, path := range []string{"etc/deckhand/config.yaml", "etc/deckhand/manifests/web.yaml", "var/lib/deckhand/footprint.json"} {
		if !h.has(path) {
			t.Errorf("removed with the program: %s", path)
		}
	}
	h.dpkg("--purge", "deckhand")
	if !h.has("etc/deckhand/manifests/web.yaml") {
		t.Error("an administrator's manifest was purged")
	}
	if err := os.RemoveAll(h.path("etc/deckhand/manifests")); err != nil {
		t.Fatal(err)
	}
	left := slices.DeleteFunc(h.files(), func(path string) bool {
		// Directories of others, which every machine has, and that of the manifest that was left.
		return slices.Contains(before, path) || slices.Contains([]string{"/etc", "/etc/deckhand", "/var/lib/systemd"}, path)
	})
	if len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// What is mounted below the root directory, or runs from there, isn't deleted under its user.
func TestPurgeKeepsWhatIsInUse(t *testing.T) {
	const state = "var/lib/deckhand"
	h := newHost(t)
	h.write(state+"/pods/precious", "")
	if h.purge(); !h.has(state + "/pods/precious") {
		t.Error("a directory that deckhand didn't make was purged")
	}
	h.write(state+"/.deckhand", "")

	mount := h.path(state, "pods")
	if err := unix.Mount("deckhand-test", mount, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	unmount := func() error { return unix.Unmount(mount, unix.MNT_DETACH) }
	t.Cleanup(func() { _ = unmount() }) // in case the test ends early
	if said := h.purge(); !h.has(state+"/.deckhand") || !strings.Contains(said, "deckhand reset") {
		t.Errorf("something was mounted there, and it says %q", said)
	}
	if err := unmount(); err != nil {
		t.Fatal(err)
	}

	// It stands in for containerd, which is known by its command line.
	containerd := exec.Command("sh", "-c", "read -r line", "sh", h.path(state, "containerd/config.toml"))
	stop, err := containerd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := containerd.Start(); err != nil {
		t.Fatal(err)
	}
	if said := h.purge(); !h.has(state+"/.deckhand") || !strings.Contains(said, "deckhand reset") {
		t.Errorf("something ran there, and it says %q", said)
	}
	if err := stop.Close(); err != nil {
		t.Fatal(err)
	}
	_ = containerd.Wait() // its read failed, as it was to
	if said := h.purge(); h.has(state) || said != "" {
		t.Errorf("nothing was in use, and it says %q", said)
	}
}

// The agent binds its directory on itself where it isn't shared. Its real path is in the mount table, also where /var is a link.
func TestPurgeUnmountsTheBind(t *testing.T) {
	h := host{t, t.TempDir()}
	h.write("data/var/lib/deckhand/.deckhand", "")
	if err := os.Symlink("data/var", h.path("var")); err != nil {
		t.Fatal(err)
	}
	state := h.path("data/var/lib/deckhand")
	if err := unix.Mount(state, state, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(state, unix.MNT_DETACH) }) // in case the test fails
	h.write("data/var/lib/deckhand/pods/file", "")
	if err := unix.Mount("deckhand-test", h.path("data/var/lib/deckhand/pods"), "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(state, "pods"), unix.MNT_DETACH) })
	if said := h.purge(); !h.has("var/lib/deckhand/.deckhand") || !strings.Contains(said, "deckhand reset") {
		t.Errorf("something was mounted there, and it says %q", said)
	}
	if err := unix.Unmount(filepath.Join(state, "pods"), 0); err != nil {
		t.Fatal(err)
	}
	if said := h.purge(); h.has("var/lib/deckhand") || said != "" {
		t.Errorf("nothing was in use, and it says %q", said)
	}
}

var example = regexp.MustCompile(`(?m)^#(\w+: )`)

// The unit's command line takes the configuration that comes with it, also with its examples.
func TestConfiguration(t *testing.T) {
	root := t.TempDir()
	output(t, "dpkg-deb", "--extract", file(t, older, ".deb"), root)
	start := options(t, filepath.Join(root, "usr/lib/systemd/system/deckhand.service"))["Service.ExecStart"]
	fields := strings.Fields(start)
	if len(fields) < 2 || fields[0] != "/usr/bin/deckhand" || fields[len(fields)-1] != "$DECKHAND_ARGS" {
		t.Fatalf("the unit runs %q", start)
	}
	config := filepath.Join(root, "etc/deckhand/config.yaml")
	args := slices.Clone(fields[1 : len(fields)-1])
	at := slices.Index(args, "--config=/etc/deckhand/config.yaml")
	if at < 0 || !slices.Contains(args, "--root-dir=/var/lib/deckhand") {
		t.Fatalf("the unit runs %q", start)
	}
	args[at] = "--config=" + config
	// A mistake, so that the agent ends after it has logged all that is wrong.
	args = append(args, "--node-ip=nowhere")
	asItIs := read(t, config)
	withExamples := example.ReplaceAllString(asItIs, "$1")
	if asItIs == withExamples {
		t.Error("the configuration has no examples")
	}
	for what, tc := range map[string]struct {
		text string
		good bool
	}{"as it is": {asItIs, true}, "with all its examples": {withExamples, true}, "with a mistake": {asItIs + "maxPots: 3\n", false}} {
		if err := os.WriteFile(config, []byte(tc.text), 0o644); err != nil {
			t.Fatal(err)
		}
		said, err := try(filepath.Join(root, fields[0]), args...)
		if err == nil || !strings.Contains(said, "--node-ip") {
			t.Fatalf("%s: the mistake in a flag wasn't reported: %v, %s", what, err, said)
		}
		if good := !strings.Contains(said, "config.yaml"); good != tc.good {
			t.Errorf("%s: %s", what, said)
		}
	}
}
