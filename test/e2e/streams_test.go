package e2e

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/terminal/terminaltest"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// box is a pod that has the machine's programs: its container c does nothing, talk says again what it is told.
var box = fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: box}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: usr, hostPath: {path: /usr}}, {name: tmp, emptyDir: {}}]
  containers:
  - &c
    name: c
    image: %s
    env: [{name: PATH, value: /usr/bin}]
    volumeMounts: [{name: tmp, mountPath: /tmp}, {name: usr, mountPath: /usr, readOnly: true}, {name: usr, mountPath: /lib, subPath: lib, readOnly: true},
      {name: usr, mountPath: /lib64, subPath: lib64, readOnly: true}, {name: usr, mountPath: /bin, subPath: bin, readOnly: true}]
  - <<: *c
    name: talk
    command: [/usr/bin/sh, -c, 'while read line; do echo "$(stty size) $line"; done']
    stdin: true
    tty: true
`, node.Image)

// TestStreams: what a person does in a container that runs.
func TestStreams(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("box.yaml", box)
	n.Await("the pod runs", node.Ready("box"))
	inBox := streams{n, t}
	before := inBox.connections()
	t.Run("exec", inBox.run)
	t.Run("a terminal", inBox.terminal)
	t.Run("a second signal", inBox.insisting)
	t.Run("attach", inBox.attach)
	t.Run("cp", inBox.cp)
	t.Run("port-forward", inBox.portForward)
	t.Run("clients that vanish", inBox.vanish)
	n.Eventually("the agent has let all of that go", func() error {
		if now := inBox.connections(); now > before {
			return fmt.Errorf("%d connections, and %d before", now, before)
		}
		return nil
	})
	t.Run("the agent stops", inBox.agentStops)
	t.Run("debug", inBox.debug)
}

type streams struct {
	*node.Node
	t *testing.T
}

// connections is how many sockets the agent has open.
func (s streams) connections() (n int) {
	s.t.Helper()
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.PID()))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, fd := range open {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:") { // or it has been closed meanwhile
			n++
		}
	}
	return n
}

// printed returns what a command has printed, and its exit code.
func printed(t *testing.T, cmd *exec.Cmd) (out, errs string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		code = exitCode(t, err)
	}
	return stdout.String(), stderr.String(), code
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return exit.ExitCode()
}

func (s streams) run(t *testing.T) {
	if out, errs, code := printed(t, s.Command("exec", "-c", "c", "box", "--", "sh", "-c", "echo out; echo err >&2; exit 7")); out != "out\n" || errs != "err\ncommand terminated with exit code 7\n" || code != 7 {
		t.Errorf("%q, %q, exit code %d", out, errs, code)
	}
	if _, errs, code := printed(t, s.Command("exec", "box", "--", "no-such-program")); code != 1 || !strings.Contains(errs, "no-such-program") {
		t.Errorf("no such program: %q, exit code %d", errs, code)
	}
	// What goes in, half-closed, and comes out again is the same.
	const size = 64 << 20
	sent, got := sha256.New(), sha256.New()
	cmd := s.Command("exec", "-i", "box", "-c", "c", "--", "cat")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = io.TeeReader(io.LimitReader(rand.Reader, size), sent), got, os.Stderr
	began := time.Now()
	if err := cmd.Run(); err != nil || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Errorf("%d bytes there and back: %v", size, err)
	}
	t.Logf("%d MiB there and back in %s", size>>20, time.Since(began).Round(time.Millisecond))
}

// on runs a command on a terminal of its own.
func (s streams) on(t *testing.T, args ...string) (*terminaltest.Console, *exec.Cmd) {
	t.Helper()
	console := terminaltest.Open(t, 24, 100)
	cmd := s.Command(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = console.Terminal, console.Terminal, console.Terminal
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return console, cmd
}

// terminal: sizes, signals and exit codes pass, and the terminal is afterwards as it was.
func (s streams) terminal(t *testing.T) {
	console, cmd := s.on(t, "exec", "-it", "-c", "c", "box", "--", "sh")
	console.Shell()
	if code := exitCode(t, cmd.Wait()); code != 5 {
		t.Errorf("exit code %d", code)
	}
	console.Restored()

	// A signal from elsewhere ends it, and restores the terminal as well.
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		console, cmd = s.on(t, "exec", "-it", "-c", "c", "box", "--", "sh")
		console.Shows("# ")
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if code := exitCode(t, cmd.Wait()); code != 130 {
			t.Errorf("exit code %d after %s", code, signal)
		}
		console.Restored()
	}
}

// insisting: a second signal ends a session that doesn't end by the first, as nobody reads what it prints; the terminal is restored all the same.
func (s streams) insisting(t *testing.T) {
	console, cmd := s.on(t, "exec", "-it", "-c", "c", "box", "--", "sh", "-c", "echo begun; yes")
	console.Shows("begun\r\n")
	console.Full()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for again := time.NewTicker(100 * time.Millisecond); ; <-again.C { // those that come soon after the first count as one with it
		select {
		case err := <-ended:
			if code := exitCode(t, err); code != 130 {
				t.Errorf("exit code %d", code)
			}
			console.Restored()
			return
		default:
			_ = cmd.Process.Signal(syscall.SIGTERM) // or it has ended
		}
	}
}

func (s streams) attach(t *testing.T) {
	console, cmd := s.on(t, "attach", "-it", "-c", "talk", "box")
	console.Shows("pressing enter.\r\n")
	for { // the size comes on a way of its own
		console.Types("hello\n")
		if line := console.Line(); line == "24 100 hello" {
			break
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, cmd.Wait()); code != 130 {
		t.Errorf("exit code %d", code)
	}
	console.Restored()
	if out, errs, code := printed(t, s.Command("attach", "-i", "-c", "c", "none")); code != 1 || !strings.Contains(errs, `pod "none" not found`) {
		t.Errorf("%q, %q, exit code %d", out, errs, code)
	}
}

// cp: a large file is the same there, and back; links are what they were.
func (s streams) cp(t *testing.T) {
	here := t.TempDir()
	tree := filepath.Join(here, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	sent := sha256.New()
	f, err := os.OpenFile(filepath.Join(tree, "large"), os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.MultiWriter(f, sent), io.LimitReader(rand.Reader, 64<<20)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), os.Symlink("large", filepath.Join(tree, "link"))); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{tree, "box:/tmp"}, {"box:/tmp/tree", filepath.Join(here, "back")}} {
		if out, errs, code := printed(t, s.Command(append([]string{"cp", "-c", "c"}, args...)...)); code != 0 || out+errs != "" {
			t.Fatalf("%v: %q, %q, exit code %d", args, out, errs, code)
		}
	}
	back, err := os.ReadFile(filepath.Join(here, "back/link"))
	if sum := sha256.Sum256(back); err != nil || !bytes.Equal(sum[:], sent.Sum(nil)) {
		t.Errorf("%d bytes there and back aren't the same: %v", len(back), err)
	}
	if info, err := os.Stat(filepath.Join(here, "back/large")); err != nil || info.Mode() != 0o640 {
		t.Errorf("its mode: %v, %v", info, err)
	}
	// What leads out of what is copied is left out.
	out, errs, code := printed(t, s.Command("exec", "-c", "c", "box", "--", "ln", "-s", "/etc/hosts", "/tmp/tree/out"))
	if code != 0 {
		t.Fatalf("%q, %q, exit code %d", out, errs, code)
	}
	if _, errs, code := printed(t, s.Command("cp", "-c", "c", "box:/tmp/tree", filepath.Join(here, "again"))); code != 0 || !strings.Contains(errs, "again/out is a symbolic link to /etc/hosts, outside of the copied tree: it is left out") {
		t.Errorf("%q, exit code %d", errs, code)
	}
	if _, errs, code := printed(t, s.Command("cp", "-c", "c", "box:/tmp/none", here)); code != 1 || !strings.Contains(errs, "/tmp/none") && !strings.Contains(errs, "./none") || !strings.Contains(errs, "tar in container c ended with exit code 2") {
		t.Errorf("%q, exit code %d", errs, code)
	}
}

// portForward carries connections to the web server of a pod, until the pod ends.
func (s streams) portForward(t *testing.T) {
	n := s.For(t)
	n.Write("web.yaml", pod("web"))
	n.Await("the web server runs", node.Ready("web"))
	cmd := s.Command("port-forward", "web", ":8080", ":81")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, said := bufio.NewReader(out), bufio.NewReader(errs)
	at := map[string]string{}
	for len(at) < 2 {
		line, err := lines.ReadString('\n') // Forwarding from 127.0.0.1:40001 -> 8080
		if err != nil {
			t.Fatal(err)
		}
		if f := strings.Fields(line); strings.HasPrefix(f[2], "127.0.0.1:") {
			at[f[4]] = f[2]
		}
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // until the command has ended
	for range 50 {
		if body, status, err := get("http://" + at["8080"] + "/"); err != nil || status != 200 {
			t.Fatalf("%d %q, %v", status, body, err)
		}
	}
	if _, _, err := get("http://" + at["81"] + "/"); err == nil {
		t.Error("somebody answers where nobody listens")
	}
	if line, err := said.ReadString('\n'); err != nil || !strings.Contains(line, "-> 81: ") || !strings.Contains(line, "refused") {
		t.Errorf("it says %q, %v", line, err)
	}
	if body, _, err := get("http://" + at["8080"] + "/"); err != nil {
		t.Errorf("after one that was refused: %q, %v", body, err)
	}
	n.Remove("web.yaml")
	for line := ""; !strings.HasPrefix(line, "error: lost connection to pod: "); {
		if line, err = said.ReadString('\n'); err != nil {
			t.Fatalf("it doesn't say that the pod has ended: %v", err)
		}
	}
	if code := exitCode(t, cmd.Wait()); code != 1 {
		t.Errorf("exit code %d", code)
	}
}

// begun starts a session with cat, which says what it is told, and returns it once it does.
func (s streams) begun(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := s.Command("exec", "-i", "box", "-c", "c", "--", "sh", "-c", "echo here; cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "here\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return cmd
}

// quiet waits until no command of a session runs in the container: the runtime ends what nobody's input comes to any more.
func (s streams) quiet(t *testing.T) {
	t.Helper()
	n := s.For(t)
	n.Eventually("no command runs on", func() error {
		out, code := n.Deckhand("exec", "-c", "c", "box", "--", "sh", "-c", "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done")
		if code != 0 || strings.Contains(out, "echo here; cat") {
			return fmt.Errorf("exit code %d: %s", code, out)
		}
		return nil
	})
}

func (s streams) vanish(t *testing.T) {
	for range 5 {
		cmd := s.begun(t)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
	}
	s.quiet(t)
}

// agentStops: whoever is in a session is told at once, and nothing is left of it; the pod runs on.
func (s streams) agentStops(t *testing.T) {
	var clients []*exec.Cmd
	for range 5 {
		cmd := s.begun(t)
		clients = append(clients, cmd)
	}
	console, onTerminal := s.on(t, "exec", "-it", "-c", "c", "box", "--", "sh")
	console.Shows("# ")
	ids := s.RunningIDs()
	s.Stop()
	console.Shows("error: the connection to the container was lost: the agent or the container runtime has stopped, or the connection was idle for hours\r\n")
	for _, cmd := range append(clients, onTerminal) {
		if code := exitCode(t, cmd.Wait()); code != 1 {
			t.Errorf("exit code %d of a session that was cut", code)
		}
	}
	console.Restored()
	s.Start()
	s.Await("the agent is back", node.Ready("box"))
	unchanged(t, ids, s.RunningIDs())
	s.quiet(t)
}

// debug adds containers to the pod while its others run on: they are started once, and outlive any end of the agent.
func (s streams) debug(t *testing.T) {
	ids := s.RunningIDs()
	debug := func(args ...string) *exec.Cmd {
		return s.Command(append([]string{"debug", "--image", node.Image, "box"}, args...)...)
	}
	if out, errs, code := printed(t, debug("-c", "look", "--target", "c", "--attach", "--", "/web", "cat", "/proc/1/cmdline")); out != "/web\x00" || code != 0 {
		t.Errorf("the processes of another container: %q, %q, exit code %d", out, errs, code)
	}
	if _, errs, code := printed(t, debug("--attach", "--", "/web", "exit", "3")); code != 3 || !strings.Contains(errs, "Defaulting debug container name to debugger-") {
		t.Errorf("%q, exit code %d", errs, code)
	}
	piped := debug("-i", "--", "/web", "cat", "/dev/stdin")
	piped.Stdin = strings.NewReader("through\n")
	if out, errs, code := printed(t, piped); out != "through\n" || code != 0 {
		t.Errorf("through a pipe: %q, %q, exit code %d", out, errs, code)
	}
	for _, refused := range [][]string{{"-c", "look", "Duplicate value"}, {"--target", "none", "spec.ephemeralContainers[3].targetContainerName"}, {"--image", "web:1 ", "invalid reference format"}} {
		if _, errs, code := printed(t, debug(refused[:2]...)); code != 1 || !strings.Contains(errs, refused[2]) {
			t.Errorf("%q: %q, exit code %d", refused, errs, code)
		}
	}

	console, cmd := s.on(t, "debug", "-it", "--image", node.Image, "-c", "shell", "box", "--", "/web", "cat", "/dev/stdin")
	console.Shows("pressing enter.\r\n")
	console.Types("here\n") // is echoed by the container's terminal
	console.Shows("here\r\n")
	ids["box-node1/shell"] = s.RunningIDs()["box-node1/shell"]
	s.Kill()
	console.Shows("error: the connection to the container was lost: the agent or the container runtime has stopped, or the connection was idle for hours\r\n")
	if code := exitCode(t, cmd.Wait()); code != 1 {
		t.Errorf("exit code %d of a session that was cut", code)
	}
	console.Restored()
	s.Start()
	added := func(ended, running int) node.Condition {
		return node.Each([]string{"box"}, func(v local.PodView) error {
			var e, r int
			for _, c := range v.Pod.Status.EphemeralContainerStatuses {
				switch {
				case c.State.Terminated != nil && c.RestartCount == 0:
					e++
				case c.State.Running != nil && c.RestartCount == 0:
					r++
				}
			}
			if p := v.Pod; e != ended || r != running || len(p.Spec.EphemeralContainers) != e+r || p.Generation != int64(1+e+r) || p.Status.ObservedGeneration != p.Generation {
				return fmt.Errorf("of %d containers that were added %d have ended and %d run, in generation %d, which is observed as %d", len(p.Spec.EphemeralContainers), e, r, p.Generation, p.Status.ObservedGeneration)
			}
			return nil
		})
	}
	s.Await("the next agent knows them", agentIs(s.Node), node.Ready("box"), added(3, 1))
	unchanged(t, ids, s.RunningIDs())
	console, cmd = s.on(t, "attach", "-it", "-c", "shell", "box")
	console.Shows("pressing enter.\r\n")
	console.Types("again\n")
	console.Shows("again\r\n")
	console.Types("\x04")
	console.Shows("here\r\nagain\r\n")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	console.Restored()

	// Nobody starts them again; they go with the pod.
	s.Await("all have ended", node.Ready("box"), added(4, 0))
	const missing = "deckhand.local/none:1"
	wrong := s.Command("debug", "--image", missing, "--image-pull-policy", "Never", "--attach", "box")
	if _, errs, code := printed(t, wrong); code != 1 || !strings.Contains(errs, "can't be started") || !strings.Contains(errs, missing) ||
		!strings.Contains(errs, "With the right name or command, start another one") {
		t.Errorf("an image that isn't there: %q, exit code %d", errs, code)
	}
	if out, code := s.Deckhand("restart", "box"); code != 0 {
		t.Fatalf("%s, exit code %d", out, code)
	}
	s.Await("the pod is back without them", node.Ready("box"), added(0, 0))
}
