package e2e

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

func TestResize(t *testing.T) {
	t.Parallel()
	// Room for one CPU and nothing else that the machine has.
	n := startTools(t, fmt.Sprintf("systemReserved: {cpu: %q}", strconv.Itoa(runtime.NumCPU()-1)))
	for name, test := range map[string]func(*testing.T, *node.Node){
		"in place": testResizeInPlace, "by restart": testResizeByRestart, "memory below use": testMemoryBelowUse,
		"sidecar": testResizeSidecar, "pod": testResizePod,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, n.For(t))
		})
	}
}

// size is a container's resources: CPU and memory, the limit twice the request.
func size(milli, mebi int64) string {
	return fmt.Sprintf("resources: {requests: {cpu: %dm, memory: %dMi}, limits: {cpu: %dm, memory: %dMi}}", milli, mebi, 2*milli, 2*mebi)
}

// hasSize is the condition that the status tells these resources, as granted and as in force.
func hasSize(pod, name string, milli, mebi int64) node.Condition {
	return container(pod, name, func(c v1.ContainerStatus) error {
		for what, want := range map[*v1.ResourceList][2]int64{&c.AllocatedResources: {milli, mebi}, &c.Resources.Requests: {milli, mebi}, &c.Resources.Limits: {2 * milli, 2 * mebi}} {
			cpu, memory := (*what)[v1.ResourceCPU], (*what)[v1.ResourceMemory]
			if cpu.Cmp(*resource.NewMilliQuantity(want[0], resource.DecimalSI)) != 0 || memory.Cmp(*resource.NewQuantity(want[1]<<20, resource.BinarySI)) != 0 {
				return fmt.Errorf("allocated %v, in force %+v, want %dm and %dMi", c.AllocatedResources, c.Resources, milli, mebi)
			}
		}
		return nil
	})
}

// inForce fails the test unless the kernel's limits of a container, or of the pod
// as a whole if id is empty, are these.
func inForce(t *testing.T, n *node.Node, uid, id string, milli, mebi int64) {
	t.Helper()
	cpu, err := n.CgroupFile(uid, id, "cpu.cfs_quota_us", "cpu.max")
	if err != nil {
		t.Fatal(err)
	}
	memory, err := n.CgroupFile(uid, id, "memory.limit_in_bytes", "memory.max")
	if err != nil {
		t.Fatal(err)
	}
	if quota, _, _ := strings.Cut(cpu, " "); quota != strconv.FormatInt(milli*100, 10) || memory != strconv.FormatInt(mebi<<20, 10) {
		t.Errorf("in the control group of %q, CPU is limited to %s and memory to %s, want %dm and %dMi", id, cpu, memory, milli, mebi)
	}
}

// noResize are the conditions that no resize waits or is under way.
func noResize(pod string) []node.Condition {
	return []node.Condition{hasCondition(pod, v1.PodResizePending, "", ""), hasCondition(pod, v1.PodResizeInProgress, "", ""), node.Ready(pod)}
}

func testResizeInPlace(t *testing.T, n *node.Node) {
	write := func(milli, mebi int64) {
		n.Write("p.yaml", toolPod(n, "p", containers(tool("main", "act", size(milli, mebi)), tool("other", "act", size(20, 32)))))
	}
	write(50, 32)
	before := n.Await("it runs", append(noResize("p"), hasSize("p", "main", 50, 32), observes("p", 1))...)
	uid, id := string(view(t, before, "p").Pod.UID), containerID(t, before, "p", "main")
	inForce(t, n, uid, id, 100, 64)
	inForce(t, n, uid, "", 140, 128)
	for i, to := range [][2]int64{{100, 64}, {50, 128}, {50, 32}} {
		write(to[0], to[1])
		after := n.Await("it is resized", append(noResize("p"), hasSize("p", "main", to[0], to[1]), observes("p", int64(i+2)))...)
		same(t, before, after, "p")
		inForce(t, n, uid, id, 2*to[0], 2*to[1])
		inForce(t, n, uid, "", 2*to[0]+40, 2*to[1]+64)
		before = after
	}
	n.AwaitEvent("p", "ResizeStarted")
	n.AwaitEvent("p", "ResizeCompleted")
	remove(t, n, "p")
}

func testResizeByRestart(t *testing.T, n *node.Node) {
	write := func(milli, mebi int64) {
		n.Write("r.yaml", toolPod(n, "r", containers(
			tool("main", "act", size(milli, mebi), "resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]"), tool("other", "act"))))
	}
	write(50, 32)
	before := n.Await("it runs", append(noResize("r"), hasSize("r", "main", 50, 32))...)
	write(60, 32)
	after := n.Await("CPU is resized in place", append(noResize("r"), hasSize("r", "main", 60, 32), observes("r", 2))...)
	same(t, before, after, "r")
	write(60, 64)
	before, after = after, n.Await("memory is resized by a restart", append(noResize("r"), hasSize("r", "main", 60, 64), observes("r", 3), runs("r", "main", 1))...)
	same(t, before, after, "r", "main")
	inForce(t, n, string(view(t, after, "r").Pod.UID), containerID(t, after, "r", "main"), 120, 128)
	inOrder(t, n, "r", "main got SIGTERM", "main ended", "main started")
	remove(t, n, "r")
}

