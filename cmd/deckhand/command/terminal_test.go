package command

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/terminal/terminaltest"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/server/local/localtest"
)

// openTerminal returns both ends of a terminal of this width.
func openTerminal(t *testing.T, width uint16) (screen *bufio.Reader, terminal *os.File) {
	t.Helper()
	screen, _, terminal = openKeyboard(t, width)
	return screen, terminal
}

// openKeyboard also returns where a person types.
func openKeyboard(t *testing.T, width uint16) (screen *bufio.Reader, keyboard io.Writer, terminal *os.File) {
	t.Helper()
	c := terminaltest.Open(t, 24, width)
	return bufio.NewReader(c), c, c.Terminal
}

// awaitQuestion reads the screen until something is asked.
func awaitQuestion(t *testing.T, screen *bufio.Reader) string {
	t.Helper()
	asked := ""
	for !strings.HasSuffix(asked, "[y/N] ") {
		b, err := screen.ReadByte()
		if err != nil {
			t.Fatalf("after %q: %v", asked, err)
		}
		asked += string(b)
	}
	return asked
}

// TestNoArchiveOnATerminal: an archive isn't written to a terminal, and nothing is asked of the agent.
func TestNoArchiveOnATerminal(t *testing.T) {
	_, terminal := openTerminal(t, 100)
	var errs strings.Builder
	deps := Deps{RootDir: t.TempDir(), Getenv: func(string) string { return "" }}
	code := Main(t.Context(), []string{"images", "save", "web:1"}, "deckhand", nil, terminal, &errs, deps)
	if code != exitUsage || !strings.Contains(errs.String(), "an archive isn't written to a terminal: name a file") {
		t.Errorf("exit code %d, said %q", code, &errs)
	}
}

func TestPodsFitTheTerminal(t *testing.T) {
	agent := localtest.New()
	view := jobView(v1.PodPending, creating)
	view.Waits = []local.Wait{{Text: "pulling an image of considerable size from a registry far away"}}
	agent.Update(pods(view))
	root := localtest.Serve(t, agent)
	screen, terminal := openTerminal(t, 100)
	deps := Deps{RootDir: root, Getenv: func(string) string { return "" }, Now: func() time.Time { return now }}
	if code := Main(t.Context(), []string{"pods"}, "deckhand", nil, terminal, io.Discard, deps); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, want := range []string{
		"NAMESPACE   NAME     READY   STATUS              RESTARTS   AGE   IP       REASON",
		"default     job-n1   0/1     ContainerCreating   0          0s    <none>   pulling an image of cons…",
	} {
		if got, err := screen.ReadString('\n'); err != nil || strings.TrimRight(got, "\r\n") != want {
			t.Errorf("got  %q, %v\nwant %q", got, err, want)
		}
	}
}

// On a terminal, progress is drawn in place, in colour unless that isn't wanted.
func TestUpOnATerminal(t *testing.T) {
	for noColor, want := range map[string]string{
		"":  "\x1b[32mjob-n1   1/1     Running   0          0s\x1b[0m\x1b[K",
		"1": "job-n1   1/1     Running   0          0s\x1b[K",
	} {
		agent := localtest.New()
		agent.Update(pods(jobView(v1.PodRunning, running)))
		screen, terminal := openTerminal(t, 100)
		deps := upDeps(t, agent)
		up := deps.Up
		deps.Up = func(ctx context.Context, r UpRequest) error {
			if !r.Terminal {
				return fmt.Errorf("the agent doesn't get the terminal")
			}
			r.Terminal = false
			return up(ctx, r)
		}
		deps.Getenv = func(name string) string { return map[string]string{"NO_COLOR": noColor}[name] }
		deps.Now = func() time.Time { return now }
		found := false
		upUntilReady(t, deps, screen, terminal, func(line string) { found = found || strings.TrimRight(line, "\r\n") == want })
		if !found {
			t.Errorf("NO_COLOR=%s: the pod's line isn't %q", noColor, want)
		}
	}
}

