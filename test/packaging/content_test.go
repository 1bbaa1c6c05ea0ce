package packaging

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/test/docs"
)

// What is installed besides directories, which all are root's with mode 0755.
var files = []string{
	"-rw-r--r-- ./etc/deckhand/config.yaml",
	"-rw-r--r-- ./etc/default/deckhand",
	"-rwxr-xr-x ./usr/bin/deckhand",
	"-rw-r--r-- ./usr/lib/systemd/system/deckhand.service",
	"-rwxr-xr-x ./usr/libexec/deckhand/bridge",
	"-rwxr-xr-x ./usr/libexec/deckhand/containerd",
	"-rwxr-xr-x ./usr/libexec/deckhand/containerd-shim-runc-v2",
	"-rwxr-xr-x ./usr/libexec/deckhand/host-local",
	"-rw-r--r-- ./usr/libexec/deckhand/images/pause.tar",
	"-rwxr-xr-x ./usr/libexec/deckhand/loopback",
	"-rwxr-xr-x ./usr/libexec/deckhand/portmap",
	"-rwxr-xr-x ./usr/libexec/deckhand/runc",
	"-rw-r--r-- ./usr/share/bash-completion/completions/deckhand",
	"-rw-r--r-- ./usr/share/deckhand/examples/clock.yaml",
	"-rw-r--r-- ./usr/share/deckhand/examples/hello.yaml",
	"-rw-r--r-- ./usr/share/deckhand/examples/notes.yaml",
	"-rw-r--r-- ./usr/share/deckhand/examples/web.tar",
	"-rw-r--r-- ./usr/share/doc/deckhand/ARCHITECTURE.md",
	"-rw-r--r-- ./usr/share/doc/deckhand/CHANGELOG.md",
	"-rw-r--r-- ./usr/share/doc/deckhand/CONTRIBUTING.md",
	"-rw-r--r-- ./usr/share/doc/deckhand/SECURITY.md",
	"-rw-r--r-- ./usr/share/doc/deckhand/packaging/README.md",
	"-rw-r--r-- ./usr/share/doc/deckhand/test/conformance/README.md",
	"-rw-r--r-- ./usr/share/doc/deckhand/README.md",
	"-rw-r--r-- ./usr/share/doc/deckhand/UPGRADING.md",
	"-rw-r--r-- ./usr/share/doc/deckhand/changelog.gz",
	"-rw-r--r-- ./usr/share/doc/deckhand/copyright",
	"-rw-r--r-- ./usr/share/doc/deckhand/examples/kubelet.service.d/20-deckhand.conf",
	"-rw-r--r-- ./usr/share/fish/vendor_completions.d/deckhand.fish",
	"-rw-r--r-- ./usr/share/zsh/vendor-completions/_deckhand",
}

// contents are the lines of a listing as tar -tv prints it, without directories.
func contents(t *testing.T, listing, top string) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(listing) {
		f := strings.Fields(line) // mode, owner, size, date, time, path
		if len(f) != 6 || f[1] != "root/root" && f[1] != "0/0" {
			t.Errorf("%q isn't root's", line)
			continue
		}
		path := "./" + strings.TrimPrefix(strings.TrimPrefix(f[5], top), "/")
		if !strings.HasSuffix(path, "/") {
			out = append(out, f[0]+" "+path)
		} else if f[0] != "drwxr-xr-x" {
			t.Errorf("%s has mode %s", path, f[0])
		}
	}
	slices.SortFunc(out, func(a, b string) int { return strings.Compare(a[11:], b[11:]) })
	return out
}

