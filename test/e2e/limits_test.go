package e2e

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// limit is a value of a control group: its file and what is in it, on cgroup v1 and on v2.
type limit struct{ v1, v1Value, v2, v2Value string }

func cpuLimit(quota, period string) limit {
	v2 := limit{"cpu.cfs_quota_us", quota, "cpu.max", quota + " " + period}
	if quota == "-1" {
		v2.v2Value = "max " + period
	}
	return v2
}

func memoryLimit(mebi int64) limit {
	bytes := strconv.FormatInt(mebi<<20, 10)
	return limit{"memory.limit_in_bytes", bytes, "memory.max", bytes}
}

// limited fails the test unless the control group of a container, or of the pod as a
// whole if the container is empty, has these values.
func limited(t *testing.T, n *node.Node, s local.Snapshot, pod, name string, limits ...limit) {
	t.Helper()
	id := ""
	if name != "" {
		id = containerID(t, s, pod, name)
	}
	for _, l := range limits {
		file, value := l.v1, l.v1Value
		if cgroupV2() {
			file, value = l.v2, l.v2Value
		}
		got, err := n.CgroupFile(string(view(t, s, pod).Pod.UID), id, file)
		if err != nil || got != value {
			t.Errorf("%s of container %q of pod %s is %q, want %q (%v)", file, name, pod, got, value, err)
		}
	}
}

func cgroupV2() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// What the node's settings, a pod's class and its RuntimeClass make of its limits.
func TestLimits(t *testing.T) {
	t.Parallel()
	n := startTools(t, "podPidsLimit: 64", "cpuCFSQuotaPeriod: 50ms")
	const look = "look -stay /proc/self/oom_score_adj"
	n.Write("class.yaml", "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: heavy}, handler: runc, overhead: {podFixed: {cpu: 100m, memory: 16Mi}}}")
	n.Write("g.yaml", toolPod(n, "g", "runtimeClassName: heavy", containers(tool("main", look, "resources: {limits: {cpu: 200m, memory: 32Mi}}"))))
	n.Write("b.yaml", toolPod(n, "b", containers(tool("main", look, "resources: {requests: {cpu: 100m, memory: 512Mi}, limits: {cpu: 300m}}"), tool("other", look))))
	n.Write("e.yaml", toolPod(n, "e", containers(tool("main", look))))
	s := n.Await("they run", node.Ready("g", "b", "e"))

	pids := limit{"pids.max", "64", "pids.max", "64"}
	limited(t, n, s, "g", "", cpuLimit("15000", "50000"), memoryLimit(48), limit{"cpu.shares", "307", "cpu.weight", weight(307)}, pids)
	limited(t, n, s, "g", "main", cpuLimit("10000", "50000"), memoryLimit(32), limit{"cpu.shares", "204", "cpu.weight", weight(204)})
	limited(t, n, s, "b", "", cpuLimit("-1", "50000"), limit{"cpu.shares", "102", "cpu.weight", weight(102)}, pids)
	limited(t, n, s, "b", "main", cpuLimit("15000", "50000"), limit{"cpu.shares", "102", "cpu.weight", weight(102)})
	limited(t, n, s, "b", "other", limit{"cpu.shares", "2", "cpu.weight", weight(2)})
	limited(t, n, s, "e", "", pids)
	if !cgroupV2() {
		limited(t, n, s, "g", "main", limit{v1: "cpu.cfs_period_us", v1Value: "50000"})
	}
	noHugePages(t, n, s, "g")
	for pod, want := range map[string]int{"g": -997, "e": 1000} {
		mayBeKilled(t, n, pod, "main", want, want)
	}
	// The more of the node's memory it requests, the later.
	mayBeKilled(t, n, "b", "main", 2, 998)
	mayBeKilled(t, n, "b", "other", 999, 999)
}

// weight is cgroup v2's for CPU shares.
func weight(shares uint64) string {
	return strconv.FormatUint(cgroups.ConvertCPUSharesToCgroupV2Value(shares), 10)
}

// noHugePages looks that a container that asks for no huge pages may use none, where the kernel can bound that.
func noHugePages(t *testing.T, n *node.Node, s local.Snapshot, pod string) {
	t.Helper()
	controllers, _ := os.ReadFile("/sys/fs/cgroup/cgroup.controllers") // there is none on cgroup v1
	if _, err := os.Stat("/sys/fs/cgroup/hugetlb"); err != nil && !strings.Contains(string(controllers), "hugetlb") {
		return
	}
	if runtime.GOARCH == "amd64" {
		limited(t, n, s, pod, "main", limit{"hugetlb.2MB.limit_in_bytes", "0", "hugetlb.2MB.max", "0"})
	}
}

// mayBeKilled looks at how readily the kernel kills a container for want of memory.
// Without CAP_SYS_RESOURCE nobody can make that less than it is for the runtime.
func mayBeKilled(t *testing.T, n *node.Node, pod, container string, least, most int) {
	t.Helper()
	may, err := embedded.HasCapability(unix.CAP_SYS_RESOURCE)
	if err != nil {
		t.Fatal(err)
	}
	if !may {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(n.Containerd()), "oom_score_adj"))
		if err != nil {
			t.Fatal(err)
		}
		own, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		least, most = max(least, own), max(most, own)
	}
	got, err := strconv.Atoi(sees(t, n, pod, container).Files["/proc/self/oom_score_adj"])
	if err != nil || got < least || got > most {
		t.Errorf("oom_score_adj of %s of %s is %d, want %d to %d (%v)", container, pod, got, least, most, err)
	}
}

// CPU limits can be left unenforced on a node, and seccomp's default be the runtime's profile.
func TestNodeDefaults(t *testing.T) {
	t.Parallel()
	n := startTools(t, "cpuCFSQuota: false", "seccompDefault: true")
	n.Write("d.yaml", toolPod(n, "d", containers(tool("main", "look -stay", "resources: {limits: {cpu: 200m, memory: 32Mi}}"),
		tool("unconfined", "look -stay", secured("seccompProfile: {type: Unconfined}"), "resources: {limits: {cpu: 200m, memory: 32Mi}}"))))
	s := n.Await("it runs", node.Ready("d"))
	limited(t, n, s, "d", "", cpuLimit("-1", "100000"), memoryLimit(64))
	limited(t, n, s, "d", "main", cpuLimit("-1", "100000"), memoryLimit(32), limit{"cpu.shares", "204", "cpu.weight", weight(204)})
	want(t, "seccomp mode where nothing is asked for", sees(t, n, "d", "main").Status["Seccomp"], 2)
	want(t, "seccomp mode of who is unconfined", sees(t, n, "d", "unconfined").Status["Seccomp"], 0)
}