// upUntilReady runs `deckhand up` until the pods are ready, and shows each line of the screen.
func upUntilReady(t *testing.T, deps Deps, screen *bufio.Reader, terminal *os.File, show func(line string)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	code := make(chan int, 1)
	go func() { code <- Main(ctx, []string{"up", "testdata"}, "deckhand", nil, terminal, io.Discard, deps) }()
	for line := ""; !strings.HasPrefix(line, "Ctrl-C"); show(line) {
		var err error
		if line, err = screen.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d", got)
	}
}

// What takes something away asks on a terminal, and only yes is yes.
func TestResetAsks(t *testing.T) {
	for answer, want := range map[string]int{"y\n": 0, "yes\n": 0, "\n": 1, "n\n": 1, "yesno\n": 1} {
		screen, keyboard, terminal := openKeyboard(t, 80)
		removed := false
		deps := Deps{RootDir: "/r", Getenv: func(string) string { return "" },
			Leftovers: func(string) ([]string, error) { return []string{"the bridge"}, nil },
			StopAll:   func(context.Context, string, func()) error { return nil },
			Reset:     func(context.Context, string) error { removed = true; return nil },
		}
		ended := make(chan int, 1)
		go func() {
			ended <- Main(t.Context(), []string{"reset", "--root-dir", t.TempDir()}, "deckhand", terminal, terminal, terminal, deps)
		}()
		if asked := awaitQuestion(t, screen); !strings.Contains(asked, "the bridge") {
			t.Errorf("it asks before it says what about: %q", asked)
		}
		if _, err := io.WriteString(keyboard, answer); err != nil {
			t.Fatal(err)
		}
		if code := <-ended; code != want || removed != (want == 0) {
			t.Errorf("answered %q: exit code %d, removed %v", answer, code, removed)
		}
	}
}

// TestResetOnAFullDisk: pods that can't be stopped for want of room are no reason to keep the files that take it. Other limits of
// the kernel have the same error.
func TestResetOnAFullDisk(t *testing.T) {
	full := t.TempDir()
	if err := syscall.Mount("deckhand-test", full, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(full, 0); err != nil {
			t.Error(err)
		}
	})
	noSpace := &fs.PathError{Op: "open", Path: "/x", Err: syscall.ENOSPC}
	for _, c := range []struct {
		failure error
		root    string
		want    int
	}{{noSpace, full, 0}, {noSpace, t.TempDir(), 1}, {errors.New("the runtime hangs"), full, 1}} {
		failure, want := c.failure, c.want
		removed := false
		deps := Deps{RootDir: "/r", Getenv: func(string) string { return "" },
			Leftovers: func(string) ([]string, error) { return []string{"the bridge"}, nil },
			StopAll:   func(context.Context, string, func()) error { return failure },
			Reset:     func(context.Context, string) error { removed = true; return nil },
		}
		var out bytes.Buffer
		code := Main(t.Context(), []string{"reset", "--yes", "--root-dir", c.root}, "deckhand", nil, &out, &out, deps)
		if code != want || removed != (want == 0) || removed != strings.Contains(out.String(), "get 10 seconds to end: the disk ") {
			t.Errorf("%v: exit code %d, removed %v: %s", failure, code, removed, &out)
		}
	}
}

// TestDownIsInterrupted: a command that was interrupted before it could show what it does doesn't say that nothing runs.
func TestDownIsInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	deps := Deps{RootDir: t.TempDir(), Getenv: func(string) string { return "" },
		StopAll: func(ctx context.Context, _ string, _ func()) error { interrupt(); <-ctx.Done(); return ctx.Err() }}
	var out bytes.Buffer
	if code := Main(ctx, []string{"down"}, "deckhand", nil, &out, &out, deps); code != 1 || !strings.Contains(out.String(), "interrupted: not all pods are stopped yet") {
		t.Errorf("exit code %d: %s", code, &out)
	}
}

