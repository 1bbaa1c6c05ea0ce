package command

import (
	"archive/tar"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local/localtest"
)

// programsIn runs this machine's programs in dir, which stands for a container's working directory.
func programsIn(dir string) func(localtest.Process) (int, error) {
	return func(p localtest.Process) (int, error) {
		cmd := exec.Command(p.Command[0], p.Command[1:]...)
		cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, p.In, p.Out, p.Err
		err := cmd.Run()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return exit.ExitCode(), nil
		}
		return 0, err
	}
}

// copying runs a command line for an agent whose one container runs process.
func copying(t *testing.T, process func(localtest.Process) (int, error)) func(args ...string) (code int, said string) {
	t.Helper()
	agent := localtest.New()
	agent.OnSession = localtest.Sessions(process)
	agent.Update(pods(jobView(v1.PodRunning, running)))
	root := localtest.Serve(t, agent)
	return func(args ...string) (int, string) {
		var out safeBuffer
		code := Main(t.Context(), append([]string{"cp"}, args...), "deckhand", nil, &out, &out, Deps{RootDir: root, Getenv: func(string) string { return "" }, Now: func() time.Time { return now }})
		return code, out.text.String()
	}
}

// safeBuffer is written to by a session and by who leaves out what it brings.
type safeBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestCopy: files and directories, there and back, to where kubectl and cp have them.
func TestCopy(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	t.Chdir(here)
	cp := copying(t, programsIn(there))
	write(t, "tree/a/file", "content")
	write(t, "tree/.b", "hidden")
	write(t, "other:name", "a colon")
	for _, dir := range []string{filepath.Join(there, "dir"), "here"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		from, to string
		// made is a file that is there afterwards.
		made, text string
	}{
		{"tree", "job:copy", there + "/copy/a/file", "content"},
		{"tree", "job:dir", there + "/dir/tree/.b", "hidden"},
		{"tree/", "default/job-n1:dir/sub", there + "/dir/sub/a/file", "content"},
		{"tree/.", "job:dir", there + "/dir/tree/a/file", "content"}, // as cp and kubectl clean it
		{"tree/a/file", "job:dir/", there + "/dir/file", "content"},
		{"tree/a/file", "job:one", there + "/one", "content"},
		{"./other:name", "pod/job:.", there + "/other:name", "a colon"},
		{here + "/tree/.b", "job:one", there + "/one", "hidden"},
		{"job:copy", "back", "back/a/file", "content"},
		{"job:copy/", "here", "here/copy/.b", "hidden"},
		{"job:copy/a/file", "here/", "here/file", "content"},
		{"job:copy/a/file", "new/deeper/name", "new/deeper/name", "content"},
		{"job:./copy/.b", "new/deeper/name", "new/deeper/name", "hidden"},
		{"job:copy/a/file", ".", "file", "content"},
		{"job:.", "all", "all/copy/a/file", "content"},
	} {
		if code, said := cp(c.from, c.to); code != 0 || said != "" {
			t.Errorf("cp %s %s: exit code %d, %s", c.from, c.to, code, said)
		}
		if text, err := os.ReadFile(c.made); err != nil || string(text) != c.text {
			t.Errorf("cp %s %s: %q, %v", c.from, c.to, text, err)
		}
	}
}

// TestCopyFails: what can't be copied is told, with what is to be done.
func TestCopyFails(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	t.Chdir(here)
	write(t, "file", "content")
	write(t, "dir/file", "content")
	write(t, there+"/file", "content")
	if err := os.Symlink("/etc/passwd", filepath.Join(there, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo("fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	cp := copying(t, programsIn(there))
	for _, c := range []struct {
		from, to string
		code     int
		said     string
	}{
		{"file", "copy", 2, "one of SOURCE and TARGET has to be in a container, as POD:PATH"},
		{"job:file", "job:copy", 2, "one of SOURCE and TARGET has to be on this machine"},
		{"job:", "copy", 2, "the path in the container is missing"},
		{"none", "job:copy", 1, "none: no such file or directory"},
		{"job:none", "copy", 1, "error: tar in container job ended with exit code 2"},
		{"jop:file", "copy", 1, `pod "jop" not found, did you mean default/job-n1?`},
		{"file", "job:no/such/directory", 1, "error: tar in container job ended with exit code 2"},
		{"job:file", "dir", 0, ""},
		{"job:file", "file/below", 1, "not a directory"},
		{"job:file", "fifo", 1, "fifo is neither a file nor a directory: nothing takes its place"},
		{"job:link", "copy", 0, "copy is a symbolic link to /etc/passwd, outside of the copied tree: it is left out"},
	} {
		if code, said := cp(c.from, c.to); code != c.code || !strings.Contains(said, c.said) {
			t.Errorf("cp %s %s: exit code %d, %q, want %d, %q", c.from, c.to, code, said, c.code, c.said)
		}
	}

	cp = copying(t, func(localtest.Process) (int, error) {
		return 0, errors.New(`exec: "tar": executable file not found in $PATH`)
	})
	for _, args := range [][]string{{"job:file", "copy", "tar"}, {"file", "job:copy", "test"}, {"dir", "job:copy", "test"}} {
		if code, said := cp(args[:2]...); code != 1 || !strings.Contains(said, "container job of pod job-n1 can't run "+args[2]+", which copying takes: ") || strings.Count(said, "\n") != 1 {
			t.Errorf("cp %v without %s: exit code %d, %q", args[:2], args[2], code, said)
		}
	}

	hostile := copying(t, func(p localtest.Process) (int, error) {
		w := tar.NewWriter(p.Out)
		err := errors.Join(w.WriteHeader(&tar.Header{Name: "../../evil", Typeflag: tar.TypeReg, Mode: 0o644}), w.Close())
		return 0, err
	})
	if code, said := hostile("job:file", "copy"); code != 1 || !strings.Contains(said, `the container's archive has files outside of the requested path: "../../evil" isn't "file", nor in it`) {
		t.Errorf("a hostile archive: exit code %d, %q", code, said)
	}
	endless := copying(t, func(p localtest.Process) (int, error) {
		w := tar.NewWriter(p.Out)
		for {
			if err := w.WriteHeader(&tar.Header{Name: "other", Typeflag: tar.TypeReg, Mode: 0o644}); err != nil {
				return 1, nil // nobody reads any more
			}
		}
	})
	if code, said := endless("job:file", "copy"); code != 1 || !strings.Contains(said, "outside of the requested path") {
		t.Errorf("an endless archive: exit code %d, %q", code, said)
	}
}
