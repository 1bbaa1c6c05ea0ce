package stats_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup"
	"github.com/deckhand-node/deckhand/internal/resources/stats"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

func TestMain(m *testing.M) {
	os.Exit(mounttest.Main(func() int { return mounttest.Run(m) }))
}

// node is a machine whose pods are real control groups with real processes.
type node struct {
	t       testing.TB
	root    string
	groups  *cgroup.Manager
	pods    []*pod.Observed
	volumes []volume.Instance
	layers  map[string]usage.Usage
	walk    func(dir string)
	images  error
	hung    bool
	base    string
	meter   *usage.Meter

	systemGroups map[string]string
}

func (n *node) All() []*pod.Observed         { return n.pods }
func (n *node) Instances() []volume.Instance { return n.volumes }
func (n *node) WritableLayer(context.Context, types.UID) (map[string]usage.Usage, error) {
	return n.layers, nil
}
func (n *node) Measure(ctx context.Context, dir string) (usage.Usage, error) {
	if n.walk != nil {
		n.walk(dir)
	}
	return n.meter.Measure(ctx, dir)
}
func (n *node) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	if n.hung {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	fs := &runtimeapi.FilesystemUsage{Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: n.base},
		UsedBytes: &runtimeapi.UInt64Value{Value: 5000}, InodesUsed: &runtimeapi.UInt64Value{Value: 5}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{fs}, ContainerFilesystems: []*runtimeapi.FilesystemUsage{fs}}, n.images
}

func (n *node) SandboxImage(_ context.Context, id string) (string, error) {
	return "pause-of-" + id, nil
}

// hierarchies are the directories that groups are made in.
func hierarchies(t testing.TB) []string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup"}
	}
	var list []string
	for _, c := range []string{"cpu", "cpuacct", "memory", "pids"} {
		dir, err := filepath.EvalSymlinks("/sys/fs/cgroup/" + c)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(list, dir) {
			list = append(list, dir)
		}
	}
	return list
}

func newNode(t testing.TB) *node {
	if os.Geteuid() != 0 {
		t.Fatal("this test makes real cgroups: run it as root")
	}
	n := &node{t: t, root: fmt.Sprintf("/deckhand-test-stats-%d-%s", os.Getpid(), strings.ToLower(filepath.Base(t.Name()))), base: t.TempDir(), meter: usage.New(usage.Config{})}
	n.groups = cgroup.New(cgroup.Config{CgroupRoot: n.root}, logr.Discard())
	t.Cleanup(n.groups.Close)
	n.mkdir(n.root)
	n.mkdir(n.root + "/kubepods")
	return n
}

// mkdir makes a group, which is removed at the end.
func (n *node) mkdir(group string) {
	for _, h := range hierarchies(n.t) {
		dir := h + group
		if _, err := os.Stat(h + "/cgroup.controllers"); err == nil {
			_ = os.WriteFile(filepath.Dir(dir)+"/cgroup.subtree_control", []byte("+cpu +memory +pids"), 0) // which holds no processes then
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() {
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
				n.t.Errorf("remove %s: %v", dir, err)
			}
		})
	}
}

// add adds a pod with a sandbox and a container in which these run; nil for none.
func (n *node) add(name string, sandbox, container *exec.Cmd) *pod.Observed {
	n.t.Helper()
	o := &pod.Observed{UID: types.UID("uid-" + name), Name: name, Namespace: "ns",
		Sandboxes:  []pod.Sandbox{{ID: "s" + name, State: pod.SandboxReady, CreatedAt: time.Now().Add(-time.Hour)}},
		Containers: []pod.Container{{ID: "c" + name, Name: "main", Image: "web", State: pod.ContainerRunning, CreatedAt: time.Now().Add(-time.Hour)}}}
	n.pods = append(n.pods, o)
	group := n.group(o)
	n.mkdir(group)
	n.mkdir(group + "/s" + name)
	n.mkdir(group + "/c" + name)
	n.start(group+"/s"+name, sandbox)
	n.start(group+"/c"+name, container)
	return o
}

func (n *node) group(o *pod.Observed) string { return n.root + "/kubepods/pod" + string(o.UID) }

func (n *node) start(group string, cmd *exec.Cmd) {
	n.t.Helper()
	if cmd == nil {
		return
	}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for _, h := range hierarchies(n.t) {
		if err := os.WriteFile(h+group+"/cgroup.procs", fmt.Appendf(nil, "%d", cmd.Process.Pid), 0); err != nil {
			n.t.Fatal(err)
		}
	}
}

