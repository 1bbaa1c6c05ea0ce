package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

var who = translate.Identity{UID: "u1", Name: "web-n1", Namespace: "default"}

// rig is a reader, the directory for the messages of who's container "main", and what was logged.
type rig struct {
	*MessageReader
	dir    string
	asked  []string
	tail   string
	broken error
	logged []string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	pods := t.TempDir()
	r := &rig{dir: filepath.Join(pods, "u1", "containers", "main")}
	if err := os.MkdirAll(r.dir, 0o750); err != nil {
		t.Fatal(err)
	}
	r.MessageReader = NewMessageReader(pods, r, funcr.New(func(_, args string) { r.logged = append(r.logged, args) }, funcr.Options{}))
	return r
}

func (r *rig) Last(l Log, attempt, lines, size int) ([]byte, error) {
	r.asked = append(r.asked, fmt.Sprintf("%s/%s %s %s %d: %d lines", l.Namespace, l.Pod, l.UID, l.Container, attempt, lines))
	return []byte(r.tail)[max(0, len(r.tail)-size):], r.broken
}

// ended is an instance that failed, whose message is in the named file.
func (r *rig) ended(file string) *pod.Container {
	return &pod.Container{ID: "c", Name: "main", Attempt: 2, State: pod.ContainerExited, StartedAt: time.Unix(1, 0), ExitCode: 1,
		TerminationMessagePath: filepath.Join(r.dir, file)}
}

func (r *rig) write(t *testing.T, text string) *pod.Container {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "0"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return r.ended("0")
}

func TestFile(t *testing.T) {
	const euro = "€" // three bytes
	for name, tc := range map[string]struct{ written, want string }{
		"empty":                 {"", ""},
		"as it is":              {"out of  cheese\n", "out of  cheese\n"},
		"the whole limit":       {strings.Repeat("x", 4096), strings.Repeat("x", 4096)},
		"the end of more":       {"begin" + strings.Repeat("x", 4093) + "end", strings.Repeat("x", 4093) + "end"},
		"no broken character":   {strings.Repeat(euro, 2000), strings.Repeat(euro, 1365)},
		"a character just fits": {euro + euro + strings.Repeat("x", 4093), euro + strings.Repeat("x", 4093)},
		"invalid bytes":         {"a\xff\xfeb\xc3", "a\uFFFDb\uFFFD"},
		"growing when repaired": {strings.Repeat("\xffa", 2048), strings.Repeat("\uFFFDa", 1024)},
		"invalid where it cuts": {"\xff\xff\xff" + strings.Repeat("x", 4096), strings.Repeat("x", 4096)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			got := r.Message(who, r.write(t, tc.written))
			if got != tc.want {
				t.Errorf("%d bytes %.60q, want %d bytes %.60q", len(got), got, len(tc.want), tc.want)
			}
			if len(got) > 4096 || !utf8.ValidString(got) {
				t.Errorf("%d bytes, valid: %t", len(got), utf8.ValidString(got))
			}
			if r.logged != nil || r.asked != nil {
				t.Errorf("logged %q, asked for %q", r.logged, r.asked)
			}
		})
	}
}

// TestHostileFiles: what isn't the file that was made for the message is never read, and nothing waits for it.
func TestHostileFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		put func(t *testing.T, r *rig) *pod.Container
		// logged says that a person is told.
		logged bool
	}{
		"none": {func(_ *testing.T, r *rig) *pod.Container { c := r.ended("0"); c.TerminationMessagePath = ""; return c }, false},
		"gone": {func(_ *testing.T, r *rig) *pod.Container { return r.ended("gone") }, false},
		"the pod's directory gone": {func(t *testing.T, r *rig) *pod.Container {
			if err := os.RemoveAll(filepath.Dir(filepath.Dir(r.dir))); err != nil {
				t.Fatal(err)
			}
			return r.ended("0")
		}, false},
		"symbolic link": {func(t *testing.T, r *rig) *pod.Container {
			r.write(t, "secret")
			return r.linked(t, filepath.Join(r.dir, "0"))
		}, true},
		"dangling link": {func(t *testing.T, r *rig) *pod.Container { return r.linked(t, "nowhere") }, true},
		"pipe": {func(t *testing.T, r *rig) *pod.Container {
			if err := unix.Mkfifo(filepath.Join(r.dir, "p"), 0o666); err != nil {
				t.Fatal(err)
			}
			return r.ended("p")
		}, true},
		"socket": {func(t *testing.T, r *rig) *pod.Container {
			if err := unix.Mknod(filepath.Join(r.dir, "s"), unix.S_IFSOCK|0o666, 0); err != nil {
				t.Fatal(err)
			}
			return r.ended("s")
		}, true},
		"directory": {func(t *testing.T, r *rig) *pod.Container {
			if err := os.Mkdir(filepath.Join(r.dir, "d"), 0o755); err != nil {
				t.Fatal(err)
			}
			return r.ended("d")
		}, true},
		"a volume in its place":     {func(t *testing.T, r *rig) *pod.Container { return r.moved(t, "u1/volumes/kubernetes.io~empty-dir/v") }, true},
		"another pod's":             {func(t *testing.T, r *rig) *pod.Container { return r.moved(t, "u2/containers/main") }, true},
		"another container's":       {func(t *testing.T, r *rig) *pod.Container { return r.moved(t, "u1/containers/other") }, true},
		"below the right directory": {func(t *testing.T, r *rig) *pod.Container { return r.moved(t, "u1/containers/main/sub") }, true},
		"by way of dots": {func(t *testing.T, r *rig) *pod.Container {
			c := r.moved(t, "u2/containers/main")
			c.TerminationMessagePath = r.dir + "/../../../u2/containers/main/f"
			return c
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if got := r.Message(who, tc.put(t, r)); got != "" {
				t.Errorf("read %q", got)
			}
			if (len(r.logged) == 1) != tc.logged || len(r.logged) > 1 {
				t.Errorf("logged %q", r.logged)
			}
		})
	}
}

