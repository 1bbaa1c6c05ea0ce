package cluster_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/bench/report"
	"github.com/deckhand-node/deckhand/internal/runtime/memcri"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// build builds deckhand with the race detector for the first test that asks, and returns its path.
var build func() (string, error)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "deckhand-cluster-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build = sync.OnceValues(func() (string, error) { return node.Build(dir) })
	return mounttest.Run(m)
}

// builtOnce is the path of the agent that all tests here run.
func builtOnce(t *testing.T) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// config is what a node of these tests differs in from a kubelet's defaults.
const config = `failCgroupV1: false
failSwapOn: false
nodeStatusUpdateFrequency: 1s
nodeStatusReportFrequency: 5m
nodeLeaseDurationSeconds: 8
registerWithTaints: [{key: test, value: one, effect: PreferNoSchedule}]
`

// rig is a node of a control plane.
type rig struct {
	*node.Node
	t *testing.T
	p *plane.Plane
	// name is the node's.
	name string
}

// join prepares a node that joins a control plane.
func join(t *testing.T, p *plane.Plane, binary, settings string, flags ...string) *rig {
	t.Helper()
	return joinAs(t, p, binary, node.Name, settings, flags...)
}

// joinAs is join under that name. Settings replace those of config.
func joinAs(t *testing.T, p *plane.Plane, binary, name, settings string, flags ...string) *rig {
	t.Helper()
	t.Cleanup(func() { // when the agent has ended
		if out, err := p.Kubectl("", "delete", "node", name, "--ignore-not-found"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	r := &rig{node.New(t, binary, node.Options{}), t, p, name}
	defaults := ""
	for line := range strings.Lines(config) {
		if key, _, _ := strings.Cut(line, ":"); !strings.Contains("\n"+settings, "\n"+key+":") {
			defaults += line
		}
	}
	r.Configure(defaults + fmt.Sprintf("port: %d\nauthentication: {x509: {clientCAFile: %s}}\n", r.Port(2), p.CA()) + settings)
	// The last flag counts: a cluster's node isn't at a loopback address.
	r.AddFlags("--hostname-override", name, "--kubeconfig", p.Node(name), "--node-ip", "0.0.0.0", "--address", "0.0.0.0")
	r.AddFlags(flags...)
	r.KeepSysctls()
	return r
}

// memoryRuntime starts a runtime with containers in memory, which has an image.
func (r *rig) memoryRuntime(image string) (s *memcri.Server, endpoint string) {
	r.t.Helper()
	s, err := memcri.New(memcri.Options{Images: []string{image}, WriteLogs: true, EventQueue: 100_000,
		CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS})
	socket := filepath.Join(r.Base, "cri.sock")
	if err == nil {
		err = s.Start(socket)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Close)
	return s, "unix://" + socket
}

// kubectl is what an administrator's kubectl prints.
func (r *rig) kubectl(args ...string) string {
	r.t.Helper()
	out, err := r.p.Kubectl("", args...)
	if err != nil {
		r.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// is waits until the node's condition Ready has a status.
func (r *rig) is(status v1.ConditionStatus) {
	r.t.Helper()
	r.kubectl("wait", "--for=condition=Ready="+string(status), "node/"+r.name, "--timeout=60s")
}

// created waits until the node's object is there.
func (r *rig) created() {
	r.t.Helper()
	r.kubectl("wait", "--for=create", "node/"+r.name, "--timeout=60s")
}

// object is the node's object.
func (r *rig) object() *v1.Node {
	r.t.Helper()
	var n v1.Node
	if err := json.Unmarshal([]byte(r.kubectl("get", "node", r.name, "-o", "json")), &n); err != nil {
		r.t.Fatal(err)
	}
	return &n
}

func ready(n *v1.Node) v1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c
		}
	}
	return v1.NodeCondition{}
}

// calls counts the node's calls by what they are, from the one with that number on.
func (r *rig) calls(from int) (map[string]int, int) {
	all := r.p.Calls()
	count := map[string]int{}
	for _, c := range all[from:] {
		count[c.Verb+" "+c.Resource]++
	}
	return count, len(all)
}

// TestNode: kubectl shows the node as it is, through the lives of its agent, its runtime and its object; and the agent does nothing
// else than what that takes.
func TestNode(t *testing.T) {
	binary := builtOnce(t)
	p := plane.Start(t, program)
	t.Run("lives", func(t *testing.T) { lives(t, p, binary) })
	t.Run("runtime comes late", func(t *testing.T) { runtimeComesLate(t, p, binary) })
	t.Run("external cloud", func(t *testing.T) { externalCloud(t, p, binary) })
	t.Run("not registered", func(t *testing.T) { notRegistered(t, p, binary) })
	t.Run("events", func(t *testing.T) { eventsAreTold(t, p, binary) })
	t.Run("many events", func(t *testing.T) { eventsBlockNothing(t, p) })
	if *busyPods > 0 {
		t.Run("busy", func(t *testing.T) { busy(t, p, binary, *busyPods) })
	}
	if wrong := plane.Wrong(p.Calls()); len(wrong) > 0 {
		t.Errorf("what a node may not: %q", wrong)
	}
}

func lives(t *testing.T, p *plane.Plane, binary string) {
	r := join(t, p, binary, "", "--node-labels", "example.com/rack=7", "--provider-id", "test://1")
	began := time.Now()
	r.Start()
	r.created()
	r.is(v1.ConditionTrue)
	t.Logf("ready %s after the agent was started", time.Since(began).Round(time.Millisecond))
	first := r.object()
	r.registered(first)

	t.Run("at rest", r.atRest)
	t.Run("killed", r.killed)
	t.Run("removed", func(t *testing.T) {
		r.kubectl("delete", "node", node.Name)
		r.created()
		r.is(v1.ConditionTrue)
		if n := r.object(); n.UID == first.UID || !slices.Contains(n.Spec.Taints, first.Spec.Taints[0]) {
			t.Errorf("made again: %s, taints %v", n.UID, n.Spec.Taints)
		}
	})
	t.Run("stopped runtime", r.stoppedRuntime)
	t.Run("half-open connections", r.halfOpen)
}

// runtimeComesLate: a node isn't ready before its runtime is.
func runtimeComesLate(t *testing.T, p *plane.Plane, binary string) {
	r := join(t, p, binary, "")
	r.AddFlags("--container-runtime-endpoint", r.RuntimeEndpoint())
	r.Start()
	r.created()
	if c := ready(r.object()); c.Status != v1.ConditionFalse || c.Reason != "KubeletNotReady" || !strings.Contains(c.Message, "container runtime is down: ") {
		t.Errorf("without a runtime: %+v", c)
	}
	r.StartRuntime()
	r.is(v1.ConditionTrue)
}

// busyPods isn't set by make test: it takes a machine that does nothing else.
var busyPods = flag.Int("busy", 0, "how many pods are ended and started all the time while the lease is looked at, on a quiet machine (500)")

// busy: the lease waits for no worker, though many of them have pods to end and to start all the time and the agent has one processor.
func busy(t *testing.T, p *plane.Plane, binary string, pods int) {
	const image, renewals = "deckhand.local/web:1", 6
	r := join(t, p, binary, fmt.Sprintf("cgroupDriver: cgroupfs\nmaxPods: %d\n", 2*pods))
	s, endpoint := r.memoryRuntime(image)
	// An edited manifest is another pod.
	write := func(round int) {
		var manifests strings.Builder
		for i := range pods {
			manifests.WriteString(podNamed(fmt.Sprintf("busy-%d", i), fmt.Sprintf("{terminationGracePeriodSeconds: 0, containers: [{name: c, image: %s, args: [serve, '%d']}]}", image, round)))
		}
		r.Write("busy.yaml", manifests.String())
	}
	write(0)
	t.Setenv("GOMAXPROCS", "1")
	r.AddFlags("--container-runtime-endpoint", endpoint)
	r.Start()
	r.created()
	r.is(v1.ConditionTrue)
	_, from := r.calls(0)
	began, before := time.Now(), cpuTime(t, r.PID())
	var leases []time.Time
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for round := 1; len(leases) < renewals; round++ {
		if err := s.AwaitCalls(ctx, "RunPodSandbox", round*pods); err != nil {
			t.Fatal(err)
		}
		write(round)
		leases = nil
		for _, c := range r.p.Calls()[from:] {
			if c.Resource == "leases.coordination.k8s.io" {
				leases = append(leases, c.At)
			}
		}
	}
	t.Logf("%d pods made in %s, for which the agent worked %s", s.Calls("RunPodSandbox"), time.Since(began), cpuTime(t, r.PID())-before)
	const period = 2 * time.Second // a quarter of the lease's duration
	for i, at := range leases[1:] {
		if gap := at.Sub(leases[i]); gap > 2*period {
			t.Errorf("%s between two renewals of the lease, want one each %s", gap, period)
		}
	}
	r.Remove("busy.yaml")
	r.Await("they are gone", node.Only())
}

func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	d, err := report.CPUTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// externalCloud: the cloud's controller tells the addresses, and pods that have them wait for that.
func externalCloud(t *testing.T, p *plane.Plane, binary string) {
	r := join(t, p, binary, "", "--cloud-provider", "external")
	r.Write("host.yaml", fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: host}, spec: {hostNetwork: true, containers: [{name: web, image: %s, args: [serve, -listen, ':%d']}]}}", node.Image, r.Port(3)))
	r.Start()
	r.created()
	r.is(v1.ConditionTrue)
	n := r.object()
	if !slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == "node.cloudprovider.kubernetes.io/uninitialized" }) || len(n.Status.Addresses) > 0 {
		t.Errorf("taints %v, addresses %v", n.Spec.Taints, n.Status.Addresses)
	}
	r.Await("the pod waits for an address", node.Each([]string{"host"}, func(v local.PodView) error {
		if v.Pod.Status.Phase != v1.PodPending || len(v.Pod.Status.ContainerStatuses) > 0 && v.Pod.Status.ContainerStatuses[0].ContainerID != "" {
			return fmt.Errorf("%s", v.Pod.Status.Phase)
		}
		return nil
	}))
	r.kubectl("patch", "node", node.Name, "--subresource=status", "-p", `{"status": {"addresses": [{"type": "ExternalIP", "address": "198.51.100.1"}, {"type": "InternalIP", "address": "192.0.2.9"}, {"type": "InternalIP", "address": "2001:db8::9"}]}}`)
	s := r.Await("the pod runs", node.Ready("host"))
	if got := node.Find(s, "host").Pod.Status; got.HostIP != "192.0.2.9" || len(got.HostIPs) != 2 {
		t.Errorf("host IPs %v", got.HostIPs)
	}
	if n := r.object(); len(n.Status.Addresses) != 3 {
		t.Errorf("addresses %v", n.Status.Addresses)
	}
}