// busy and idle are programs that use all of a CPU that they get, and nothing.
func busy() *exec.Cmd { return exec.Command("sh", "-c", "while :; do :; done") }
func idle() *exec.Cmd { return exec.Command("sleep", "1000") }

// stopping is a program that stops itself once it runs.
func stopping() *exec.Cmd { return exec.Command("sh", "-c", "kill -STOP $$") }

func (n *node) config(files *usage.StatsReader) stats.Config {
	return stats.Config{Node: "node", Started: time.Now(), Groups: n.groups.Tree, Observed: n, Volumes: n, FileSystems: files, Layers: n, Meter: n, Runtime: n,
		VolumesEvery: time.Minute, RootDir: n.base, Logs: filepath.Join(n.base, "logs"), Memory: 1 << 40, Swap: 1 << 30, SystemGroups: n.systemGroups, Log: logr.Discard()}
}

func (n *node) sampler() *stats.Sampler {
	n.t.Helper()
	files := usage.NewStatsReader(usage.StatsConfig{Volumes: n.Instances})
	s := stats.New(n.config(files))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	n.t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, files.Close(context.Background())); err != nil {
			n.t.Error(err)
		}
		if t, ok := n.t.(*testing.T); ok {
			goleak.VerifyNone(t)
		}
	})
	return s
}

