package credentials

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// logged collects what is logged, and may be used by many goroutines.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, args)
	}, funcr.Options{})
}

// take returns what was logged since the last call.
func (l *logged) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

func auths(registry, user string) string {
	return fmt.Sprintf(`{"auths": {%q: {"username": %q, "password": "geheim"}}}`, registry, user)
}

func write(t *testing.T, text string, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func users(entries []Entry) string {
	var list []string
	for _, e := range entries {
		list = append(list, e.Credential.Username)
	}
	return strings.Join(list, " ")
}

func TestNodeFilesSearchPaths(t *testing.T) {
	root, work, home := t.TempDir(), t.TempDir(), t.TempDir()
	f := NewNodeFiles(root, work, home, logr.Discard())
	// From the last to the first: each one found hides those before it.
	for _, path := range []string{filepath.Join(home, ".dockercfg"), filepath.Join(work, ".dockercfg"), filepath.Join(root, ".dockercfg"),
		filepath.Join(home, ".docker/config.json"), filepath.Join(work, "config.json"), filepath.Join(root, "config.json")} {
		text := auths("a.io", path)
		if strings.HasSuffix(path, ".dockercfg") {
			text = strings.TrimSuffix(strings.TrimPrefix(text, `{"auths": `), "}")
		}
		write(t, text, path)
		if got := users(f.Entries()); got != path {
			t.Errorf("with %s there, the configuration is that of %q", path, got)
		}
	}
	for _, e := range f.Entries() {
		if e.Credential.Origin != (Origin{Kind: FromNode}) {
			t.Errorf("it comes from %v", e.Credential.Origin)
		}
	}
	want := []string{"/.docker/config.json", "/.dockercfg"}
	if got := NewNodeFiles("", "", "", logr.Discard()).paths; strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("without directories it looks into %v", got)
	}
}

func TestNodeFilesAreReadWhenTheyChange(t *testing.T) {
	root := t.TempDir()
	f := NewNodeFiles(root, "", "", logr.Discard())
	if got := f.Entries(); got != nil {
		t.Fatalf("nothing is there, and yet %v", got)
	}
	path := write(t, auths("a.io", "one"), root, "config.json")
	first := f.Entries()
	if users(first) != "one" {
		t.Fatalf("a file that appeared: %q", users(first))
	}
	if again := f.Entries(); &again[0] != &first[0] {
		t.Error("a file that is as it was is read again")
	}
	// Replaced by another of the same size and time, as by a tool that renames.
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	other := write(t, auths("a.io", "two"), root, "new")
	if err := os.Chtimes(other, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	if got := users(f.Entries()); got != "two" {
		t.Errorf("a file that was replaced: %q", got)
	}
	write(t, auths("a.io", "three"), path)
	if got := users(f.Entries()); got != "three" {
		t.Errorf("a file that was written over: %q", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := f.Entries(); got != nil {
		t.Errorf("a file that is gone: %q", users(got))
	}
}

func TestNodeFilesReportOnceWhatIsWrong(t *testing.T) {
	root, home := t.TempDir(), t.TempDir()
	var log logged
	f := NewNodeFiles(root, "", home, log.logger())
	write(t, auths("a.io", "fallback"), home, ".dockercfg") // the newer format in a legacy file
	broken := write(t, `{"auths": geheim`, root, "config.json")
	expect := func(want ...string) {
		t.Helper()
		f.Entries()
		f.Entries()
		lines := log.take()
		if len(lines) != len(want) {
			t.Fatalf("logged %q, want %d lines", lines, len(want))
		}
		for i := range want {
			if !strings.Contains(lines[i], want[i]) || strings.Contains(lines[i], "geheim") {
				t.Errorf("logged %s, want %s", lines[i], want[i])
			}
		}
	}
	expect("it isn't JSON: line 1", "kubernetes.io/dockerconfigjson")
	expect()
	write(t, `{"auths": {"a.io": 1}, "credsStore": "x"}`, broken)
	expect("credsStore and credHelpers aren't supported", "it has to be an object")
	expect()
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(broken, 0o600); err != nil {
		t.Fatal(err)
	}
	expect("isn't a regular file")
}