// notRegistered: with registerNode: false the node waits for its object.
func notRegistered(t *testing.T, p *plane.Plane, binary string) {
	r := join(t, p, binary, "registerNode: false\n")
	r.Write("a.yaml", fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: web, image: %s}]}}", node.Image))
	_, from := r.calls(0)
	r.Start()
	r.Await("the pod runs", node.Ready("a"))
	if count, _ := r.calls(from); count["create nodes"] > 0 {
		t.Errorf("calls %v", count)
	}
	if out, err := p.Kubectl("{apiVersion: v1, kind: Node, metadata: {name: node1, labels: {mine: kept}}}", "create", "-f", "-"); err != nil {
		t.Fatal(out, err)
	}
	r.is(v1.ConditionTrue)
	if n := r.object(); n.Labels["mine"] != "kept" || len(n.Spec.Taints) > 0 {
		t.Errorf("the object was changed: %v, %v", n.Labels, n.Spec.Taints)
	}
}

// registered checks what the agent says of its node.
func (r *rig) registered(n *v1.Node) {
	r.t.Helper()
	for key, want := range map[string]string{v1.LabelHostname: node.Name, v1.LabelOSStable: "linux", "example.com/rack": "7", "beta.kubernetes.io/os": "linux"} {
		if n.Labels[key] != want {
			r.t.Errorf("label %s: %q, want %q", key, n.Labels[key], want)
		}
	}
	if n.Annotations["volumes.kubernetes.io/controller-managed-attach-detach"] != "true" || n.Spec.ProviderID != "test://1" || n.Spec.Taints[0].Key != "test" {
		r.t.Errorf("annotations %v, spec %+v", n.Annotations, n.Spec)
	}
	s := &n.Status
	if s.Capacity.Cpu().IsZero() || s.Capacity.Memory().Cmp(*s.Allocatable.Memory()) < 0 || s.Capacity.Pods().Value() != 110 || s.Capacity.StorageEphemeral().IsZero() || s.Allocatable.Pods().Value() != 110 {
		r.t.Errorf("capacity %v, allocatable %v", s.Capacity, s.Allocatable)
	}
	if i := s.NodeInfo; !strings.HasPrefix(i.ContainerRuntimeVersion, "containerd://") || !strings.HasPrefix(i.KubeletVersion, "v1.36.3") || i.BootID == "" || i.KernelVersion == "" || i.OSImage == "" || i.Architecture == "" {
		r.t.Errorf("info %+v", i)
	}
	if len(s.RuntimeHandlers) == 0 || s.Features == nil || len(s.Addresses) < 2 || s.Addresses[0].Type != v1.NodeInternalIP || s.DaemonEndpoints.KubeletEndpoint.Port != int32(r.Port(2)) {
		r.t.Errorf("handlers %v, features %v, addresses %v, endpoints %v", s.RuntimeHandlers, s.Features, s.Addresses, s.DaemonEndpoints)
	}
	// As the upstream suites ask it, through the API server.
	if out := r.kubectl("get", "--raw", fmt.Sprintf("/api/v1/nodes/%s:%d/proxy/configz", node.Name, r.Port(2))); !strings.Contains(out, `"nodeLeaseDurationSeconds":8`) {
		r.t.Errorf("configz: %s", out)
	}
	if c := ready(n); c.Reason != "KubeletReady" {
		r.t.Errorf("ready: %+v", c)
	}
	lease := r.kubectl("get", "lease", "-n", v1.NamespaceNodeLease, node.Name, "-o", "jsonpath={.metadata.ownerReferences[0].uid} {.spec.holderIdentity} {.spec.leaseDurationSeconds}")
	if want := fmt.Sprintf("%s %s 8", n.UID, node.Name); lease != want {
		r.t.Errorf("lease %q, want %q", lease, want)
	}
}

