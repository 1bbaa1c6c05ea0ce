package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// This test binary, called as containerd, is the child: its configuration is
// "obey" or "ignore" (SIGTERM), or "exit".
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "containerd" {
		os.Exit(m.Run())
	}
	text, err := os.ReadFile(os.Args[2])
	if err != nil {
		os.Exit(1)
	}
	if string(text) == "exit" {
		os.Exit(3)
	}
	if string(text) == "ignore" {
		signal.Ignore(syscall.SIGTERM)
	}
	if _, err := os.Stdout.WriteString("started\n"); err != nil {
		os.Exit(1)
	}
	time.Sleep(time.Minute)
}

// fake makes the program and its configuration in a directory of their own.
func fake(t *testing.T, behaviour string) (program, config string) {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, config = filepath.Join(dir, "containerd"), filepath.Join(dir, "config.toml")
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(behaviour), 0o600); err != nil {
		t.Fatal(err)
	}
	return program, config
}

// start starts the fake and waits until it says so.
func start(t *testing.T, behaviour string) (*Process, string, string) {
	t.Helper()
	program, config := fake(t, behaviour)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := Spawn(program, config, "/usr/bin:/bin", w)
	if err != nil {
		t.Fatal(err)
	}
	// Fails where the test has reaped it already.
	t.Cleanup(func() { _ = p.signal(unix.SIGKILL) })
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 100)); err != nil && behaviour != "exit" {
		t.Fatal(err)
	}
	return p, program, config
}

func TestOwnSession(t *testing.T) {
	p, _, _ := start(t, "obey")
	sid, err := unix.Getsid(p.PID())
	if err != nil || sid != p.PID() {
		t.Errorf("it is in the session %d, error %v", sid, err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if how := p.Reap(); !strings.Contains(how, "terminated") {
		t.Errorf("it ended so: %s", how)
	}
}

// TestInherited: containers get what containerd has; that isn't what the agent was started with.
func TestInherited(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 0, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	mask := unix.Umask(0o077)
	t.Cleanup(func() {
		unix.Umask(mask)
		if err := unix.Setrlimit(unix.RLIMIT_CORE, &before); err != nil {
			t.Error(err)
		}
	})
	p, _, _ := start(t, "obey")
	var limit unix.Rlimit
	if err := unix.Prlimit(p.PID(), unix.RLIMIT_CORE, nil, &limit); err != nil || limit.Cur != before.Max || limit.Max != before.Max {
		t.Errorf("core dumps of %d and %d bytes, %v; want %d", limit.Cur, limit.Max, err, before.Max)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil || !strings.Contains(string(status), "\nUmask:\t0022\n") {
		t.Errorf("%v: the umask isn't 0022:\n%s", err, status)
	}
	if now := unix.Umask(0o077); now != 0o077 {
		t.Errorf("the agent's own umask is %04o", now)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	p.Reap()
}

func TestWaitIsGivenUp(t *testing.T) {
	p, _, _ := start(t, "obey")
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait returns %v", err)
		}
		cancel()
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Wait(t.Context()) }()
	if err := p.signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("Wait returns %v for a process that ended", err)
	}
	p.Reap()
}

func TestReapReportsTheExitCode(t *testing.T) {
	p, _, _ := start(t, "exit")
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if how := p.Reap(); how != "exit status 3" {
		t.Errorf("it ended so: %s", how)
	}
}

func TestStopKillsWhatDoesntStop(t *testing.T) {
	p, _, _ := start(t, "ignore")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); err == nil || !strings.Contains(err.Error(), "didn't stop") {
		t.Errorf("Stop returns %v", err)
	}
	if how := p.Reap(); !strings.Contains(how, "killed") {
		t.Errorf("it ended so: %s", how)
	}
}

func TestFind(t *testing.T) {
	p, program, config := start(t, "obey")
	found, err := Find(config)
	if err != nil || found == nil || found.PID() != p.PID() {
		t.Fatalf("found %v, error %v", found, err)
	}
	if !found.Runs(program) || found.Runs("/bin/sh") {
		t.Error("it doesn't know which program it runs")
	}
	if err := found.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	found.Reap()
	p.Reap()
	if found, err := Find(config); err != nil || found != nil {
		t.Errorf("found one that ended: %v, error %v", found, err)
	}
}

// Same program, another root directory; same command line, another program's name.
func TestFindLeavesStrangersAlone(t *testing.T) {
	_, _, config := start(t, "obey")
	if found, err := Find(config + "x"); err != nil || found != nil {
		t.Errorf("found %v, error %v", found, err)
	}
	if found, err := Find(strings.TrimSuffix(config, "l")); err != nil || found != nil {
		t.Errorf("found %v, error %v", found, err)
	}
}

func TestEnvironment(t *testing.T) {
	got := environment([]string{"HOME=/root", "NOTIFY_SOCKET=/x", "LISTEN_FDS=1", "PATH=/old", "HTTPS_PROXY=http://p", "SECRET=x"}, "/new")
	if want := []string{"PATH=/new", "HOME=/root", "HTTPS_PROXY=http://p"}; !slices.Equal(got, want) {
		t.Errorf("containerd gets %q", got)
	}
}

func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if got := LastLine(path); got != "" {
		t.Errorf("the last line of no file is %q", got)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("x", maxLog)+"\nlast words\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := LastLine(path); got != "last words" {
		t.Errorf("the last line is %q", got)
	}
	for range 2 {
		f, err := OpenLog(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("new\n"); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != "new\nnew\n" {
		t.Errorf("the log is %q, error %v", text, err)
	}
	if got := LastLine(path + ".1"); got != "last words" {
		t.Errorf("the old log ends with %q", got)
	}
}
