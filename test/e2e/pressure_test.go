package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// small is a file system of this size, which is unmounted after all that is on it.
func small(t *testing.T, options string) string {
	t.Helper()
	disk := t.TempDir()
	if err := unix.Mount("deckhand-test", disk, "tmpfs", 0, "mode=755,"+options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	return disk
}

// evictedFor is the state of a pod that was ended for this resource.
func evictedFor(name, resource, signal string) node.Condition {
	return node.Each([]string{name}, func(v local.PodView) error {
		st := &v.Pod.Status
		if st.Phase != v1.PodFailed || st.Reason != "Evicted" ||
			!strings.HasPrefix(st.Message, "The node was low on resource: "+resource+". ") || !strings.HasSuffix(st.Message, "Signal: "+signal+".") {
			return fmt.Errorf("it is %s %s: %s", st.Phase, st.Reason, st.Message)
		}
		return nil
	})
}

// A pod that fills the node's disk is evicted, with what it wrote; its neighbour runs on, and the node recovers.
func TestDiskPressure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ options, hard, command, resource, signal string }{
		"bytes":  {"size=900M", "nodefs.available: 150Mi", "fill, /data, '800', '1048576'", "ephemeral-storage", "nodefs.available"},
		"inodes": {"nr_inodes=20000", "nodefs.inodesFree: '8000'", "fill, /data, '20000', '0'", "inodes", "nodefs.inodesFree"},
	} {
		t.Run(name, func(t *testing.T) {
			n := node.New(t, binary, node.Options{Dir: small(t, c.options), Config: "evictionHard: {" + c.hard + "}\nevictionPressureTransitionPeriod: 3s"})
			n.Start()
			n.Write("neighbour.yaml", pod("neighbour"))
			n.Await("the neighbour runs", node.Ready("neighbour"))
			n.Write("filler.yaml", pod("filler", "args: ["+c.command+"]", "volumeMounts: [{name: data, mountPath: /data}]",
				"spec.volumes: [{name: data, emptyDir: {}}]", "spec.restartPolicy: Never"))
			n.AwaitNodeEvent("EvictionThresholdMet", "Attempting to reclaim "+c.resource)
			n.AwaitNodeEvent("NodeHasDiskPressure")
			n.Await("the pod that fills the disk is evicted", evictedFor("filler", c.resource, c.signal), node.Ready("neighbour"), noRestarts)
			n.AwaitEvent("filler", "Evicted", "The node was low on resource")
			n.AwaitNodeEvent("NodeHasNoDiskPressure")
			if out, code := n.Deckhand("node"); code != 0 || !regexp.MustCompile(`DiskPressure +False`).MatchString(out) {
				t.Errorf("deckhand node ended with %d: %s", code, out)
			}
			n.Write("next.yaml", pod("next"))
			n.Await("the disk has room again", node.Ready("neighbour", "next"))
		})
	}
}

// A pod that takes the memory of the node is evicted before the kernel kills anything, and restarted when there is enough again.
func TestMemoryPressure(t *testing.T) {
	t.Parallel()
	n := node.New(t, binary, node.Options{Config: "evictionHard: {memory.available: 150Mi}\nevictionPressureTransitionPeriod: 3s"})
	confine(t, n, 400<<20)
	n.Start()
	n.Write("neighbour.yaml", pod("neighbour"))
	n.Await("the neighbour runs", node.Ready("neighbour"))
	n.Write("hog.yaml", pod("hog", "args: [hog, '1000', 20ms]"))
	n.AwaitNodeEvent("NodeHasInsufficientMemory")
	n.Await("the pod that takes the memory is evicted", evictedFor("hog", "memory", "memory.available"), node.Ready("neighbour"), noRestarts)
	if strings.Contains(n.Logged(), "OOMKilled") || n.HasEvent("hog", "OOMKilled") {
		t.Error("the kernel killed it")
	}
	n.AwaitNodeEvent("NodeHasSufficientMemory")
	n.Await("without a cluster, the pod runs again", node.Each([]string{"hog"}, func(v local.PodView) error {
		if v.Pod.Status.Phase != v1.PodRunning {
			return fmt.Errorf("it is %s", v.Pod.Status.Phase)
		}
		return nil
	}), node.Ready("neighbour"), noRestarts)
}

// A pod that starts too many threads is evicted while others can still start some.
func TestProcessPressure(t *testing.T) {
	t.Parallel()
	tasks, err := capacity.ReadTasks("/")
	if err != nil {
		t.Fatal(err)
	}
	// Other tests start threads, too, but fewer than this.
	const others = 1500
	n := node.New(t, binary, node.Options{Config: fmt.Sprintf("evictionHard: {pid.available: '%d'}\nevictionPressureTransitionPeriod: 3s\npodPidsLimit: 6000",
		tasks.Max-tasks.Count-others)})
	n.Start()
	n.Write("neighbour.yaml", pod("neighbour"))
	n.Await("the neighbour runs", node.Ready("neighbour"))
	n.Write("bomb.yaml", pod("bomb", "args: [threads, '4000']", "spec.restartPolicy: Never"))
	n.AwaitNodeEvent("EvictionThresholdMet", "Attempting to reclaim pids")
	n.AwaitNodeEvent("NodeHasInsufficientPID")
	n.Await("the pod with the threads is evicted", evictedFor("bomb", "pids", "pid.available"), node.Ready("neighbour"), noRestarts)
	n.AwaitNodeEvent("NodeHasSufficientPID")
}

// confine makes the node's own control group one of this size, so that the host keeps its memory.
func confine(t *testing.T, n *node.Node, bytes int) {
	t.Helper()
	for _, at := range [...]struct{ dir, file string }{{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}} {
		if _, err := os.Stat(filepath.Join(at.dir, "cgroup.procs")); err != nil {
			continue
		}
		group := filepath.Join(at.dir, n.CgroupRoot)
		if err := os.MkdirAll(group, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(group, at.file), fmt.Append(nil, bytes), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("this host has no control group for memory")
}
