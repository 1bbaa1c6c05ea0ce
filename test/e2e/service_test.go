package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// manager is a service manager's side of the notify protocol, sd_notify(3).
type manager struct {
	path     string
	reported chan message
}

// message is what was sent at once: assignments by their names.
type message map[string]string

// listenAsManager listens until the test ends.
func listenAsManager(t *testing.T, path string) *manager {
	t.Helper()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	m := &manager{path: path, reported: make(chan message, 1000)}
	done := make(chan struct{})
	t.Cleanup(func() { _ = socket.Close(); <-done }) // what isn't read any more nobody misses
	go func() {
		defer close(done)
		buffer := make([]byte, 1<<16)
		for {
			n, err := socket.Read(buffer)
			if err != nil {
				return
			}
			reported := message{}
			for line := range strings.SplitSeq(string(buffer[:n]), "\n") {
				name, value, _ := strings.Cut(line, "=")
				reported[name] = value
			}
			m.reported <- reported
		}
	}()
	return m
}

func (m *manager) env() []string { return []string{"NOTIFY_SOCKET=" + m.path} }

// await is the next that is reported, but for signs of life; it has to be about name.
func (m *manager) await(t *testing.T, name string) message {
	t.Helper()
	deadline := time.After(node.Deadline)
	for {
		select {
		case reported := <-m.reported:
			if _, alive := reported["WATCHDOG"]; alive && name != "WATCHDOG" {
				continue
			}
			if _, ok := reported[name]; !ok {
				t.Fatalf("the service manager was reported %v, want %s", reported, name)
			}
			return reported
		case <-deadline:
			t.Fatalf("the service manager wasn't reported %s", name)
		}
	}
}

// monotonic is the kernel's monotonic clock in microseconds.
func monotonic(t *testing.T) int64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return now.Nano() / 1000
}

// What the agent asks of the kernel for itself, and what it is given at first.
const (
	agentScore = 100
	mostFiles  = 4000
	fewFiles   = 1024
)

// An agent under a service manager tells it how it is doing, has of the kernel what it
// asks for, and passes none of that on to its pods.
func TestService(t *testing.T) {
	t.Parallel()
	n := node.New(t, binary, node.Options{Config: fmt.Sprintf("oomScoreAdj: %d\nmaxOpenFiles: %d", agentScore, mostFiles)})
	m := listenAsManager(t, filepath.Join(n.Base, "notify"))
	n.Write("a.yaml", pod("a"))
	n.Write("g.yaml", pod("g", "resources: {limits: {cpu: 100m, memory: 32Mi}}"))
	n.Write("b.yaml", pod("b", "resources: {requests: {memory: 1Mi}}"))
	loosen(t, filepath.Join(n.RootDir, "plugins"))
	n.StartAs(node.Life{Env: append(m.env(), "WATCHDOG_USEC=1000000"), Before: fmt.Sprintf("ulimit -Sn %d", fewFiles)})

	if status := m.await(t, "READY")["STATUS"]; !strings.Contains(status, node.Name) {
		t.Errorf("the status is %q, want the node's name in it", status)
	}
	if err := answersCRI(n); err != nil {
		t.Errorf("the agent says it is ready, but its runtime isn't: %v", err)
	}
	s := n.Await("the pods run", node.Ready("a", "b", "g"))
	checkReload(t, n, m)
	for range 2 {
		m.await(t, "WATCHDOG")
	}
	checkChildren(t, n)
	checkScores(t, n, s)
	checkFiles(t, n, s)
	checkLayout(t, n)
	checkExitCodes(t, n)

	n.Stop()
	m.await(t, "STOPPING")
	if out, code := n.Deckhand("pods"); code != 3 {
		t.Errorf("without an agent, deckhand pods ends with %d: %s", code, out)
	}
	checkLink(t, n)
}

// checkExitCodes runs commands that scripts go by.
func checkExitCodes(t *testing.T, n *node.Node) {
	t.Helper()
	job := file(t, n, "job.yaml", pod("job", "args: [exit, '7']", "spec.restartPolicy: Never"))
	bad := file(t, n, "bad-config.yaml", "maxPods: -1\n")
	for command, want := range map[string]int{
		"pods": 0, "why": 0, "version": 0, "config view": 0, "config check " + n.ConfigFile(): 0,
		"why nobody": 1, "logs nobody": 1, "config check " + bad: 1,
		"bods": 2, "pods --wade": 2, "logs": 2, "config check": 2, "replay " + n.ConfigFile(): 2,
		"run " + job: 7,
	} {
		if out, code := n.Deckhand(strings.Fields(command)...); code != want {
			t.Errorf("deckhand %s ends with %d, want %d: %s", command, code, want, out)
		}
	}
}

// answersCRI asks the embedded runtime, now and without patience.
func answersCRI(n *node.Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), node.Deadline)
	defer cancel()
	conn, err := cri.Dial(ctx, cri.Options{Endpoint: n.RuntimeEndpoint()})
	if err != nil {
		return err
	}
	conn.Close()
	return nil
}

