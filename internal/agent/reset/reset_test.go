package reset_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/agent/reset"
	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// host is what of an instance can be seen on the host. Other tests run beside
// this one, so only what bears the instance's names counts.
func host(t *testing.T, in *embeddedtest.Instance) []string {
	t.Helper()
	var seen []string
	base := filepath.Dir(in.Config.RootDir)
	mounted, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounted)) {
		if strings.Contains(line, base) {
			seen = append(seen, "mount "+line)
		}
	}
	seen = append(seen, links(t, in)...)
	cgroups, err := filepath.Glob("/sys/fs/cgroup/*" + in.CgroupRoot)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range cgroups {
		seen = append(seen, "cgroup "+dir)
	}
	l, err := in.Config.Layout()
	if err != nil {
		t.Fatal(err)
	}
	rules, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	subnet, _, _ := strings.Cut(in.Config.PodCIDR, "0/24")
	for line := range strings.Lines(string(rules)) {
		if strings.Contains(line, subnet) || strings.Contains(line, l.Hash()) {
			seen = append(seen, "rule "+line)
		}
	}
	for _, pid := range processes(t, base) {
		seen = append(seen, "process "+strconv.Itoa(pid))
	}
	results, err := filepath.Glob("/var/lib/cni/results/" + in.Config.Bridge + "-*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(results, in.Config.RootDir, l.Run(), in.PodLogs, in.ContainerLogs) {
		if _, err := os.Lstat(path); err == nil {
			seen = append(seen, "file "+path)
		}
	}
	return seen
}

func links(t *testing.T, in *embeddedtest.Instance) []string {
	t.Helper()
	all, err := netlink.LinkList()
	for errors.Is(err, netlink.ErrDumpInterrupted) {
		all, err = netlink.LinkList()
	}
	if err != nil {
		t.Fatal(err)
	}
	bridge := -1
	for _, l := range all {
		if l.Attrs().Name == in.Config.Bridge {
			bridge = l.Attrs().Index
		}
	}
	var seen []string
	for _, l := range all {
		if bridge >= 0 && (l.Attrs().Index == bridge || l.Attrs().MasterIndex == bridge) {
			seen = append(seen, "link "+l.Attrs().Name)
		}
	}
	return seen
}