func TestContents(t *testing.T) {
	files := slices.Clone(files)
	documents, err := docs.Documents(checkout("."))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range documents {
		if strings.HasPrefix(file, "docs/") {
			files = append(files, "-rw-r--r-- ./usr/share/doc/deckhand/"+file)
		}
	}
	slices.SortFunc(files, func(a, b string) int { return strings.Compare(a[11:], b[11:]) })
	archive := file(t, older, ".tar.gz")
	for what, got := range map[string][]string{
		"package": contents(t, output(t, "dpkg-deb", "--contents", file(t, older, ".deb")), "."),
		"tar.gz":  contents(t, output(t, "tar", "-tvzf", archive), strings.TrimSuffix(filepath.Base(archive), ".tar.gz")),
	} {
		if !slices.Equal(got, files) {
			t.Errorf("the %s has:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(files, "\n"))
		}
	}
	if !strings.Contains(output(t, "dpkg-deb", "--contents", file(t, older, ".deb")), " ./etc/deckhand/manifests/\n") {
		t.Error("there is no directory for manifests")
	}
	check := exec.Command("sha256sum", "--strict", "--check", "SHA256SUMS")
	check.Dir = older
	if text, err := check.CombinedOutput(); err != nil || strings.Count(string(text), ": OK\n") != 2 {
		t.Errorf("%v: %s", err, text)
	}
}

func TestControl(t *testing.T) {
	deb := file(t, older, ".deb")
	field := func(name string) string { return strings.TrimSpace(output(t, "dpkg-deb", "--field", deb, name)) }
	for name, want := range map[string]string{"Package": "deckhand", "Version": "1.2.3~rc.1+4.gabc1234"} {
		if got := field(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for _, need := range []string{"libc6 (>= ", "libseccomp2 (>= ", "nftables | iptables"} {
		if got := field("Depends"); !strings.Contains(got, need) {
			t.Errorf("it depends on %q, without %q", got, need)
		}
	}
	output(t, "dpkg", "--compare-versions", field("Version"), "lt", strings.TrimSpace(output(t, "dpkg-deb", "--field", file(t, newer, ".deb"), "Version")))
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		output(t, "sh", "-n", checkout("packaging/debian/"+script))
	}
}

// The same commit gives the same bytes, whoever builds it: another umask, language and time zone.
func TestTwoBuildsAreTheSame(t *testing.T) {
	again := t.TempDir()
	cmd := exec.Command("sh", "-c", `umask 077 && exec "$@"`, "sh", checkout("packaging/build.sh"), checkout("bin"), again)
	cmd.Env = append(os.Environ(), "FAST=1", "VERSION="+version, "TZ=Asia/Tokyo", "LC_ALL=C.UTF-8")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if first, second := read(t, older+"/SHA256SUMS"), read(t, again+"/SHA256SUMS"); first != second {
		t.Errorf("first:\n%ssecond:\n%s", first, second)
	}
}

func TestLicences(t *testing.T) {
	root := t.TempDir()
	output(t, "dpkg-deb", "--extract", file(t, older, ".deb"), root)
	text := read(t, filepath.Join(root, "usr/share/doc/deckhand/copyright"))
	// From several programs; one that is part of another module; the standard library's.
	for _, words := range []string{
		"github.com/containerd/containerd/v2 v", "github.com/opencontainers/runc v", "github.com/containernetworking/plugins v", "k8s.io/cri-api v",
		"github.com/seccomp/libseccomp-golang v", "zstd/internal/xxhash/LICENSE.txt\n", "Go's runtime and standard library, LICENSE\n", "Apache License",
	} {
		if !strings.Contains(text, words) {
			t.Errorf("nothing is said of %q", words)
		}
	}
}

func TestVersions(t *testing.T) {
	for dir, want := range map[string]string{older: version, newer: newerVersion} {
		root := t.TempDir()
		output(t, "dpkg-deb", "--extract", file(t, dir, ".deb"), root)
		got := output(t, filepath.Join(root, "usr/bin/deckhand"), "version", "--client")
		if !strings.Contains(got, " "+want+" ") || !strings.Contains(got, runtime.Version()) {
			t.Errorf("it says %q, want %s", got, want)
		}
	}
}

func TestCompletion(t *testing.T) {
	root := t.TempDir()
	output(t, "dpkg-deb", "--extract", file(t, older, ".deb"), root)
	if got := output(t, "bash", "-c", fmt.Sprintf("source %s/usr/share/bash-completion/completions/deckhand; complete -p deckhand", root)); got != "complete -o default -F __start_deckhand deckhand\n" {
		t.Errorf("bash completes with %q", got)
	}
	// What the scripts of all shells ask for.
	if got := output(t, filepath.Join(root, "usr/bin/deckhand"), "__complete", "lo"); !strings.HasPrefix(got, "logs\t") {
		t.Errorf("lo is completed to %q", got)
	}
	for path, want := range map[string]string{"zsh/vendor-completions/_deckhand": "#compdef deckhand\n", "fish/vendor_completions.d/deckhand.fish": "# fish completion for deckhand "} {
		if text := read(t, filepath.Join(root, "usr/share", path)); !strings.HasPrefix(text, want) || !strings.Contains(text, "__complete") {
			t.Errorf("%s begins with %.80q", path, text)
		}
	}
}
