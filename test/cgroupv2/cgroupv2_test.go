// Package cgroupv2 holds one test: deckhand with its embedded runtime and real
// containers on cgroup v2, whatever the host has. The host lends its programs,
// read-only; everything else lives and ends with a virtual machine.
package cgroupv2

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/test/cgroupv2/vm"
	"github.com/deckhand-node/deckhand/test/figures"
)

// machineTime is how long the machine may take from boot to power-off.
const machineTime = 10 * time.Minute

// want is what the guest has to tell. Weights are cgroup v2's for the CPU shares
// of 500m, 100m and none (512, 102 and 2), as the OCI runtimes convert them.
var want = map[string]string{
	"a file on the host": "read-only file system",
	"pressure":           "open /proc/pressure/cpu: no such file or directory",

	"besteffort QoS cgroup cpu.weight": "1",
	"burstable QoS cgroup cpu.weight":  "17",
	// What pods request is protected as far as those around them allow (MemoryQoS).
	"kubepods memory.min":             "83886080",
	"burstable QoS cgroup memory.low": "16777216",

	"guaranteed qosClass":                   "Guaranteed",
	"guaranteed pod cpu.max":                "50000 100000",
	"guaranteed pod cpu.weight":             "59",
	"guaranteed pod memory.max":             "67108864",
	"guaranteed pod memory.min":             "67108864",
	"guaranteed pod memory.swap.max":        "0",
	"guaranteed pod pids.max":               "128",
	"guaranteed container memory.oom.group": "1",
	"guaranteed container cpu.max":          "50000 100000",
	"guaranteed container cpu.weight":       "59",
	"guaranteed container memory.max":       "67108864",
	"guaranteed container memory.min":       "67108864",
	"guaranteed container memory.high":      "max",
	"guaranteed container memory.swap.max":  "0",
	"guaranteed container processes":        "web",
	"guaranteed restarts":                   "0",
	"guaranteed at pod IP":                  "guaranteed is here",
	"guaranteed at host port":               "guaranteed is here",

	"burstable qosClass":                   "Burstable",
	"burstable pod cpu.max":                "max 100000",
	"burstable pod cpu.weight":             "17",
	"burstable pod memory.max":             "50331648",
	"burstable pod memory.low":             "16777216",
	"burstable pod memory.swap.max":        "0",
	"burstable pod pids.max":               "128",
	"burstable container memory.oom.group": "1",
	"burstable container cpu.max":          "max 100000",
	"burstable container cpu.weight":       "17",
	"burstable container memory.max":       "50331648",
	"burstable container memory.low":       "16777216",
	"burstable container memory.high":      "46972928", // 0.9 of the way from request to limit, in whole pages
	"burstable container memory.swap.max":  "0",
	"burstable container processes":        "web",
	"burstable restarts":                   "0",
	"burstable at pod IP":                  "burstable is here",

	"kernel's group":                   "0::/",
	"first process's group":            "0::/",
	"guest's group":                    "0::/system",
	"agent's group":                    "0::/deckhand",
	"containerd's group":               "0::/runtime",
	"agent's group after kill -9":      "0::/deckhand",
	"measured parts of the host":       "kubelet misc pods runtime",
	"containerd's group after kill -9": "0::/runtime",

	// A container whose child has used too much memory ends as a whole, unless singleProcessOOMKill says otherwise. The second of these
	// agents can't read the kernel's log.
	"end of group":                    "OOMKilled 137",
	"end of single":                   "OOMKilled 3",
	"starts without the kernel's log": "1",

	// A pod that takes too much of the memory of all pods is evicted before the kernel kills anything.
	"the hog": "Failed Evicted: The node was low on resource: memory. Threshold quantity: 80Mi, available: N. " +
		"Container main was using N, request is 0, has larger consumption of memory. Signal: allocatableMemory.available.",
	"the kernel's alarm": "allocatableMemory.available: /kubepods reached a limit",

	"SystemOOM of node/guest": "System OOM encountered, victim process: sleep, pid: VICTIM",

	"burstable QoS cgroup cpu.weight after kill -9": "17",
	"kubepods memory.min after kill -9":             "83886080",
	"guaranteed at pod IP after kill -9":            "guaranteed is here",
	"guaranteed at host port after kill -9":         "guaranteed is here",
	"burstable at pod IP after kill -9":             "burstable is here",

	"pods' groups left": "",
	"pods' mounts left": "",
	"the agent's end":   "exit status 0",
}