// processes are the living ones that have the text in their command line, plus
// those whose root is below it: containerd, shims, and what is in containers.
func processes(t *testing.T, text string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		mounts, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "mounts"))
		root, _, _ := bytes.Cut(mounts, []byte("\n"))
		if bytes.Contains(line, []byte(text)) || bytes.Contains(root, []byte(text)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// someone runs two pods, one with a port of the host, and a volume's mount.
func someone(t *testing.T) *embeddedtest.Instance {
	t.Helper()
	in := embeddedtest.Prepare(t)
	if err := mounts.Share(in.Config.RootDir); err != nil { // as the agent does
		t.Fatal(err)
	}
	in.Launch(t)
	in.RunPod(t, "port", []*cri.PortMapping{{Protocol: cri.Protocol_TCP, ContainerPort: 8080, HostPort: 18490}})
	in.RunPod(t, "stubborn", nil, "ignore-term")
	volume := filepath.Join(in.Config.RootDir, "pods", "uid-port", "volumes", "kubernetes.io~empty-dir", "memory")
	if err := os.MkdirAll(volume, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", volume, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(in.ContainerLogs, "port_default_web-1.log")
	if err := os.Symlink(filepath.Join(in.PodLogs, "default_port_uid-port", "web", "0.log"), link); err != nil {
		t.Fatal(err)
	}
	if len(host(t, in)) < 15 {
		t.Fatalf("the test sees too little of what runs: %q", host(t, in))
	}
	return in
}

func down(t *testing.T, in *embeddedtest.Instance) {
	t.Helper()
	in.StopRun(t)
	for range 2 {
		if err := reset.Run(t.Context(), in.ResetConfig(), logr.Discard()); err != nil {
			t.Error(err)
		}
		if left := host(t, in); len(left) > 0 {
			t.Errorf("left is:\n%s", strings.Join(left, "\n"))
		}
	}
}

func TestEverythingRuns(t *testing.T) {
	down(t, someone(t))
}

func killContainerd(t *testing.T, in *embeddedtest.Instance) {
	t.Helper()
	pid := in.Runtime.PID()
	in.StopRun(t)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestContainerdIsDead(t *testing.T) {
	in := someone(t)
	killContainerd(t, in)
	down(t, in)
}

func TestAllIsDead(t *testing.T) {
	in := someone(t)
	killContainerd(t, in)
	for _, pid := range processes(t, filepath.Dir(in.Config.RootDir)) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			t.Fatal(err)
		}
	}
	down(t, in)
}

func TestShimsAreDead(t *testing.T) {
	in := someone(t)
	killContainerd(t, in)
	for _, pid := range processes(t, "containerd.sock") {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err != nil || !bytes.Contains(line, []byte(in.Config.RootDir)) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	down(t, in)
}

// Nothing outside is touched: what a mount or a link leads to, another agent's
// logs, a directory that isn't ours.
func TestLeavesOthersAlone(t *testing.T) {
	in := someone(t)
	outside := t.TempDir()
	precious := filepath.Join(outside, "precious")
	if err := os.WriteFile(precious, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	mounted := filepath.Join(in.Config.RootDir, "pods", "uid-port", "subpath")
	if err := os.MkdirAll(mounted, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(outside, mounted, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(in.Config.RootDir, "pods", "uid-port", "link")); err != nil {
		t.Fatal(err)
	}
	otherLog := filepath.Join(in.PodLogs, "default_other_uid-other")
	if err := os.MkdirAll(otherLog, 0o750); err != nil {
		t.Fatal(err)
	}
	in.StopRun(t)
	if err := reset.Run(t.Context(), in.ResetConfig(), logr.Discard()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{precious, otherLog} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("someone else's file is gone: %v", err)
		}
	}
	if logs, err := os.ReadDir(in.PodLogs); err != nil || len(logs) != 1 {
		t.Errorf("the logs left are %v, error %v", logs, err)
	}
}

// A container gets its grace: the one that stops in time ends by itself, with 0.
func TestGrace(t *testing.T) {
	in := embeddedtest.Start(t)
	in.RunPod(t, "polite", nil)
	in.RunPod(t, "stubborn", nil, "ignore-term")
	in.StopRun(t)
	config := in.ResetConfig()
	config.Grace = 2 * time.Second
	begin := time.Now()
	if err := reset.Run(t.Context(), config, logr.Discard()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < config.Grace || took > config.Grace+10*time.Second {
		t.Errorf("with a stubborn container and %v of grace it took %v", config.Grace, took)
	}
}

// Ctx's end means: now, not: never.
func TestEndedContextStillTakesDown(t *testing.T) {
	in := someone(t)
	in.StopRun(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := reset.Run(ctx, in.ResetConfig(), logr.Discard()); err != nil {
		t.Error(err)
	}
	if left := host(t, in); len(left) > 0 {
		t.Errorf("left is:\n%s", strings.Join(left, "\n"))
	}
}

// What can't be finished can be finished later: the records stay until then.
func TestFailedNetworkKeepsRecords(t *testing.T) {
	in := someone(t)
	killContainerd(t, in)
	config := in.ResetConfig()
	config.Runtime.BinDirs = nil // So there is no plugin to remove the port mapping.
	err := reset.Run(t.Context(), config, logr.Discard())
	if err == nil || !strings.Contains(err.Error(), "network: ") || !strings.Contains(err.Error(), "is left for another try") {
		t.Fatalf("it says %v", err)
	}
	if left := host(t, in); !slices.ContainsFunc(left, func(s string) bool { return strings.HasPrefix(s, "rule ") }) {
		t.Fatalf("the test failed no step; left is:\n%s", strings.Join(left, "\n"))
	}
	down(t, in)
}

func TestUnclaimedRootStays(t *testing.T) {
	in := embeddedtest.Start(t)
	in.StopRun(t)
	l, err := in.Config.Layout()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(l.Marker()); err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(in.Config.RootDir, "theirs")
	if err := os.WriteFile(theirs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err = reset.Run(t.Context(), in.ResetConfig(), logr.Discard())
	if err == nil || !strings.Contains(err.Error(), "was there before deckhand") {
		t.Errorf("it says %v", err)
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Errorf("a stranger's file is gone: %v", err)
	}
	if err := os.RemoveAll(in.Config.RootDir); err != nil {
		t.Fatal(err)
	}
}

func TestRefusesSystemDirs(t *testing.T) {
	for _, dir := range []string{"/", "/etc", "/var/lib", "/usr/"} {
		err := reset.Run(t.Context(), reset.Config{Runtime: embedded.Config{RootDir: dir, PodCIDR: "192.0.2.0/24", Bridge: "x"}}, logr.Discard())
		if err == nil || !slices.ContainsFunc([]string{"not touched", "can't be /"}, func(s string) bool { return strings.Contains(err.Error(), s) }) {
			t.Errorf("%s: it says %v", dir, err)
		}
	}
}
