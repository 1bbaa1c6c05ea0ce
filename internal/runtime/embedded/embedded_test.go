package embedded_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/agent/reset"
	"github.com/deckhand-node/deckhand/internal/kit/socket"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Get(url)
	// A started container doesn't listen yet.
	for deadline := time.Now().Add(20 * time.Second); errors.Is(err, syscall.ECONNREFUSED) && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
		resp, err = client.Get(url)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func checkPod(t *testing.T, in *embeddedtest.Instance, pod embeddedtest.Pod, name string) {
	t.Helper()
	if text := get(t, "http://"+pod.IP+":8080/"); !strings.Contains(text, "pod:      "+name+"\n") {
		t.Errorf("pod %s answers %q", name, text)
	}
	client := cri.NewRuntimeServiceClient(in.Connect(t))
	list, err := client.ListContainers(t.Context(), &cri.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list.GetContainers() {
		if c.GetId() == pod.Container {
			if c.GetState() != cri.ContainerState_CONTAINER_RUNNING {
				t.Errorf("the container of pod %s is %v", name, c.GetState())
			}
			return
		}
	}
	t.Errorf("the runtime doesn't know the container of pod %s", name)
}

// Two runtimes side by side, with pods of the same name and UID, don't notice
// each other; taking one down leaves the other alone.
func TestTwoSideBySide(t *testing.T) {
	one, two := embeddedtest.Start(t), embeddedtest.Start(t)
	ports := func(port int32) []*cri.PortMapping {
		return []*cri.PortMapping{{Protocol: cri.Protocol_TCP, ContainerPort: 8080, HostPort: port}}
	}
	a := one.RunPod(t, "same", ports(18480))
	b := two.RunPod(t, "same", ports(18481))
	if a.IP == b.IP {
		t.Errorf("both pods have the address %s", a.IP)
	}
	for _, port := range []int{18480, 18481} {
		if text := get(t, fmt.Sprintf("http://127.0.0.1:%d/", port)); !strings.Contains(text, "pod:      same\n") {
			t.Errorf("host port %d answers %q", port, text)
		}
	}
	checkLoopbackGuarded(t, one, a)
	two.StopRun(t)
	two.Reset(t)
	checkPod(t, one, a, "same")
	if text := get(t, "http://127.0.0.1:18480/"); !strings.Contains(text, "pod:      same\n") {
		t.Errorf("the other host port answers %q", text)
	}
}

// checkLoopbackGuarded connects from a pod's network to a service of the host's 127.0.0.1, past the
// pod's own loopback interface.
func checkLoopbackGuarded(t *testing.T, in *embeddedtest.Instance, pod embeddedtest.Pod) {
	t.Helper()
	text, err := os.ReadFile("/var/lib/cni/results/" + in.Config.Bridge + "-" + pod.Sandbox + "-eth0")
	if err != nil {
		t.Fatal(err)
	}
	var attached struct{ NetNS string }
	if err := json.Unmarshal(text, &attached); err != nil {
		t.Fatal(err)
	}
	// Two services of the host that are alike, but for the address.
	listen := func(address string) string {
		l, err := net.Listen("tcp", address+":0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l.Addr().String()
	}
	closed, open := listen("127.0.0.1"), listen(netip.MustParseAddr(pod.IP).Prev().String())
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // Never unlocked: the thread stays in the pod's network, and ends.
		ns, err := os.Open(attached.NetNS)
		if err != nil {
			t.Error(err)
			return
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		// The pod's own kernel would drop the answer.
		for _, setting := range []string{"route_localnet", "accept_local"} {
			if err := os.WriteFile("/proc/sys/net/ipv4/conf/eth0/"+setting, []byte("1"), 0); err != nil {
				t.Error(err)
			}
		}
		dial := func(address string, timeout time.Duration) error {
			dialer := net.Dialer{Timeout: timeout, Control: func(_, _ string, c syscall.RawConn) error {
				var bound error
				err := c.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), "eth0") })
				return errors.Join(err, bound)
			}}
			conn, err := dialer.Dial("tcp", address)
			if err == nil {
				_ = conn.Close()
			}
			return err
		}
		if err := dial(open, 20*time.Second); err != nil {
			t.Errorf("the pod doesn't reach the host at all: %v", err)
		}
		if err := dial(closed, time.Second); err == nil {
			t.Errorf("the pod reaches %s of the host", closed)
		}
	}()
	<-done
}