// checkReload has the agent read its configuration again: a bad one, and the good one.
func checkReload(t *testing.T, n *node.Node, m *manager) {
	t.Helper()
	good, err := os.ReadFile(n.ConfigFile())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, status string }{{"maxPods: -1\n", "maxPods"}, {string(good), ""}} {
		if err := os.WriteFile(n.ConfigFile(), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		before := monotonic(t)
		n.Signal(syscall.SIGHUP)
		reported := m.await(t, "RELOADING")
		if at, err := strconv.ParseInt(reported["MONOTONIC_USEC"], 10, 64); err != nil || at < before || at > monotonic(t) || reported["RELOADING"] != "1" {
			t.Errorf("of the reload after %d was reported %v", before, reported)
		}
		if reported := m.await(t, "READY"); reported["READY"] != "1" || !strings.Contains(reported["STATUS"], c.status) {
			t.Errorf("after the reload was reported %v, want %q in the status", reported, c.status)
		}
	}
}

// checkChildren looks for the service manager's variables in the environment of all that
// the agent has brought about.
func checkChildren(t *testing.T, n *node.Node) {
	t.Helper()
	kinds := map[string]int{}
	for pid, command := range n.Children() {
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			t.Errorf("%s: %v", command, err)
		}
		for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC"} {
			if strings.Contains("\x00"+string(environment), "\x00"+name+"=") {
				t.Errorf("%s is in the environment of %s", name, command)
			}
		}
		program, _, _ := strings.Cut(command, " ")
		kinds[filepath.Base(program)]++
	}
	if kinds["containerd"] != 1 || kinds["containerd-shim-runc-v2"] == 0 || kinds["web"] != 3 {
		t.Errorf("there are %v, want containerd, its shims and three containers", kinds)
	}
}

// checkScores looks what the kernel would kill first. The agent has what it was configured to
// have, containers have their class's; one below that of containerd takes a right that
// not every host gives.
func checkScores(t *testing.T, n *node.Node, s local.Snapshot) {
	t.Helper()
	if score := oomScore(t, n.PID()); score != agentScore {
		t.Errorf("the agent's OOM score is %d, want %d", score, agentScore)
	}
	least := oomScore(t, n.Containerd())
	if mayLower(t) && least != -999 {
		t.Errorf("containerd's OOM score is %d", least)
	}
	for name, want := range map[string]int{"a": 1000, "b": 999, "g": -997} {
		if score := oomScore(t, firstProcess(t, n, string(view(t, s, name).Pod.UID), containerID(t, s, name, "web"))); score != max(want, least) {
			t.Errorf("the OOM score of %s is %d, want %d (containerd has %d)", name, score, max(want, least), least)
		}
	}
}

// mayLower reports whether this process, and so the agent, may lower OOM scores.
func mayLower(t *testing.T) bool {
	t.Helper()
	var data [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0]); err != nil {
		t.Fatal(err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

func oomScore(t *testing.T, pid int) int {
	t.Helper()
	return number(t, fmt.Sprintf("/proc/%d/oom_score_adj", pid))
}

func number(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// firstProcess is the first process of a container or sandbox.
func firstProcess(t *testing.T, n *node.Node, uid, id string) int {
	t.Helper()
	procs, err := n.CgroupFile(uid, id, "cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(procs, "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// checkFiles looks how many files may be open. The agent has what it was configured to have,
// pods what the agent was started with: old programs can't deal with more.
func checkFiles(t *testing.T, n *node.Node, s local.Snapshot) {
	t.Helper()
	if got := openFiles(t, n.PID()); got < mostFiles {
		t.Errorf("the agent may have %d files open, want %d", got, mostFiles)
	}
	uid := string(view(t, s, "a").Pod.UID)
	for id, name := range n.Sandboxes() {
		if name != "a-"+node.Name {
			continue
		}
		// The pause program does as it is reported. One made by Go takes what it can get.
		if got := openFiles(t, firstProcess(t, n, uid, id)); got != fewFiles {
			t.Errorf("a pod may have %d files open, want %d", got, fewFiles)
		}
		return
	}
	t.Error("the pod has no sandbox")
}

// openFiles is the soft limit of open files of a process.
func openFiles(t *testing.T, pid int) uint64 {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Fatal(err)
	}
	return limit.Cur
}

// loosen makes a directory that everybody can write to.
func loosen(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
}

// checkLayout looks for the kubelet's directories. plugins was there, open to everybody.
func checkLayout(t *testing.T, n *node.Node) {
	t.Helper()
	for name, mode := range map[string]fs.FileMode{
		"pods": 0o750, "plugins": 0o755, "plugins_registry": 0o750, "pod-resources": 0o750, "device-plugins": 0o750, "checkpoints": 0o700, "pki": 0o755,
	} {
		info, err := os.Lstat(filepath.Join(n.RootDir, name))
		if err != nil {
			t.Errorf("directory %s: %v", name, err)
			continue
		}
		if info.Mode() != fs.ModeDir|mode {
			t.Errorf("directory %s has mode %v, want %v", name, info.Mode(), mode)
		}
	}
}

// checkLink puts a link in place of a directory that plugins trust. No agent takes that.
func checkLink(t *testing.T, n *node.Node) {
	t.Helper()
	dir, elsewhere := filepath.Join(n.RootDir, "plugins"), filepath.Join(n.RootDir, "elsewhere")
	if err := os.Rename(dir, elsewhere); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, dir); err != nil {
		t.Fatal(err)
	}
	before := n.RunningIDs()
	end := n.Run(node.Life{})
	last := end.Stderr[strings.LastIndex(strings.TrimSuffix(end.Stderr, "\n"), "\n")+1:]
	if end.Code != 1 || !strings.HasPrefix(last, "error: ") || !strings.Contains(last, dir) || !strings.Contains(last, "symbolic link") {
		t.Errorf("with a link in place of %s: %s", dir, end)
	}
	unchanged(t, before, n.RunningIDs())
}
