package process_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/process"
)

const exhaustedEnv, blocked = "DECKHAND_TEST_PIDS_GROUP", 12

// TestThreads: a process at its limit of processes lives and answers, although more of its goroutines are in system
// calls than it had threads for. Without PrepareThreads the runtime ends it.
func TestThreads(t *testing.T) {
	if group := os.Getenv(exhaustedEnv); group != "" {
		atLimit(t, group)
		return
	}
	parent := pidsGroup(t)
	for _, room := range []int{0, 1, 3} {
		t.Run("room for "+strconv.Itoa(room), func(t *testing.T) {
			group := filepath.Join(parent, fmt.Sprintf("deckhand-test-%d-%d", os.Getpid(), room))
			if err := os.Mkdir(group, 0o755); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := os.Remove(group); err != nil {
					t.Error(err)
				}
			}()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestThreads$", "-test.v")
			cmd.Env = append(os.Environ(), exhaustedEnv+"="+group, "DECKHAND_TEST_ROOM="+strconv.Itoa(room))
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
				t.Errorf("%v\n%s", err, out[:min(len(out), 2000)])
			}
		})
	}
}

// pidsGroup returns the directory of the hierarchy with the controller pids.
func pidsGroup(t *testing.T) string {
	t.Helper()
	dir := "/sys/fs/cgroup/pids"
	if _, err := os.Stat(dir); err != nil {
		dir = "/sys/fs/cgroup"
		enabled, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		if err != nil || !slices.Contains(strings.Fields(string(enabled)), "pids") {
			t.Fatal("there is no cgroup controller pids: enable it in cgroup.subtree_control")
		}
	}
	if unix.Access(dir, unix.W_OK) != nil {
		t.Fatal("control groups can't be made: run the tests as root")
	}
	return dir
}

// atLimit moves this process to a group, lowers the group's limit to what it has, and needs threads.
func atLimit(t *testing.T, group string) {
	write := func(file, text string) {
		if err := os.WriteFile(filepath.Join(group, file), []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	write("cgroup.procs", strconv.Itoa(os.Getpid()))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var server http.Server
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	process.PrepareThreads(process.ThreadsAhead())
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	room, err := strconv.Atoi(os.Getenv("DECKHAND_TEST_ROOM"))
	if err != nil {
		t.Fatal(err)
	}
	write("pids.max", strconv.Itoa(len(threads)+room))
	var begun, calls sync.WaitGroup
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	begun.Add(blocked)
	for range blocked {
		calls.Go(func() {
			begun.Done()
			if _, err := unix.Read(pipe[0], make([]byte, 1)); err != nil {
				t.Error(err)
			}
		})
	}
	begun.Wait()
	var client http.Client
	answer, err := client.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if err := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.list=none").Run(); room == 0 && (err == nil || !process.Exhausted(err.Error())) {
		t.Errorf("a process begins: %v", err)
	}
	if _, err := unix.Write(pipe[1], make([]byte, blocked)); err != nil {
		t.Error(err)
	}
	calls.Wait()
	client.CloseIdleConnections()
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	<-served
	for _, fd := range pipe {
		_ = unix.Close(fd)
	}
	write("pids.max", "max") // the end of the test itself isn't what is tried
}