// A containerd that runs is adopted, also where this boot has another name, as in a namespace or on a machine that was restored from a snapshot; so are containers
// without one.
func TestAgentRestartAdopts(t *testing.T) {
	in := embeddedtest.Prepare(t)
	above := filepath.Dir(in.Config.RootDir)
	if err := os.Symlink(above, filepath.Join(above, "link")); err != nil {
		t.Fatal(err)
	}
	in.Config.RootDir = filepath.Join(above, "link", filepath.Base(in.Config.RootDir)) // as /var/lib often is a link to another disk
	in.Launch(t)
	pod := in.RunPod(t, "one", nil)
	pid := in.Runtime.PID()
	if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err != nil || !strings.Contains("\x00"+string(env), "\x00GOGC=30\x00") {
		t.Errorf("it keeps as much garbage as it likes: %q, %v", env, err)
	}
	in.StopRun(t)
	l, err := in.Config.Layout()
	if err != nil {
		t.Fatal(err)
	}
	another := func() {
		t.Helper()
		if err := os.WriteFile(l.BootID(), []byte("00000000-0000-4000-8000-000000000000"), 0o600); err != nil {
			t.Fatal(err)
		}
		in.Launch(t)
		checkPod(t, in, pod, "one")
	}
	another()
	if in.Runtime.PID() != pid {
		t.Errorf("containerd was process %d and is %d: it wasn't adopted", pid, in.Runtime.PID())
	}
	in.StopRun(t)
	if err := in.Runtime.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	another()
}