// same is what an agent that was killed and started again has to find as it was.
var same = []string{"uid", "qosClass", "container id", "restarts"}

func TestPodsOnCgroupV2(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test runs real containers and needs root")
	}
	k := vm.Find(t)
	dir := k.Stage(t, "./guest")
	for _, pkg := range []string{"resources/cgroup", "resources/cgroup/tree", "resources/stats", "host/alarm"} {
		vm.Build(t, filepath.Join(dir, filepath.Base(pkg)+".test"), "test", "../../internal/"+pkg, "cgroupv2")
	}
	for _, name := range []string{"guaranteed.yaml", "burstable.yaml", "config.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("make", "--silent", "-C", "../..", "kubelet").CombinedOutput(); err != nil {
		t.Fatalf("build the kubelet: %v\n%s", err, out)
	}
	result := k.Run(t, dir, machineTime)
	check(t, result.Facts)
	compare(t, result.Facts)
	t.Logf("the kubelet took %s", result.Facts["the kubelet took"])
	vm.LogIfFailed(t, result.Facts)
}

// compared are the figures of both pods, which do nothing.
var compared = figures.Comparison{
	Idle:      func(pod string) bool { return pod != "" },
	Unsettled: func(string) bool { return false },
	Except: map[string]string{
		"container_memory_kernel_usage": "the kubelet reads it on cgroup v1 alone",
		"container_spec_cpu_shares":     "it makes another weight of the same shares when it takes a pod over, and has told the least one of a container",
	},
}

// compare holds what deckhand says that pods use against what the kubelet said of the same containers. No kernel of this kind has pressure: then there is
// none of groups.
func compare(t *testing.T, facts map[string]string) {
	t.Helper()
	said := func(agent string) figures.Said {
		said := figures.Said{}
		for _, page := range figures.Pages {
			said[page] = []byte(facts[agent+"'s "+page])
			delete(facts, agent+"'s "+page) // too much to be shown
		}
		return said
	}
	kubelet, own := said("kubelet"), said("deckhand")
	compared.Compare(t, kubelet, own)
	figures.WithoutPressure(t, own)
	for page, file := range map[string]string{"/metrics/cadvisor": "resources/stats/testdata/cadvisor-1.36.txt", "/metrics/resource": "report/metrics/testdata/kubelet-1.36-metrics.txt"} {
		list, err := os.ReadFile("../../internal/" + file)
		if err != nil {
			t.Fatal(err)
		}
		figures.Listed(t, page, kubelet[page], list)
		figures.Listed(t, page, own[page], list)
	}
}

func check(t *testing.T, facts map[string]string) {
	t.Helper()
	vm.Check(t, facts, want)
	for _, fact := range []string{"controllers", "guaranteed container cgroup.controllers"} {
		for _, controller := range []string{"cpu", "io", "memory", "pids"} {
			if !slices.Contains(strings.Fields(facts[fact]), controller) {
				t.Errorf("%s are %q, without %s", fact, facts[fact], controller)
			}
		}
	}
	for _, pod := range []string{"guaranteed", "burstable"} {
		for _, what := range same {
			before, after := facts[pod+" "+what], facts[pod+" "+what+" after kill -9"]
			if before == "" || before != after {
				t.Errorf("%s %s was %q and is %q after kill -9", pod, what, before, after)
			}
		}
	}
}
