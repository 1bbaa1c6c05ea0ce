package cluster_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/deckhand-node/deckhand/internal/host/kernel"
)

// TestRunCluster does what `make run-cluster` does, and what that says.
func TestRunCluster(t *testing.T) {
	base := t.TempDir()
	run, dir := filepath.Join(base, "run-cluster"), filepath.Join(base, "cluster")
	if out, err := exec.Command("go", "build", "-o", run, "./run").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("make", "--silent", "-C", "../..", "deckhand").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	before := kernel.Sysctls("/proc/sys").Differences()
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
	commands = append(commands, "kubectl get --raw /apis/metrics.k8s.io/v1beta1") // kubectl top has nothing yet
	shell := exec.Command("sh", "-ec", strings.Join(commands, "\n"))
	nodes, err := shell.CombinedOutput()
	if name, _ := os.Hostname(); err != nil || !strings.Contains(string(nodes), strings.ToLower(name)) || !strings.Contains(string(nodes), " Ready ") || !strings.Contains(string(nodes), "NodeMetrics") {
		t.Errorf("%q: %v: %s", commands, err, nodes)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C: %v", err)
	}
}