// atRest counts calls while nothing happens.
func (r *rig) atRest(t *testing.T) {
	// The images are told once they are known.
	r.kubectl("wait", "--for=jsonpath={.status.images[0].names[0]}", "node/"+node.Name, "--timeout=60s")
	_, from := r.calls(0)
	renewals := 4
	r.Eventually(fmt.Sprint(renewals, " renewals of the lease"), func() error {
		if count, _ := r.calls(from); count["update leases.coordination.k8s.io"] < renewals {
			return fmt.Errorf("calls %v", count)
		}
		return nil
	})
	count, _ := r.calls(from)
	delete(count, "update leases.coordination.k8s.io")
	// A watch that ends is begun again.
	if delete(count, "watch nodes"); len(count) > 0 {
		t.Errorf("calls at rest: %v", count)
	}
}

// killed: the control plane finds out that the agent is gone, and that it is back. The conditions that were there stay.
func (r *rig) killed(t *testing.T) {
	r.Kill()
	r.is(v1.ConditionUnknown)
	_, from := r.calls(0)
	began := time.Now()
	r.Start()
	r.is(v1.ConditionTrue)
	t.Logf("ready %s after the agent was started again", time.Since(began).Round(time.Millisecond))
	if count, _ := r.calls(from); count["create nodes"] > 1 || count["patch nodes"] > 1 || count["patch nodes/status"] > 4 {
		t.Errorf("calls of an agent that is back: %v", count)
	}
}