// linked is an instance whose file is a symbolic link.
func (r *rig) linked(t *testing.T, to string) *pod.Container {
	t.Helper()
	if err := os.Symlink(to, filepath.Join(r.dir, "l")); err != nil {
		t.Fatal(err)
	}
	return r.ended("l")
}

// moved is an instance whose file is in another directory.
func (r *rig) moved(t *testing.T, to string) *pod.Container {
	t.Helper()
	dir := filepath.Join(r.podsDir, to)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := r.ended("0")
	c.TerminationMessagePath = filepath.Join(dir, "f")
	if err := os.WriteFile(c.TerminationMessagePath, []byte("secret"), 0o666); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestHugeSparseFile(t *testing.T) {
	r := newRig(t)
	c := r.write(t, "")
	f, err := os.OpenFile(c.TerminationMessagePath, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("the end"), 1<<40); err != nil {
		t.Fatal(err)
	}
	if got := r.Message(who, c); len(got) != 4096 || !strings.HasSuffix(got, "\x00the end") {
		t.Errorf("%d bytes, ending in %.20q", len(got), got[max(0, len(got)-20):])
	}
}

func TestFallbackToLogs(t *testing.T) {
	fallback := func(c *pod.Container) { c.TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError }
	for name, tc := range map[string]struct {
		file   string
		change func(*pod.Container)
		want   string
		asked  bool
	}{
		"asked for":                {"", func(*pod.Container) {}, "panic: oops\n", true},
		"without a file":           {"", func(c *pod.Container) { c.TerminationMessagePath = "" }, "panic: oops\n", true},
		"without a file to read":   {"", func(c *pod.Container) { c.TerminationMessagePath = "/etc/hostname" }, "panic: oops\n", true},
		"the file says something":  {"\n", func(*pod.Container) {}, "\n", false},
		"it succeeded":             {"", func(c *pod.Container) { c.ExitCode = 0 }, "", false},
		"it never ran":             {"", func(c *pod.Container) { c.StartedAt = time.Time{} }, "", false},
		"the policy is File":       {"", func(c *pod.Container) { c.TerminationMessagePolicy = v1.TerminationMessageReadFile }, "", false},
		"the policy is by default": {"", func(c *pod.Container) { c.TerminationMessagePolicy = "" }, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.tail = "panic: oops\n"
			c := r.write(t, tc.file)
			fallback(c)
			tc.change(c)
			if got := r.Message(who, c); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			asked := fmt.Sprint(r.asked)
			if want := "[default/web-n1 u1 main 2: 80 lines]"; tc.asked && asked != want || !tc.asked && r.asked != nil {
				t.Errorf("asked for %s", asked)
			}
		})
	}
}

func TestLogsText(t *testing.T) {
	r := newRig(t)
	c := r.write(t, "")
	c.TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
	r.tail = strings.Repeat("€", 1000) + "\xff!"
	if got, want := r.Message(who, c), strings.Repeat("€", 681)+"\uFFFD!"; got != want {
		t.Errorf("%d bytes ending in %q, want %d", len(got), got[max(0, len(got)-8):], len(want))
	}
	r.tail, r.broken = "", fmt.Errorf("no log: %w", fs.ErrNotExist)
	if got := r.Message(who, c); got != "" || r.logged != nil {
		t.Errorf("without a log: %q, logged %q", got, r.logged)
	}
	r.broken = errors.New("it is a pipe")
	if got := r.Message(who, c); got != "" || len(r.logged) != 1 || !strings.Contains(r.logged[0], "it is a pipe") || !strings.Contains(r.logged[0], `"name"="web-n1" "namespace"="default"`) {
		t.Errorf("with a broken log: %q, logged %q", got, r.logged)
	}
}

// TestRealLogs: the two rooms agree on where logs are, and how they look.
func TestRealLogs(t *testing.T) {
	r := newRig(t)
	logs := t.TempDir()
	dir := filepath.Join(logs, "default_web-n1_u1", "main")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var written strings.Builder
	for i := range 100 {
		fmt.Fprintf(&written, "2026-01-02T03:04:05Z stderr F line %d\n", i)
	}
	if err := os.WriteFile(filepath.Join(dir, "2.log"), []byte(written.String()), 0o640); err != nil {
		t.Fatal(err)
	}
	c := r.write(t, "")
	c.TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
	got := NewMessageReader(r.podsDir, New(logs, filewatch.New(filewatch.Every, r.log), r.log), r.log).Message(who, c)
	if lines := strings.Split(got, "\n"); len(lines) != 81 || lines[0] != "line 20" || lines[79] != "line 99" {
		t.Errorf("%q", got)
	}
}