// A memory limit isn't set below what is in use: that would kill the container.
func testMemoryBelowUse(t *testing.T, n *node.Node) {
	write := func(mebi int64) {
		n.Write("m.yaml", toolPod(n, "m", containers(tool("main", "act -eat 64", size(50, mebi)))))
	}
	write(64)
	before := n.Await("it runs", node.Ready("m"))
	inOrder(t, n, "m", "main started")
	write(24)
	n.Await("the limit stays", hasCondition("m", v1.PodResizeInProgress, v1.ConditionTrue, "Error"), node.Ready("m"))
	inForce(t, n, string(view(t, before, "m").Pod.UID), containerID(t, before, "m", "main"), 100, 128)
	write(56)
	after := n.Await("one that is above is set", append(noResize("m"), hasSize("m", "main", 50, 56), observes("m", 3))...)
	same(t, before, after, "m")
	inForce(t, n, string(view(t, after, "m").Pod.UID), containerID(t, after, "m", "main"), 100, 112)
	remove(t, n, "m")
}

func testResizeSidecar(t *testing.T, n *node.Node) {
	write := func(milli int64) {
		n.Write("s.yaml", toolPod(n, "s", initContainers(tool("side", "act", "restartPolicy: Always", size(milli, 32))), containers(tool("main", "act", size(50, 32)))))
	}
	write(50)
	before := n.Await("it runs", node.Ready("s"))
	write(70)
	after := n.Await("it is resized", append(noResize("s"), hasSize("s", "side", 70, 32), runs("s", "side", 0), observes("s", 2))...)
	same(t, before, after, "s")
	inForce(t, n, string(view(t, after, "s").Pod.UID), containerID(t, after, "s", "side"), 140, 64)
	remove(t, n, "s")
}

// A pod's own limits are its control group's.
func testResizePod(t *testing.T, n *node.Node) {
	write := func(milli int64) {
		n.Write("l.yaml", toolPod(n, "l", fmt.Sprintf("resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: %dm, memory: 128Mi}}", milli),
			containers(tool("main", "act"), tool("other", "act"))))
	}
	write(200)
	before := n.Await("it runs", node.Ready("l"))
	uid := string(view(t, before, "l").Pod.UID)
	inForce(t, n, uid, "", 200, 128)
	for i, milli := range []int64{400, 150} {
		write(milli)
		after := n.Await("it is resized", append(noResize("l"), observes("l", int64(i+2)), node.Each([]string{"l"}, func(v local.PodView) error {
			if r := v.Pod.Status.Resources; r == nil || r.Limits.Cpu().MilliValue() != milli {
				return fmt.Errorf("resources %+v", r)
			}
			return nil
		}))...)
		same(t, before, after, "l")
		inForce(t, n, uid, "", milli, 128)
		before = after
	}
	remove(t, n, "l")
}

// What the node can't give waits: for ever if the node is too small, else until
// another pod makes room.
func TestResizeWithoutRoom(t *testing.T) {
	t.Parallel()
	n := startTools(t, fmt.Sprintf("systemReserved: {cpu: %q}", strconv.Itoa(runtime.NumCPU()-1)))
	write := func(name string, milli int64) {
		n.Write(name+".yaml", toolPod(n, name, containers(tool("main", "act", size(milli, 32)))))
	}
	write("big", 600)
	write("small", 200)
	before := n.Await("both run", node.Ready("big", "small"))
	write("small", 1100)
	s := n.Await("the node is too small", hasCondition("small", v1.PodResizePending, v1.ConditionTrue, v1.PodReasonInfeasible), node.Ready("small"), hasSize("small", "main", 200, 32))
	same(t, before, s, "small")
	write("small", 500)
	n.Await("there is no room", hasCondition("small", v1.PodResizePending, v1.ConditionTrue, v1.PodReasonDeferred), node.Ready("small"), hasSize("small", "main", 200, 32))
	inForce(t, n, string(view(t, s, "small").Pod.UID), containerID(t, s, "small", "main"), 400, 64)
	n.Kill()
	n.Start()
	n.Await("there still is no room", agentIs(n), hasCondition("small", v1.PodResizePending, v1.ConditionTrue, v1.PodReasonDeferred), node.Ready("small", "big"), hasSize("small", "main", 200, 32))
	n.Remove("big.yaml")
	after := n.Await("room makes it grow", append(noResize("small"), gone("big"), hasSize("small", "main", 500, 32), observes("small", 3))...)
	same(t, s, after, "small")
	inForce(t, n, string(view(t, after, "small").Pod.UID), containerID(t, after, "small", "main"), 1000, 64)
	n.Kill()
	n.Start()
	again := n.Await("it keeps what it got", append(noResize("small"), agentIs(n), hasSize("small", "main", 500, 32), observes("small", 3))...)
	if a, b := containerID(t, after, "small", "main"), containerID(t, again, "small", "main"); a != b {
		t.Errorf("its container was %s and is %s", a, b)
	}
	inForce(t, n, string(view(t, again, "small").Pod.UID), containerID(t, again, "small", "main"), 1000, 64)
	inForce(t, n, string(view(t, again, "small").Pod.UID), "", 1000, 64)
	remove(t, n, "small")
	n.Eventually("it leaves nothing", n.PodLeftovers)
}