// stoppedRuntime: a runtime that doesn't answer makes the node not ready, and doesn't delay its lease.
func (r *rig) stoppedRuntime(t *testing.T) {
	runtime := 0
	for pid, command := range r.Children() {
		if strings.Contains(command, "containerd.toml") || strings.Contains(strings.Fields(command)[0], "/containerd") && !strings.Contains(command, "shim") {
			runtime = pid
		}
	}
	if runtime == 0 {
		t.Fatalf("no runtime among %v", r.Children())
	}
	if err := syscall.Kill(runtime, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Whatever happens: a stopped process can't be taken down.
	defer func() { _ = syscall.Kill(runtime, syscall.SIGCONT) }()
	r.is(v1.ConditionFalse)
	if c := ready(r.object()); c.Reason != "KubeletNotReady" || !strings.Contains(c.Message, "container runtime is down") {
		t.Errorf("not ready: %+v", c)
	}
	if err := syscall.Kill(runtime, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	r.is(v1.ConditionTrue)
}

// halfOpen: connections on which nothing comes any more, nor goes, are found by the lease's renewals, and replaced.
func (r *rig) halfOpen(t *testing.T) {
	server, err := url.Parse(r.p.Server())
	if err != nil {
		t.Fatal(err)
	}
	var undo [][]string
	drop := func(rule ...string) {
		t.Helper()
		if out, err := exec.Command("iptables", append([]string{"-w", "-I", "OUTPUT"}, rule...)...).CombinedOutput(); err != nil {
			t.Fatalf("iptables: %v: %s", err, out)
		}
		undo = append(undo, append([]string{"-w", "-D", "OUTPUT"}, rule...))
	}
	defer func() {
		for _, rule := range undo {
			if out, err := exec.Command("iptables", rule...).CombinedOutput(); err != nil {
				t.Errorf("iptables %v: %v: %s", rule, err, out)
			}
		}
	}()
	ports := connections(t, r.PID(), server.Port())
	if len(ports) < 2 {
		t.Fatalf("the agent has the connections %v, want those of calls and of heartbeats", ports)
	}
	for _, port := range ports {
		drop("-p", "tcp", "--sport", port, "--dport", server.Port(), "-j", "DROP")
		drop("-p", "tcp", "--sport", server.Port(), "--dport", port, "-j", "DROP")
	}
	_, from := r.calls(0)
	began := time.Now()
	r.Eventually("the lease is renewed on another connection", func() error {
		if count, _ := r.calls(from); count["update leases.coordination.k8s.io"] == 0 {
			return fmt.Errorf("calls %v", count)
		}
		return nil
	})
	t.Logf("the lease is renewed %s after its connection went dead, with a duration of 8 s", time.Since(began).Round(time.Millisecond))
	r.kubectl("label", "node", node.Name, "seen=yes")
	r.is(v1.ConditionTrue)
}

// connections are the local ports of a process's connections to a port of 127.0.0.1.
func connections(t *testing.T, pid int, to string) []string {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	sockets := map[string]bool{}
	for _, l := range links {
		target, _ := os.Readlink(l) // it may be closed by now
		sockets[target] = true
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	var ports []string
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line) // number, local, remote, state, queues, timers, retransmits, uid, timeouts, inode
		if len(f) < 10 || !sockets["socket:["+f[9]+"]"] {
			continue
		}
		local, remote := port(f[1]), port(f[2])
		if remote == to {
			ports = append(ports, local)
		}
	}
	return ports
}

// port is that of an address in /proc/net/tcp.
func port(address string) string {
	_, hex, _ := strings.Cut(address, ":")
	n, _ := strconv.ParseUint(hex, 16, 16) // the heading has none
	return strconv.FormatUint(n, 10)
}
