package cluster_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/deckhand-node/deckhand/internal/host/kernel"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

// TestRunCluster does what `make run-cluster` does, and what that says, on a machine whose only interface is the loopback
// one: the node gets Ready, an image gets in, and a pod reaches a Service by its name.
func TestRunCluster(t *testing.T) {
	if !embeddedtest.InNetwork(t) {
		return
	}
	base := t.TempDir()
	run, dir := filepath.Join(base, "run-cluster"), filepath.Join(base, "cluster")
	if out, err := exec.Command("go", "build", "-o", run, "./run").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("make", "--silent", "-C", "../..", "deckhand", "images").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	before := kernel.Sysctls("/proc/sys").Differences()
	runtime.LockOSThread() // run-cluster ends with the thread that started it
	defer runtime.UnlockOSThread()
	cmd := exec.Command(run, "--bin", "../../bin", "--dir", dir, "--kubernetes", "../kubernetes")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // mostly it has ended
		if out, err := exec.Command("../../bin/deckhand", "reset", "--yes", "--root-dir", filepath.Join(dir, "deckhand")).CombinedOutput(); err != nil {
			t.Errorf("reset: %v: %s", err, out)
		}
		if after := kernel.Sysctls("/proc/sys").Differences(); !slices.Equal(after, before) {
			t.Errorf("the kernel's settings were %q and are %q", before, after)
		}
	})
	var commands []string
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "make clean") {
		if line, ok := strings.CutPrefix(lines.Text(), "  "); ok {
			commands = append(commands, line)
		}
	}
	commands = append(commands, "kubectl get --raw /apis/metrics.k8s.io/v1beta1", // kubectl top has nothing yet
		"kubectl exec web -- /web get https://kubernetes.default/ || true") // its certificate isn't known in the pod
	shell := exec.CommandContext(t.Context(), "sh", "-ec", strings.Join(commands, "\n"))
	said, err := shell.CombinedOutput()
	if err != nil {
		t.Errorf("%q: %v", commands, err)
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{strings.ToLower(name), " Ready ", "client:   10.72.0.1:", "NodeMetrics",
		"x509: certificate signed by unknown authority"} {
		if !strings.Contains(string(said), want) {
			t.Errorf("there is no %q in what %q print: %s", want, commands, said)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C: %v", err)
	}
	for _, left := range [][]string{{"ip", "address", "show", "dev", "lo"}, {"nft", "list", "tables"}} {
		out, err := exec.Command(left[0], left[1:]...).CombinedOutput()
		if err != nil || strings.Contains(string(out), "203.0.113.1") || strings.Contains(string(out), "kube-proxy") {
			t.Errorf("%q: %v: %s", left, err, out)
		}
	}
}
