package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/host/clock"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// onlineCPUs are the machine's.
func onlineCPUs(t *testing.T) cpuset.CPUSet {
	t.Helper()
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	set, err := cpuset.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// runsOn is the condition that the kernel runs a ready pod's containers on these CPUs. It waits for that, as the agent reports no change
// when a container gets other CPUs.
func runsOn(n *node.Node, pod string, want cpuset.CPUSet) node.Condition {
	return node.Each([]string{pod}, func(v local.PodView) error {
		for _, c := range v.Pod.Status.ContainerStatuses {
			_, id, _ := strings.Cut(c.ContainerID, "://")
			n.Eventually(fmt.Sprintf("container %s of pod %s runs on the CPUs %s", c.Name, pod, want), func() error {
				text, err := n.CgroupFile(string(v.Pod.UID), id, "cpuset.cpus", "cpuset.cpus.effective")
				if err != nil {
					return err
				}
				if set, err := cpuset.Parse(text); err != nil || !set.Equals(want) {
					return fmt.Errorf("it runs on %q (%v)", text, err)
				}
				return nil
			})
		}
		return nil
	})
}

// recorded is what the agent has recorded in the kubelet's file.
func recorded(t *testing.T, n *node.Node) (policy, shared string, entries map[string]map[string]string) {
	t.Helper()
	var file struct {
		PolicyName, DefaultCPUSet string
		Entries                   map[string]map[string]string
	}
	text, err := os.ReadFile(filepath.Join(n.RootDir, "cpu_manager_state"))
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file.PolicyName, file.DefaultCPUSet, file.Entries
}

// A Guaranteed container with whole CPUs has them to itself, from its start on; all others leave them, and get them back when it has
// ended. A restart, a damaged file and a change of the policy end no container and need no file deleted by hand.
func TestExclusiveCPUs(t *testing.T) {
	t.Parallel()
	all := onlineCPUs(t)
	if all.Size() < 2 {
		t.Fatal("this test needs 2 CPUs")
	}
	reserved := cpuset.New(all.List()[0])
	const whole = "resources: {limits: {cpu: 1, memory: 64Mi}}"
	static := fmt.Sprintf("cpuManagerPolicy: static\nreservedSystemCPUs: %q", reserved.String())
	n := node.New(t, binary, node.Options{Config: static})
	n.Start()
	n.Write("shared.yaml", pod("shared"))
	n.Await("a pod shares all CPUs", node.Ready("shared"), runsOn(n, "shared", all))
	n.Write("own.yaml", pod("own", whole))
	s := n.Await("a CPU is another pod's own", node.Ready("shared", "own"))
	policy, shared, entries := recorded(t, n)
	own, err := cpuset.Parse(entries[string(view(t, s, "own").Pod.UID)]["web"])
	if err != nil || own.Size() != 1 || !own.IsSubsetOf(all.Difference(reserved)) {
		t.Fatalf("its own CPU is %s (%v)", own, err)
	}
	rest := all.Difference(own)
	n.Await("all run on theirs", runsOn(n, "own", own), runsOn(n, "shared", rest))
	uid, id := string(view(t, s, "own").Pod.UID), containerID(t, s, "own", "web")
	for what, at := range map[string]string{"container": id, "pod": ""} {
		if quota, err := n.CgroupFile(uid, at, "cpu.cfs_quota_us", "cpu.max"); err != nil || quota != "-1" && !strings.HasPrefix(quota, "max") {
			t.Errorf("the %s with a CPU of its own is limited to %s (%v)", what, quota, err)
		}
	}
	if policy != "static" || shared != rest.String() || len(entries) != 1 || entries[uid]["web"] != own.String() {
		t.Errorf("recorded are %s, %s, %v", policy, shared, entries)
	}
	n.Write("late.yaml", pod("late"))
	n.Await("a later pod shares the rest", node.Ready("late"), runsOn(n, "late", rest))

	n.Kill()
	file := filepath.Join(n.RootDir, "cpu_manager_state")
	if err := os.WriteFile(file, []byte(`{"policyName":"static","defaultCpuSet":"0-99","entries":{"x":`), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Start()
	n.Await("a damaged file changes nothing", node.Ready("shared", "own", "late"), noRestarts, runsOn(n, "own", own), runsOn(n, "shared", rest), runsOn(n, "late", rest))
	n.Eventually("the file is written again", func() error {
		if policy, shared, entries := recorded(t, n); policy != "static" || shared != rest.String() || entries[uid]["web"] != own.String() {
			return fmt.Errorf("recorded are %s, %s, %v", policy, shared, entries)
		}
		return nil
	})
	if _, err := os.Stat(file + ".corrupt"); err != nil {
		t.Error("the damaged file wasn't kept:", err)
	}

	n.Kill()
	n.Configure("")
	n.Start()
	n.Await("without the policy, all run on all CPUs", node.Ready("shared", "own", "late"), noRestarts, runsOn(n, "own", all), runsOn(n, "shared", all), runsOn(n, "late", all))
	n.Kill()
	n.Configure(static)
	n.Start()
	n.Await("with the policy again, the running pod has a CPU to itself", node.Ready("shared", "own", "late"), noRestarts, runsOn(n, "own", own), runsOn(n, "shared", rest), runsOn(n, "late", rest))
	if again := n.Await("still", node.Ready("own")); containerID(t, again, "own", "web") != id {
		t.Error("the container was started again")
	}
	n.Remove("own.yaml")
	n.Await("its CPU is shared again", node.Ready("shared", "late"), runsOn(n, "shared", all), runsOn(n, "late", all))
}

// No thread of a container that shares CPUs runs on a CPU that another container has to itself, from the moment on in
// which that one's process exists: threads ask for their CPU a thousand times a second, while such containers start
// and end.
func TestNobodyElseRuns(t *testing.T) {
	t.Parallel()
	all := onlineCPUs(t)
	if all.Size() < 2 {
		t.Fatal("this test needs 2 CPUs")
	}
	reserved := cpuset.New(all.List()[0])
	own := cpuset.New(all.Difference(reserved).List()[0])
	n := startTools(t, "cpuManagerPolicy: static", fmt.Sprintf("reservedSystemCPUs: %q", reserved.String()))
	const lasts = 40 * time.Second
	n.Write("sampler.yaml", toolPod(n, "sampler", "restartPolicy: Never", containers(tool("main", fmt.Sprint("sample ", lasts)))))
	first := n.Await("it samples", node.Ready("sampler"), runsOn(n, "sampler", all))
	uid, id := string(view(t, first, "sampler").Pod.UID), containerID(t, first, "sampler", "main")
	type span struct{ from, to time.Duration }
	var alone []span
	for began, i := time.Now(), 0; time.Since(began) < lasts-8*time.Second; i++ {
		name := fmt.Sprint("own", i)
		n.Write(name+".yaml", toolPod(n, name, "restartPolicy: Never", containers(tool("main", "act", "resources: {limits: {cpu: 1, memory: 64Mi}}"))))
		s := n.Await("a pod has a CPU to itself", node.Ready(name), runsOn(n, name, own))
		from := startOf(t, n, string(view(t, s, name).Pod.UID), containerID(t, s, name, "main"))
		time.Sleep(100 * time.Millisecond) // in which threads are sampled
		alone = append(alone, span{from, clock.SinceBoot()})
		n.Remove(name + ".yaml")
		n.Eventually("its CPU is shared again", func() error {
			if text, err := n.CgroupFile(uid, id, "cpuset.cpus", "cpuset.cpus.effective"); err != nil || text != all.String() {
				return fmt.Errorf("the sampler runs on the CPUs %q (%v)", text, err)
			}
			return nil
		})
	}
	n.Await("all is sampled", ended("sampler", "main", 0, "Completed"))
	var stays []struct {
		From, To time.Duration
		CPU      int
		Samples  int
	}
	told(t, n, "sampler", &stays)
	samples, onOwn := 0, 0
	for _, stay := range stays {
		samples += stay.Samples
		if !own.Contains(stay.CPU) {
			continue
		}
		onOwn += stay.Samples
		for _, s := range alone {
			if stay.From < s.to && stay.To > s.from {
				t.Errorf("a thread ran on CPU %d from %v to %v, which was another container's from %v to %v", stay.CPU, stay.From, stay.To, s.from, s.to)
			}
		}
	}
	t.Logf("%d starts, %d samples, %d of them on CPU %s", len(alone), samples, onOwn, own)
	if len(alone) < 5 || samples < 10_000 || onOwn == 0 {
		t.Error("this shows nothing")
	}
}

// startOf is when a container's first process began, after the machine's boot.
func startOf(t *testing.T, n *node.Node, uid, id string) time.Duration {
	t.Helper()
	pids, err := n.CgroupFile(uid, id, "cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	pid, _, _ := strings.Cut(strings.TrimSpace(pids), "\n")
	text, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	ticks, err := strconv.ParseInt(fields[19], 10, 64) // starttime (proc(5)), of 10 ms, rounded down
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ticks+1) * 10 * time.Millisecond
}
