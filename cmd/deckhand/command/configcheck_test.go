package command

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/kit/goldentest"
)

// checkFile runs `deckhand config check` in the directory of a file, and returns all it prints
// with its exit code. The files that it names are of another machine.
func checkFile(t *testing.T, name string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	deps := Deps{RootDir: "/var/lib/deckhand", Getenv: func(string) string { return "" }}
	code := Main(t.Context(), append([]string{"config", "check", "--skip-files", name}, args...), "deckhand", nil, &out, &out, deps)
	return fmt.Sprintf("%sexit code %d\n", &out, code)
}

const configHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// unreadable are bad files that are no text, or too much of it, to be kept as such.
func unreadable() map[string]string {
	return map[string]string{
		"gzip.yaml":          "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
		"program.yaml":       "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00",
		"latin-1.yaml":       configHead + "clusterDomain: caf\xe9.example\n",
		"nul.yaml":           configHead + "maxPods: 110\n\x00\x00\x00\x00",
		"windows.yaml":       "\ufeff" + strings.ReplaceAll(configHead+"maxPods: -1\nlogging:\n\tformat: json\n", "\n", "\r\n"),
		"windows-types.yaml": "\ufeff" + strings.ReplaceAll(configHead+"maxPods: -1\nmaxpods: 1\n", "\n", "\r\n"),
		"empty.yaml":         "",
		"blank.yaml":         "\n\n---\n",
		"too-large.yaml":     configHead + "clusterDNS:\n" + strings.Repeat("- 10.96.0.10\n", 1<<17),
		"too-many.yaml":      configHead + "clusterDNS: [" + strings.Repeat("1.1.1.1,", 30_000) + "]\n",
		"alias-bomb.yaml":    configHead + aliasBomb(),
		"deep.yaml":          configHead + "tracing: " + strings.Repeat("{endpoint: ", 20_000),
		"deep-lists.yaml":    configHead + "clusterDNS: " + strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000) + "\n",
		"long-line.yaml":     configHead + "clusterDomain: " + strings.Repeat("x", 1<<19) + "\n",
	}
}

// aliasBomb is a few lines that stand for ten billion values.
func aliasBomb() string {
	var b strings.Builder
	b.WriteString("allowedUnsafeSysctls:\n- &a0 [net.core.somaxconn]\n")
	for i := range 10 {
		fmt.Fprintf(&b, "- &a%d [%s]\n", i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 10))
	}
	b.WriteString("clusterDNS: *a10\n")
	return b.String()
}

// TestCheckBadFiles: each file in testdata/check/bad has a mistake that people make, and
// beside it stands what `deckhand config check` says of it. To read them is to test them.
func TestCheckBadFiles(t *testing.T) {
	dir, err := filepath.Abs("testdata/check/bad")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	made := unreadable()
	for name, text := range made {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		if err := os.Symlink(file, filepath.Base(file)); err != nil {
			t.Fatal(err)
		}
		made[filepath.Base(file)] = ""
	}
	if goldens, err := filepath.Glob(filepath.Join(dir, "*.txt")); err != nil || len(goldens) != len(made) {
		t.Errorf("what is said of %d files is kept, of %d: %v", len(goldens), len(made), err)
	}
	for _, name := range slices.Sorted(maps.Keys(made)) {
		t.Run(name, func(t *testing.T) {
			got := checkFile(t, name)
			goldentest.Compare(t, filepath.Join(dir, strings.TrimSuffix(name, ".yaml")+".txt"), got, *update)
			if strings.HasSuffix(got, "exit code 0\n") {
				t.Error("it is taken as good")
			}
			if r, found := steers(got); found || strings.Contains(got, "hunter2") {
				t.Errorf("%U or a secret is reported: %q", r, got)
			}
		})
	}
}

// reason is why something has no effect, which is the business of config/fields.
var reason = regexp.MustCompile(`(?m)(: note: [^:]+: ).*$`)

// TestCheckGoodFiles: what nodes have elsewhere is good here, and it is reported what of it has
// no effect.
func TestCheckGoodFiles(t *testing.T) {
	dir, err := filepath.Abs("testdata/check/good")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	packaged, absErr := filepath.Abs("../../../packaging/config.yaml")
	if err != nil || absErr != nil || len(files) == 0 {
		t.Fatal(files, err, absErr)
	}
	for _, file := range append(files, packaged) {
		if filepath.Ext(file) == ".txt" {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Chdir(filepath.Dir(file))
			got := reason.ReplaceAllString(checkFile(t, filepath.Base(file)), "${1}REASON")
			goldentest.Compare(t, filepath.Join(dir, strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))+".txt"), got, *update)
			if !strings.HasSuffix(got, "exit code 0\n") {
				t.Error("it is taken as bad")
			}
		})
	}
}
