package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// What pods try to use beyond their limits they don't get: CPU time, memory (also by a child process), processes, and memory of
// all of them together. That the machine were out of memory nobody is told.
func TestLimitsHold(t *testing.T) {
	t.Parallel()
	const forPods, most, milli = 192 << 20, 64, 200
	machine, err := capacity.ReadMeminfo("/")
	if err != nil {
		t.Fatal(err)
	}
	n := startTools(t, fmt.Sprintf("podPidsLimit: %d", most), fmt.Sprintf("systemReserved: {memory: %q}", strconv.FormatInt(machine.Memory-forPods, 10)), "evictionHard: {memory.available: 0%}")
	const never = "restartPolicy: Never"
	once := func(name, command string, fields ...string) {
		n.Write(name+".yaml", toolPod(n, name, never, containers(tool("main", command, fields...))))
	}
	once("burns", "burn 3s", fmt.Sprintf("resources: {limits: {cpu: %dm, memory: 20Mi}}", milli))
	once("forks", "fork 1000")
	once("eats", "act -eat 64", "resources: {limits: {memory: 24Mi}}")
	once("parent", "parent 3 act -eat 64", "resources: {limits: {memory: 24Mi}}")
	killed := int32(3) // its child alone, on cgroup v1
	if cgroupV2() {
		killed = 137
	}
	n.Await("each has run into its limit", ended("burns", "main", 0, "Completed"), ended("forks", "main", 0, "Completed"), ended("eats", "main", 137, "OOMKilled"), ended("parent", "main", killed, "OOMKilled"))

	var forked struct {
		Children int
		Error    string
	}
	told(t, n, "forks", &forked)
	if forked.Children == 0 || forked.Children >= most || !strings.Contains(forked.Error, "resource temporarily unavailable") {
		t.Errorf("where %d processes and threads may be, it made %d processes: %s", most, forked.Children, forked.Error)
	}
	var burned struct{ Used, Took time.Duration }
	told(t, n, "burns", &burned)
	// As much as it may it only gets where others don't want the CPUs; more than that never. The measurement begins and ends within a period of 100 ms.
	if may := (burned.Took + 100*time.Millisecond) * milli / 1000; burned.Used == 0 || burned.Used > may*105/100 {
		t.Errorf("it has used %v of CPU time in %v, and may use %v", burned.Used, burned.Took, may)
	}

	// The pods that have ended hold no memory any more; two that have no limit of their own don't fit into what there is for pods.
	for _, name := range []string{"one", "two"} {
		once(name, "act -eat 130")
	}
	killedByKernel := func(pod string) node.Condition {
		return container(pod, "main", func(c v1.ContainerStatus) error {
			if end := c.State.Terminated; end == nil || end.ExitCode != 137 {
				return fmt.Errorf("%s is %+v", pod, c.State)
			}
			return nil
		})
	}
	n.Await("the kernel has killed one of two", func(s local.Snapshot) error {
		one, two := killedByKernel("one")(s), killedByKernel("two")(s)
		if one == nil || two == nil {
			return nil
		}
		return errors.Join(one, two)
	})
	used, err := kubepodsFile(n, "memory.max_usage_in_bytes", "memory.peak")
	if err != nil {
		t.Fatal(err)
	}
	// The kernel charges some pages past a limit rather than fail where it can't wait.
	if used > forPods+forPods/100 {
		t.Errorf("all pods together used %d bytes of memory, and may use %d", used, forPods)
	}
	if out, _ := n.Deckhand("events"); strings.Contains(out, "SystemOOM") {
		t.Errorf("the machine is said to be out of memory:\n%s", out)
	}
}

// told reads what a container printed as JSON.
func told(t *testing.T, n *node.Node, pod string, into any) {
	t.Helper()
	out, code := n.Deckhand("logs", pod)
	if err := json.Unmarshal([]byte(out), into); code != 0 || err != nil {
		t.Errorf("the log of %s, with code %d: %v\n%s", pod, code, err, out)
	}
}

// kubepodsFile reads a number of the control group of all pods: the first of these files that is there.
func kubepodsFile(n *node.Node, files ...string) (int64, error) {
	for _, file := range files {
		for _, hierarchy := range []string{"memory", ""} {
			text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", hierarchy, n.CgroupRoot, "kubepods", file))
			if err == nil {
				return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			}
		}
	}
	return 0, fmt.Errorf("no control group of all pods has %v", files)
}