// A containerd that answers and that nobody sees from here is left alone with all that it uses, also by a reset.
func TestContainerdElsewhere(t *testing.T) {
	config := embedded.Config{RootDir: t.TempDir(), PodCIDR: "127.0.0.0/24", Bridge: "lo"} // with which nothing can be made
	l, err := config.Layout()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(os.RemoveAll(l.Run()), os.Remove(l.RunBase())) }) // others may have theirs there
	state := filepath.Join(l.State(), "in use")
	if err := errors.Join(l.Make(), os.MkdirAll(l.State(), 0o700), os.WriteFile(l.BootID(), []byte("00000000-0000-4000-8000-000000000000"), 0o600), os.WriteFile(state, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	elsewhere, err := socket.Listen(l.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	runtime, err := embedded.New(config, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup // each waits a while
	for what, do := range map[string]func() error{
		"start": func() error { return runtime.Start(t.Context()) },
		"reset": func() error { return reset.Run(t.Context(), reset.Config{Runtime: config}, logr.Discard()) },
	} {
		both.Go(func() {
			if err := do(); err == nil || !strings.Contains(err.Error(), "another PID namespace") {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	both.Wait()
	if _, err := os.Stat(state); err != nil {
		t.Error(err)
	}
}

// The pause image needs nobody to put its archive into the images directory.
func TestPauseImageComesAlong(t *testing.T) {
	in := embeddedtest.Prepare(t)
	if err := os.Remove(filepath.Join(in.Config.RootDir, "images", "pause.tar")); err != nil {
		t.Fatal(err)
	}
	in.Launch(t)
	checkPod(t, in, in.RunPod(t, "one", nil), "one")
}

// Another configuration needs another containerd, under the same pods.
func TestChangedConfigurationRestarts(t *testing.T) {
	in := embeddedtest.Start(t)
	pod := in.RunPod(t, "one", nil)
	pid := in.Runtime.PID()
	in.StopRun(t)
	in.Config.LogLevel = "info"
	in.Launch(t)
	if in.Runtime.PID() == pid {
		t.Error("containerd goes on with the old configuration")
	}
	checkPod(t, in, pod, "one")
}

// An agent that only stops pods does without: on a full disk another containerd may not start.
func TestStopsOnlyKeepsContainerd(t *testing.T) {
	in := embeddedtest.Start(t)
	pid := in.Runtime.PID()
	in.StopRun(t)
	in.Config.LogLevel, in.Config.StopsOnly = "info", true
	in.Launch(t)
	if in.Runtime.PID() != pid {
		t.Error("containerd was restarted for another configuration")
	}
}

// So does another program: here a copy of the same, as after an upgrade.
func TestChangedProgramRestarts(t *testing.T) {
	in := embeddedtest.Start(t)
	pod := in.RunPod(t, "one", nil)
	pid := in.Runtime.PID()
	in.StopRun(t)
	text, err := os.ReadFile(filepath.Join(embeddedtest.Bin(t), "containerd"))
	if err != nil {
		t.Fatal(err)
	}
	upgraded := t.TempDir()
	if err := os.WriteFile(filepath.Join(upgraded, "containerd"), text, 0o755); err != nil {
		t.Fatal(err)
	}
	in.Config.BinDirs = append([]string{upgraded}, in.Config.BinDirs...)
	in.Launch(t)
	if in.Runtime.PID() == pid {
		t.Error("the old containerd goes on")
	}
	checkPod(t, in, pod, "one")
}

func TestDualStack(t *testing.T) {
	in := embeddedtest.Prepare(t)
	in.Config.PodCIDR += ",fd00:dead:beef::/112"
	in.Launch(t)
	pod := in.RunPod(t, "one", nil)
	status, err := cri.NewRuntimeServiceClient(in.Connect(t)).PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: pod.Sandbox})
	if err != nil {
		t.Fatal(err)
	}
	more := status.GetStatus().GetNetwork().GetAdditionalIps()
	if len(more) != 1 || !strings.HasPrefix(more[0].GetIp(), "fd00:dead:beef::") {
		t.Fatalf("the pod has the addresses %s and %v", pod.IP, more)
	}
	for _, ip := range []string{pod.IP, "[" + more[0].GetIp() + "]"} {
		if text := get(t, "http://"+ip+":8080/"); !strings.Contains(text, "pod:      one\n") {
			t.Errorf("%s answers %q", ip, text)
		}
	}
}

// Addresses that nobody holds any more don't use up a small range.
func TestStaleAddressesAreReleased(t *testing.T) {
	in := embeddedtest.Prepare(t)
	dir := filepath.Join(in.Config.RootDir, "cni", "addresses", in.Config.Bridge)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	base, _ := strings.CutSuffix(in.Config.PodCIDR, "0/24")
	for i := 2; i < 255; i++ {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(base, i)), []byte("gone\r\neth0"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in.Launch(t)
	checkPod(t, in, in.RunPod(t, "one", nil), "one")
}

// Killed under the agent that started it, and under one that adopted it; also where the first one that is started then can't be used.
func TestKilledContainerdComesBack(t *testing.T) {
	in := embeddedtest.Prepare(t)
	var refuse atomic.Bool
	var refused atomic.Int64
	in.Config.OnStart = func(pid int) error {
		if !refuse.CompareAndSwap(true, false) {
			return nil
		}
		refused.Store(int64(pid))
		return errors.New("it can't be moved")
	}
	in.Launch(t)
	pod := in.RunPod(t, "one", nil)
	for _, who := range []string{"its parent", "an adopter"} {
		pid := in.Runtime.PID()
		refuse.Store(true)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "containerd is back under "+who, func() bool {
			now := in.Runtime.PID()
			if now == 0 || now == pid || refuse.Load() || now == int(refused.Load()) {
				return false
			}
			_, err := cri.NewRuntimeServiceClient(in.Connect(t)).Version(t.Context(), &cri.VersionRequest{})
			return err == nil
		})
		checkPod(t, in, pod, "one")
		in.StopRun(t)
		in.Launch(t)
	}
	second := in.RunPod(t, "two", nil)
	checkPod(t, in, second, "two")
}

// waitUntil asks again and again: for what another process does there is no event.
func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Directories with spaces, quotes and a great length work all the same.
func TestOddRootDir(t *testing.T) {
	in := embeddedtest.Prepare(t)
	old := in.Config.RootDir
	in.Config.RootDir = filepath.Join(filepath.Dir(old), `it's a "root" é %41 directory`, strings.Repeat("long ", 20))
	if err := os.MkdirAll(filepath.Dir(in.Config.RootDir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(old, in.Config.RootDir); err != nil {
		t.Fatal(err)
	}
	in.Launch(t)
	pod := in.RunPod(t, "one", []*cri.PortMapping{{Protocol: cri.Protocol_TCP, ContainerPort: 8080, HostPort: 18482}})
	checkPod(t, in, pod, "one")
	in.StopRun(t)
	in.Reset(t)
	if _, err := os.Lstat(in.Config.RootDir); !os.IsNotExist(err) {
		t.Errorf("the root directory is still there: %v", err)
	}
}

func TestStartSaysWhyContainerdWontRun(t *testing.T) {
	in := embeddedtest.Prepare(t)
	// A file where containerd wants a directory.
	if err := os.MkdirAll(filepath.Join(in.Config.RootDir, "containerd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(in.Config.RootDir, "containerd", "root"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := embedded.New(in.Config, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = r.Start(ctx)
	if err == nil || !strings.Contains(err.Error(), "not a directory") || !strings.Contains(err.Error(), "it ended") {
		t.Errorf("Start says %v", err)
	}
}

// A containerd that has no inotify instance left serves no CRI, and doesn't try again: another one is started when it can.
func TestContainerdWithoutCRI(t *testing.T) {
	in := embeddedtest.Prepare(t)
	wrapped := t.TempDir()
	mark := filepath.Join(wrapped, "limited")
	script := fmt.Sprintf("#!/bin/sh\nif [ ! -e %[1]s ]; then\n: > %[1]s\n"+
		"exec unshare --user --map-root-user sh -c 'echo 0 > /proc/sys/user/max_inotify_instances; exec %[2]s \"$@\"' sh \"$@\"\nfi\nexec %[2]s \"$@\"\n",
		mark, filepath.Join(embeddedtest.Bin(t), "containerd"))
	if err := os.WriteFile(filepath.Join(wrapped, "containerd"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	in.Config.BinDirs = append([]string{wrapped}, in.Config.BinDirs...)
	in.Launch(t)
	checkPod(t, in, in.RunPod(t, "one", nil), "one")
	log, err := os.ReadFile(filepath.Join(in.Config.RootDir, "containerd", "containerd.log"))
	if err != nil || !strings.Contains(string(log), "couldn't initialize inotify") {
		t.Errorf("the first containerd wasn't limited: %v\n%s", err, log)
	}
}

func TestNewRefusesBadConfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*embedded.Config)
		want   string
	}{
		"relative root": {func(c *embedded.Config) { c.RootDir = "x" }, "has to be an absolute path"},
		"root /":        {func(c *embedded.Config) { c.RootDir = "/" }, "can't be /"},
		"comma":         {func(c *embedded.Config) { c.RootDir = "/a,b" }, "overlayfs can't mount"},
		"newline":       {func(c *embedded.Config) { c.RootDir = "/a\nb" }, "control character"},
		"CIDR":          {func(c *embedded.Config) { c.PodCIDR = "10.0.0.1/24" }, "did you mean 10.0.0.0/24?"},
		"two IPv4":      {func(c *embedded.Config) { c.PodCIDR = "10.0.0.0/24,10.1.0.0/24" }, "one of IPv4 and one of IPv6"},
		"tiny CIDR":     {func(c *embedded.Config) { c.PodCIDR = "10.0.0.0/31" }, "too small"},
		"bridge":        {func(c *embedded.Config) { c.Bridge = "br0; reboot" }, "interface name"},
		"log level":     {func(c *embedded.Config) { c.LogLevel = "loud" }, "one of trace"},
		"pause image":   {func(c *embedded.Config) { c.PauseImage = "a b" }, "image reference"},
	} {
		t.Run(name, func(t *testing.T) {
			config := embedded.Config{RootDir: "/x", PodCIDR: "192.0.2.0/24", Bridge: "x"}
			c.change(&config)
			_, err := embedded.New(config, logr.Discard())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("New says %v, not %q", err, c.want)
			}
		})
	}
}