func summary(t *testing.T, s *stats.Sampler, only bool) *statsapi.Summary {
	t.Helper()
	got, err := s.Summary(t.Context(), only, 0)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func podOf(t *testing.T, s *statsapi.Summary, name string) *statsapi.PodStats {
	t.Helper()
	for i := range s.Pods {
		if s.Pods[i].PodRef.Name == name {
			return &s.Pods[i]
		}
	}
	t.Fatalf("there is no pod %s", name)
	return nil
}

// awaitCommand waits until the program of a group's process runs.
func awaitCommand(t *testing.T, group string) {
	t.Helper()
	for {
		procs, err := os.ReadFile(hierarchies(t)[0] + group + "/cgroup.procs")
		if err != nil {
			t.Fatal(err)
		}
		if name, _ := os.ReadFile("/proc/" + strings.TrimSpace(string(procs)) + "/comm"); string(name) == "sh\n" || string(name) == "sleep\n" {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// A process that takes all it gets of a CPU is seen doing so by the first answer and by later ones, and its rate is that of now: not
// that since it was started.
func TestRates(t *testing.T) {
	n := newNode(t)
	burn := busy()
	n.add("busy", nil, burn)
	n.add("idle", nil, idle())
	s := n.sampler()
	for _, p := range n.pods { // what it took to start them isn't what they do
		awaitCommand(t, n.group(p)+"/"+p.Containers[0].ID)
	}
	rate := func(of *statsapi.PodStats) float64 { return float64(*of.CPU.UsageNanoCores) / 1e9 }
	first := summary(t, s, true)
	if busy := rate(podOf(t, first, "busy")); busy <= 0 || busy > 1.1 {
		t.Errorf("at first the busy pod uses %.3f CPUs", busy)
	}
	time.Sleep(1100 * time.Millisecond) // the window of a rate
	second := summary(t, s, true)
	if busy, idle := rate(podOf(t, second, "busy")), rate(podOf(t, second, "idle")); busy < 3*idle {
		t.Errorf("the busy pod uses %.3f CPUs, the idle one %.3f", busy, idle)
	}
	a, b := podOf(t, first, "busy").CPU, podOf(t, second, "busy").CPU
	if want := float64(*b.UsageCoreNanoSeconds-*a.UsageCoreNanoSeconds) / b.Time.Sub(a.Time.Time).Seconds(); float64(*b.UsageNanoCores) < 0.8*want || float64(*b.UsageNanoCores) > 1.2*want {
		t.Errorf("the rate is %d, want about %.0f", *b.UsageNanoCores, want)
	}
	if err := burn.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	summary(t, s, true)
	time.Sleep(1100 * time.Millisecond)
	summary(t, s, true)
	time.Sleep(1100 * time.Millisecond)
	if busy := rate(podOf(t, summary(t, s, true), "busy")); busy > 0.01 {
		t.Errorf("stopped, the busy pod still uses %.3f CPUs", busy)
	}
}

// The first answer takes a second look, as there is no older one, and waits for it for less than 100 ms; the next one doesn't.
func TestFirstAnswer(t *testing.T) {
	n := newNode(t)
	n.add("a", nil, idle())
	synctest.Test(t, func(t *testing.T) {
		files := usage.NewStatsReader(usage.StatsConfig{Volumes: n.Instances})
		s := stats.New(n.config(files))
		for _, most := range []time.Duration{100 * time.Millisecond, 0} {
			began := time.Now()
			if p := podOf(t, summary(t, s, true), "a"); p.CPU.UsageNanoCores == nil || p.Containers[0].CPU.UsageNanoCores == nil {
				t.Errorf("no rate: %+v", p)
			}
			if took := time.Since(began); took > most || most > 0 && took == 0 {
				t.Errorf("it has waited for %s, want at most %s", took, most)
			}
			time.Sleep(2 * time.Second)
		}
		if err := files.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What comes and goes while it is looked at spoils nothing of the others, and no page.
func TestGroupsComeAndGo(t *testing.T) {
	n := newNode(t)
	n.add("whole", idle(), idle())
	const coming = 10
	for i := range coming {
		n.add(fmt.Sprint("p", i), nil, nil)
	}
	s := n.sampler()
	page := prometheus.NewPedanticRegistry()
	page.MustRegister(s.ContainerMetrics(func() (stats.Machine, error) { return stats.Machine{}, nil }))
	stop, ended := make(chan struct{}), make(chan int)
	go func() { // it ends with all of them there
		turns := 0
		defer func() { ended <- turns }()
		for {
			for _, o := range n.pods[1:] {
				group := n.group(o)
				for _, h := range hierarchies(t) {
					for _, below := range []string{"/s" + o.Name, "/c" + o.Name, ""} {
						_ = unix.Rmdir(h + group + below)
					}
					for _, below := range []string{"", "/s" + o.Name, "/c" + o.Name} {
						_ = unix.Mkdir(h+group+below, 0o755)
					}
				}
			}
			turns++
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for range 12 {
		got := summary(t, s, false)
		if p := podOf(t, got, "whole"); len(got.Pods) != 1+coming || p.CPU == nil || p.Memory == nil || p.Containers[0].CPU == nil || *p.ProcessStats.ProcessCount != 2 {
			t.Errorf("%d pods; the one that stays: %+v", len(got.Pods), p)
		}
		if _, err := page.Gather(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	if turns := <-ended; turns < 3 {
		t.Errorf("they have come and gone %d times", turns)
	}
}

// What a sample says is of the time that it says, and who asks within the age they allow shares it.
func TestAges(t *testing.T) {
	n := newNode(t)
	n.add("a", nil, idle())
	s := n.sampler()
	began := time.Now()
	one, err := s.Sample(t.Context(), stats.Full, 0)
	if err != nil {
		t.Fatal(err)
	}
	if at := one.Pods[0].At; at.Before(began) || at.After(time.Now()) {
		t.Errorf("a sample of %v says that it is of %v", began, at)
	}
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() {
			for _, level := range []stats.Level{stats.CPUAndMemory, stats.Full} {
				if other, err := s.Sample(context.Background(), level, time.Hour); err != nil || other != one {
					t.Errorf("another sample than the one that is young enough: %v", err)
				}
			}
		})
	}
	asking.Wait()
	if other, err := s.Sample(t.Context(), stats.Full, 0); err != nil || other == one || !other.Pods[0].At.After(one.Pods[0].At) {
		t.Errorf("the old sample instead of a new one: %v", err)
	}
	if other, err := s.Sample(t.Context(), stats.Detailed, time.Hour); err != nil || other.Level != stats.Detailed {
		t.Errorf("a sample without details: %v", err)
	}
}

// Between two looks there is nothing that runs, and a look starts no process.
func TestAtRest(t *testing.T) {
	n := newNode(t)
	n.add("a", idle(), idle())
	n.add("b", nil, idle())
	n.layers = map[string]usage.Usage{"main": {Bytes: 4096, Inodes: 3}}
	s := n.sampler()
	resource, containers := prometheus.NewPedanticRegistry(), prometheus.NewPedanticRegistry() // pages of their own
	resource.MustRegister(s.ResourceMetrics())
	containers.MustRegister(s.ContainerMetrics(func() (stats.Machine, error) { return stats.Machine{}, nil }))
	before, resting := ended(t), goleak.IgnoreCurrent()
	for range 2 {
		if got := summary(t, s, false); len(got.Pods) != 2 || podOf(t, got, "a").Containers[0].Rootfs == nil {
			t.Fatalf("a summary of %+v", got.Pods)
		}
		if _, err := resource.Gather(); err != nil {
			t.Fatal(err)
		}
		if _, err := containers.Gather(); err != nil {
			t.Fatal(err)
		}
	}
	goleak.VerifyNone(t, resting)
	if after := ended(t); after != before {
		t.Errorf("a look has started processes: those that have ended had %d page faults, and have %d", before, after)
	}
}

// ended is the number of page faults of this process's children that have ended: each has some.
func ended(t *testing.T) int64 {
	t.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &used); err != nil {
		t.Fatal(err)
	}
	return used.Minflt
}

// A pod's network is that of its sandbox, not the host's.
func TestNetwork(t *testing.T) {
	n := newNode(t)
	name := fmt.Sprintf("dh%d", os.Getpid())
	run := func(command ...string) {
		t.Helper()
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	sandbox := idle()
	sandbox.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	o := n.add("net", sandbox, idle())
	host := n.add("host", idle(), nil)
	host.Sandboxes[0].HostNetwork = true
	pid := fmt.Sprint(sandbox.Process.Pid)
	run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", pid)
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", name).Run() })
	run("ip", "link", "set", name, "up")
	run("nsenter", "-t", pid, "-n", "ip", "link", "set", "eth0", "up")
	s := n.sampler()
	before := podOf(t, summary(t, s, false), "net").Network
	link, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	const frames, size = 200, 1000
	frame := make([]byte, size)
	copy(frame, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5}) // to all, of a protocol for experiments
	for range frames {
		if err := unix.Sendto(socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Index}); err != nil {
			t.Fatal(err)
		}
	}
	const sent = frames * size
	after := podOf(t, summary(t, s, false), "net").Network
	if got := *after.RxBytes - *before.RxBytes; got < sent*95/100 || got > sent*3/2 || after.Name != "eth0" || len(after.Interfaces) != 1 {
		t.Errorf("of %d bytes, %d were counted on %+v", sent, got, after.Interfaces)
	}
	if h := podOf(t, summary(t, s, false), "host"); h.Network != nil {
		t.Errorf("a pod on the host's network has its figures: %+v", h.Network)
	}
	if o.Sandboxes[0].HostNetwork {
		t.Error("it is on its own network")
	}
}

// What can't be read of one group costs that value, and nothing else.
func TestOneBrokenGroup(t *testing.T) {
	n := newNode(t)
	broken := n.add("broken", nil, nil)
	gone := n.add("gone", nil, nil)
	n.add("whole", nil, idle())
	list := hierarchies(t)
	for _, g := range []string{"/sbroken", "/cbroken", ""} { // it has no group for CPU time any more
		if err := unix.Rmdir(list[min(1, len(list)-1)] + n.group(broken) + g); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range list {
		for _, g := range []string{"/sgone", "/cgone", ""} {
			if err := unix.Rmdir(h + n.group(gone) + g); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := n.sampler()
	got := summary(t, s, false)
	if p := podOf(t, got, "whole"); p.CPU == nil || p.Memory == nil || p.Containers[0].CPU == nil || *p.ProcessStats.ProcessCount != 1 {
		t.Errorf("the pod as a whole has no figures: %+v", p)
	}
	if p := podOf(t, got, "gone"); p.CPU != nil || p.Memory != nil {
		t.Errorf("a pod without groups has figures: %+v", p)
	}
	if p := podOf(t, got, "broken"); p.CPU != nil || len(list) > 1 && p.Memory == nil {
		t.Errorf("of the broken pod one value should be missing: %+v", p)
	}
	text, err := json.Marshal(got)
	if err != nil || strings.Contains(string(text), "null") {
		t.Errorf("what is missing isn't left out: %v %s", err, text)
	}
}

// Volumes: what they are, and that one which doesn't answer is left out, and holds nobody up for long.
func TestVolumes(t *testing.T) {
	n := newNode(t)
	o := n.add("a", nil, idle())
	n.layers = map[string]usage.Usage{"main": {Bytes: 4096, Inodes: 3}}
	disk, own, hung := filepath.Join(n.base, "disk"), filepath.Join(n.base, "own"), filepath.Join(n.base, "hung")
	logs := filepath.Join(n.base, "logs", "ns_a_"+string(o.UID), "main")
	for _, dir := range []string{disk, own, hung, logs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("tmpfs", own, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(own, unix.MNT_DETACH) })
	server := mounttest.Mount(t, hung)
	for _, dir := range []string{disk, own} {
		if err := os.WriteFile(dir+"/file", make([]byte, 128<<10), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(logs+"/0.log", make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	instance := func(name, path string, claim *v1.PersistentVolumeClaim) volume.Instance {
		i := volume.Instance{Spec: volume.Spec{Volume: &v1.Volume{Name: name}, Claim: claim}, Mounted: volume.Mounted{Path: path}}
		if claim != nil {
			i.Spec.Persistent = &v1.PersistentVolume{}
		}
		i.UID = o.UID
		return i
	}
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim"}}
	n.volumes = []volume.Instance{instance("disk", disk, nil), instance("own", own, nil), instance("claimed", own, claim), instance("hung", hung, claim)}
	server.Hang()
	s := n.sampler()
	began := time.Now()
	p := podOf(t, summary(t, s, false), "a")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a file system that hangs holds a summary up for %s", took)
	}
	server.Resume()
	used := map[string]uint64{}
	for _, v := range p.VolumeStats {
		used[v.Name] = *v.UsedBytes
		if (v.PVCRef != nil) != (v.Name == "claimed") {
			t.Errorf("volume %s has the claim %v", v.Name, v.PVCRef)
		}
	}
	block := uint64(4096)
	if d := used["disk"]; len(used) != 3 || d < 128<<10 || d > 128<<10+2*block || used["own"] != 128<<10 || used["claimed"] != 128<<10 {
		t.Errorf("used are %v", used)
	}
	c := p.Containers[0]
	if c.Rootfs == nil || *c.Rootfs.UsedBytes != 4096 || *c.Rootfs.InodesUsed != 3 || c.Logs == nil || *c.Logs.UsedBytes < 8192 {
		t.Errorf("the container's disk: %+v %+v", c.Rootfs, c.Logs)
	}
	if want := used["disk"] + 4096 + *c.Logs.UsedBytes; *p.EphemeralStorage.UsedBytes != want {
		t.Errorf("ephemeral storage is %d, want %d", *p.EphemeralStorage.UsedBytes, want)
	}
}

// A runtime that doesn't answer costs its own values, once for a second; a walk that fails costs what it would have found, and no more.
func TestHungRuntime(t *testing.T) {
	n := newNode(t)
	n.hung = true
	n.add("a", nil, idle())
	n.layers = map[string]usage.Usage{"main": {Bytes: 4096, Inodes: 3}}
	s := n.sampler()
	for range 3 {
		got := summary(t, s, false)
		if p := podOf(t, got, "a"); got.Node.Runtime.ImageFs != nil || p.CPU == nil || got.Node.Fs == nil || p.Containers[0].Rootfs == nil {
			t.Errorf("with a runtime that hangs: %+v %+v", got.Node.Runtime, p)
		}
	}
}

// What was found by a walk that takes long is shown with its own time until there is something newer.
func TestWalksHaveTheirOwnTime(t *testing.T) {
	n := newNode(t)
	n.add("a", nil, idle())
	n.layers = map[string]usage.Usage{}
	walks := make(chan struct{})
	n.walk = func(string) { <-walks }
	s := n.sampler()
	t.Cleanup(func() { close(walks) })
	if c := podOf(t, summary(t, s, false), "a").Containers[0]; c.Logs != nil {
		t.Errorf("logs that weren't measured yet: %+v", c.Logs)
	}
	walks <- struct{}{}
	var walked time.Time
	for walked.IsZero() { // the answer comes with one of the next samples
		if c := podOf(t, summary(t, s, false), "a").Containers[0]; c.Logs != nil {
			walked = c.Logs.Time.Time
		}
	}
	if c := podOf(t, summary(t, s, false), "a").Containers[0]; c.Logs == nil || !c.Logs.Time.Time.Equal(walked) || !c.CPU.Time.After(walked) {
		t.Errorf("what was found at %v is told as %+v in a sample of %v", walked, c.Logs, c.CPU.Time)
	}
}

// onCgroupV2 has the host have cgroup v2 in this mount namespace, until the end of the test. Where it has v1, no controller is in v2's hierarchy: there
// is CPU time, and pressure, but no figure of memory.
func onCgroupV2(t *testing.T) (memory bool) {
	t.Helper()
	const dir, list = "/sys/fs/cgroup", "/sys/fs/cgroup/cgroup.controllers"
	if _, err := os.Stat(list); err == nil {
		return true
	}
	mount := func(source, target, kind string, flags uintptr) {
		t.Helper()
		if err := unix.Mount(source, target, kind, flags, ""); err != nil {
			t.Fatalf("mount %s: %v", target, err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
				t.Errorf("take off %s: %v", target, err)
			}
		})
	}
	mount("none", dir, "cgroup2", 0)
	controllers := filepath.Join(t.TempDir(), "controllers")
	if err := os.WriteFile(controllers, []byte("cpu memory\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mount(controllers, list, "", unix.MS_BIND)
	return false
}

// A kernel with pressure has it of the node, of pods and of containers: those that wait for each other's CPU have some, and what is told is what the kernel
// tells. Where it has none, the summary has zeros, as the kubelet's, and the metrics nothing.
func TestPressure(t *testing.T) {
	memory := onCgroupV2(t)
	_, err := os.Stat("/proc/pressure/cpu")
	has := err == nil
	n := newNode(t)
	o := n.add("a", nil, busy())
	for range runtime.NumCPU() {
		n.start(n.group(o)+"/ca", busy())
	}
	s := n.sampler()
	n.layers = map[string]usage.Usage{}
	var got *statsapi.Summary
	waited := func(c *statsapi.CPUStats) bool { return c != nil && c.PSI != nil && c.PSI.Some.Total > 0 }
	for late := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) { // the kernel counts up every two seconds
		got = summary(t, s, false)
		p := podOf(t, got, "a")
		if !has || waited(got.Node.CPU) && waited(p.CPU) && waited(p.Containers[0].CPU) {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("nobody has waited for a CPU: %+v %+v %+v", got.Node.CPU, p.CPU, p.Containers[0].CPU)
		}
	}
	for what, psi := range pressures(got) {
		switch {
		case psi == nil:
			if memory || !strings.HasSuffix(what, " memory") {
				t.Errorf("there is no pressure of %s", what)
			}
		case !has && *psi != (statsapi.PSIStats{}):
			t.Errorf("%s has a pressure of %+v, which the kernel doesn't have", what, *psi)
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.ContainerMetrics(func() (stats.Machine, error) { return stats.Machine{}, nil }))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]float64{} // of the container
	for _, f := range families {
		for _, m := range f.Metric {
			if strings.HasPrefix(f.GetName(), "container_pressure_") && strings.Contains(m.String(), `value:"main"`) {
				series[strings.TrimPrefix(f.GetName(), "container_pressure_")] = m.GetCounter().GetValue()
			}
		}
	}
	if !has {
		if len(series) > 0 {
			t.Errorf("there is %v", series)
		}
		return
	}
	text, err := os.ReadFile("/sys/fs/cgroup" + n.group(o) + "/ca/cpu.pressure")
	if err != nil {
		t.Fatal(err)
	}
	_, total, _ := strings.Cut(string(text), "total=")
	var kernels float64
	if _, err := fmt.Sscan(total, &kernels); err != nil {
		t.Fatal(err)
	}
	if told := series["cpu_waiting_seconds_total"]; len(series) != 6 || told <= 0 || told > kernels/1e6 {
		t.Errorf("the kernel says %q, the metrics %v", text, series)
	}
}

// pressures are those of a summary, by what has them.
func pressures(s *statsapi.Summary) map[string]*statsapi.PSIStats {
	all := map[string]*statsapi.PSIStats{}
	of := func(what string, cpu *statsapi.CPUStats, memory *statsapi.MemoryStats, io *statsapi.IOStats) {
		all[what+" CPU"], all[what+" memory"], all[what+" IO"] = nil, nil, nil
		if cpu != nil {
			all[what+" CPU"] = cpu.PSI
		}
		if memory != nil {
			all[what+" memory"] = memory.PSI
		}
		if io != nil {
			all[what+" IO"] = io.PSI
		}
	}
	of("the node's", s.Node.CPU, s.Node.Memory, s.Node.IO)
	containers := func(kind string, list []statsapi.ContainerStats) {
		for i := range list {
			of(kind+list[i].Name+"'s", list[i].CPU, list[i].Memory, list[i].IO)
		}
	}
	containers("system container ", s.Node.SystemContainers)
	for i := range s.Pods {
		p := &s.Pods[i]
		of("pod "+p.PodRef.Name+"'s", p.CPU, p.Memory, p.IO)
		containers("container "+p.PodRef.Name+"/", p.Containers)
	}
	return all
}

// Clients of a kubelet read the structure without looking whether it is there (Summary API, in Kubernetes' node suite); on cgroup v1, whose
// kernel has no pressure of groups, it is zero. What the host's processes use is there, though nothing was moved into their group.
func TestSummaryOfThisHost(t *testing.T) {
	n := newNode(t)
	n.add("a", nil, idle())
	n.mkdir(n.root + "/system")
	n.systemGroups = map[string]string{statsapi.SystemContainerMisc: n.root + "/system"}
	got := summary(t, n.sampler(), false)
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	all := pressures(got)
	if len(all) != 15 { // of the node, two system containers, the pod and its container
		t.Errorf("there is pressure of %v", slices.Sorted(maps.Keys(all)))
	}
	for what, psi := range all {
		if psi == nil {
			t.Errorf("there is no pressure of %s", what)
		} else if err != nil && *psi != (statsapi.PSIStats{}) {
			t.Errorf("%s has a pressure of %+v on cgroup v1", what, *psi)
		}
	}
	i := slices.IndexFunc(got.Node.SystemContainers, func(c statsapi.ContainerStats) bool { return c.Name == statsapi.SystemContainerMisc })
	if i < 0 {
		t.Fatalf("there is no %s in %+v", statsapi.SystemContainerMisc, got.Node.SystemContainers)
	}
	m := got.Node.SystemContainers[i]
	const mb = 1 << 20
	if *m.Memory.UsageBytes < mb || *m.Memory.WorkingSetBytes < mb || *m.Memory.RSSBytes < mb || *m.CPU.UsageCoreNanoSeconds < 1e9 || m.Memory.AvailableBytes != nil {
		t.Errorf("%s uses %+v, %+v", m.Name, m.CPU, m.Memory)
	}
	if *m.Memory.UsageBytes > *got.Node.Memory.UsageBytes || m.CPU.UsageNanoCores == nil || m.Memory.Time != got.Node.Memory.Time {
		t.Errorf("the machine uses %+v, %s of that %+v, %+v", got.Node.Memory, m.Name, m.CPU, m.Memory)
	}
}

// gathered are the metrics of a node with a pod that has all there is, by name.
func gathered(t *testing.T, of func(*stats.Sampler) prometheus.Collector) map[string]*dto.MetricFamily {
	t.Helper()
	n := newNode(t)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket, other := os.NewFile(uintptr(pair[0]), "socket"), os.NewFile(uintptr(pair[1]), "other")
	defer socket.Close()
	defer other.Close()
	a, b := stopping(), stopping()
	a.ExtraFiles = []*os.File{socket, socket}
	n.add("a", idle(), a)
	n.add("b", nil, b)
	for _, cmd := range []*exec.Cmd{a, b} { // which have opened their libraries then, and closed them
		if _, err := unix.Wait4(cmd.Process.Pid, nil, unix.WUNTRACED, nil); err != nil {
			t.Fatal(err)
		}
	}
	n.layers = map[string]usage.Usage{"main": {Bytes: 4096, Inodes: 3}}
	if list := hierarchies(t); len(list) > 1 {
		if err := os.WriteFile(list[0]+n.group(n.pods[0])+"/cpu.cfs_quota_us", []byte("50000"), 0); err != nil {
			t.Fatal(err)
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(of(n.sampler()))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, f := range families {
		byName[f.GetName()] = f
		for _, m := range f.Metric {
			if at := m.GetTimestampMs(); at != 0 && time.Since(time.UnixMilli(at)) > time.Minute {
				t.Errorf("%s is of %v", f.GetName(), time.UnixMilli(at))
			}
		}
	}
	return byName
}

// compareMetrics compares names, types and labels with lines NAME TYPE LABELS of a list.
func compareMetrics(t *testing.T, want map[string]string, got map[string]*dto.MetricFamily, conditional string) {
	t.Helper()
	have := map[string]string{}
	for name, f := range got {
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		have[name] = strings.ToLower(f.GetType().String()) + " " + cmp.Or(strings.Join(labels, ","), "-")
	}
	for name := range want {
		if _, ok := have[name]; !ok && regexp.MustCompile(conditional).MatchString(name) {
			delete(want, name)
		}
	}
	if diff := gocmp.Diff(want, have); diff != "" {
		t.Errorf("(-kubelet's +deckhand's):\n%s", diff)
	}
}

func TestResourceMetrics(t *testing.T) {
	got := gathered(t, func(s *stats.Sampler) prometheus.Collector { return s.ResourceMetrics() })
	problems, err := promlint.NewWithMetricFamilies(slices.Collect(maps.Values(got))).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	list, err := os.ReadFile("../../report/metrics/testdata/kubelet-1.36-metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(list)) {
		if f := strings.Fields(line); f[len(f)-1] == "/metrics/resource" {
			want[f[0]] = f[1] + " " + f[2]
		}
	}
	compareMetrics(t, want, got, "^container_swap_limit_bytes$") // where there is a limit
}

// Of pods, and of a pod's containers, that have the same name, as while one still ends, a series is of the newest all the time.
func TestTwoPodsOfOneName(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"a", "b", "c"} {
		n.add(name, idle(), idle()).Name = "web-0"
	}
	n.pods[1].Sandboxes[0].CreatedAt = time.Now().Add(-time.Minute)
	newest := n.pods[1].Containers[0]
	newest.CreatedAt = time.Now().Add(-time.Minute)
	n.pods[1].Containers = append(n.pods[1].Containers, newest)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(n.sampler().ResourceMetrics())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		started := f.Metric[0].GetGauge().GetValue()
		if len(f.Metric) != 1 || f.GetName() == "container_start_time_seconds" && int64(started) != newest.CreatedAt.Unix() {
			t.Errorf("%s: %v", f.GetName(), f.Metric)
		}
	}
}

func TestContainerMetrics(t *testing.T) {
	got := gathered(t, func(s *stats.Sampler) prometheus.Collector {
		return s.ContainerMetrics(func() (stats.Machine, error) { return stats.Machine{Cores: 2, BootID: "boot"}, nil })
	})
	list, err := os.ReadFile("testdata/cadvisor-1.36.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(list)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		described, never, _ := strings.Cut(strings.TrimSpace(line), ": ")
		f := strings.Fields(described)
		if len(f) != 3 {
			t.Fatalf("line %q", line)
		}
		if never == "" {
			want[f[0]] = f[1] + " " + f[2]
		}
	}
	if len(want) < 50 {
		t.Fatalf("the list has %d metrics", len(want))
	}
	// Where the kernel has pressure, where there is a quota, and where containers have used disks.
	compareMetrics(t, want, got, "^container_pressure_|_cfs_|_cpu_quota$|^container_blkio_")
	label := func(m *dto.Metric, name string) string {
		for _, l := range m.Label {
			if l.GetName() == name {
				return l.GetValue()
			}
		}
		return ""
	}
	// One process in each of two pods, of which a's has two more descriptors, of sockets.
	for name, more := range map[string]float64{"container_processes": 0, "container_file_descriptors": 2, "container_sockets": 2} {
		of := map[string]float64{}
		for _, m := range got[name].Metric {
			if label(m, "container") == "main" {
				of[label(m, "pod")] = m.GetGauge().GetValue()
			}
		}
		if len(of) != 2 || of["a"] != of["b"]+more || name == "container_processes" && of["a"] != 1 {
			t.Errorf("%s: %v", name, of)
		}
	}
	// What is the machine's is no container's.
	for name, family := range got {
		if !strings.HasPrefix(name, "container_fs_") || name == "container_fs_usage_bytes" || name == "container_fs_limit_bytes" {
			continue
		}
		for _, m := range family.Metric {
			if label(m, "id") != "/" || !strings.HasPrefix(label(m, "device"), "/") && !strings.HasPrefix(name, "container_fs_inodes") {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
	// Of each pod one process is the container's and, in a, one the sandbox's; a pod's group has none of its own.
	counts := map[string]float64{}
	for _, m := range got["container_processes"].Metric {
		counts[label(m, "pod")+": "+label(m, "container")+" of "+label(m, "image")] = m.GetGauge().GetValue()
	}
	if diff := gocmp.Diff(map[string]float64{"a: main of web": 1, "a:  of pause-of-sa": 1, "b: main of web": 1, "b:  of pause-of-sb": 0}, counts); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	for i, m := range got["container_fs_reads_bytes_total"].Metric {
		if sectors := got["container_fs_sector_reads_total"].Metric[i].GetCounter().GetValue(); m.GetCounter().GetValue() != 512*sectors {
			t.Errorf("%v sectors: %v", sectors, m)
		}
	}
}

// BenchmarkSummary is the cost of a summary of pods with a sandbox and a container each, in control groups of the kernel, with the processes: all of it once a second, where nothing
// was walked through lately, and CPU and memory alone.
func BenchmarkSummary(b *testing.B) {
	for _, pods := range []int{100, 500} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			n := newNode(b)
			for i := range pods {
				n.add(fmt.Sprint("p", i), idle(), idle())
			}
			s := n.sampler()
			if _, err := s.Summary(b.Context(), false, 0); err != nil {
				b.Fatal(err)
			}
			for name, only := range map[string]bool{"all": false, "cpu-and-memory": true} {
				b.Run(name, func(b *testing.B) {
					b.ReportAllocs()
					var before, after unix.Rusage
					_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
					defer func() { // of all CPUs: a busy machine takes longer, but not this
						_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
						used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
						b.ReportMetric(float64(used)/float64(b.N)/1e6, "cpu-ms/op")
					}()
					for b.Loop() {
						summary, err := s.Summary(b.Context(), only, 0)
						if err != nil || len(summary.Pods) != pods {
							b.Fatal(err)
						}
						if err := json.NewEncoder(io.Discard).Encode(summary); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		})
	}
}