// TestNarrowTerminals: whatever the width, names and causes are whole where a line that doesn't fit can only lose them; to a
// pipe nothing is cut.
func TestNarrowTerminals(t *testing.T) {
	agent := localtest.New()
	view := jobView(v1.PodPending, creating)
	view.Pod.Name = "a-job-with-a-name-that-is-longer-than-most-n1"
	const cause = "pulling an image of considerable size from a registry far away"
	view.Waits = []local.Wait{{Text: cause}}
	agent.Update(pods(view))
	root := localtest.Serve(t, agent)
	deps := Deps{RootDir: root, Getenv: func(string) string { return "" }, Now: func() time.Time { return now }}
	for _, args := range []string{"pods", "pods -o wide", "pods --containers", "why", "why a-job", "pods --no-headers"} {
		var piped strings.Builder
		want := Main(t.Context(), strings.Fields(args), "deckhand", nil, &piped, io.Discard, deps)
		for _, word := range []string{view.Pod.Name, cause} {
			if !strings.Contains(piped.String(), word) {
				t.Errorf("%s doesn't say %q:\n%s", args, word, &piped)
			}
		}
		for _, width := range []uint16{80, 40} {
			screen, terminal := openTerminal(t, width)
			if code := Main(t.Context(), strings.Fields(args), "deckhand", nil, terminal, io.Discard, deps); code != want {
				t.Errorf("%s: exit code %d, %d to a pipe", args, code, want)
			}
			if _, err := io.WriteString(terminal, "END\n"); err != nil {
				t.Fatal(err)
			}
			shown := ""
			for !strings.HasSuffix(shown, "END\r\n") {
				line, err := screen.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				shown += line
			}
			if shown = strings.TrimSuffix(strings.ReplaceAll(shown, "\r\n", "\n"), "END\n"); shown != piped.String() {
				t.Errorf("%s in %d columns:\n%s\npiped:\n%s", args, width, shown, &piped)
			}
		}
	}
}

// TestDumbTerminals: what can't draw gets lines, and no colour.
func TestDumbTerminals(t *testing.T) {
	agent := localtest.New()
	agent.Update(pods(jobView(v1.PodRunning, running)))
	screen, terminal := openTerminal(t, 40)
	deps := upDeps(t, agent)
	deps.Getenv = func(name string) string { return map[string]string{"TERM": "dumb"}[name] }
	deps.Now = func() time.Time { return now }
	upUntilReady(t, deps, screen, terminal, func(line string) {
		if strings.ContainsRune(line, '\x1b') {
			t.Errorf("a line steers the terminal: %q", line)
		}
	})
}

// TestUpAsks: what would stop pods is asked about; only yes is yes, and who gives up changes nothing.
func TestUpAsks(t *testing.T) {
	for answer, want := range map[string]int{"y\n": 0, "n\n": 1, "\n": 1, "\x04": 1, "ctrl-c": 1} {
		screen, keyboard, terminal := openKeyboard(t, 40)
		agreed := false
		deps := upDeps(t, localtest.New())
		deps.Up = func(_ context.Context, r UpRequest) error {
			err := r.Confirm("Stop the 3 pods of /elsewhere?")
			agreed = err == nil
			return err
		}
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() { ended <- Main(ctx, []string{"up", "testdata"}, "deckhand", terminal, terminal, terminal, deps) }()
		if asked := awaitQuestion(t, screen); !strings.Contains(asked, "Stop the 3 pods of /elsewhere?") {
			t.Errorf("it asks %q", asked)
		}
		if answer == "ctrl-c" {
			interrupt()
		} else if _, err := io.WriteString(keyboard, answer); err != nil {
			t.Fatal(err)
		}
		if code := <-ended; code != want || agreed != (want == 0) {
			t.Errorf("answered %q: exit code %d, want %d; agreed: %v", answer, code, want, agreed)
		}
		interrupt()
	}
}
