package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
	"github.com/deckhand-node/deckhand/test/registry"
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

// With images and containers on a file system of their own, nothing is reclaimed for the node's: a pod goes that uses it. For that of
// the images, ended containers go first, then unused images, and only then a pod.
func TestReclaimOnTwoDisks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// many is enough of the resource for three pods and an image, of which each has 60 of its units.
		many, signal, resource, hard, file string
		unit                               uint64
		free                               func(*unix.Statfs_t) uint64
		take                               func(dir string, units uint64) error
		layer                              func(testing.TB, ggcr.Image) ggcr.Image
	}{
		"bytes": {"size=600M", "available", "ephemeral-storage", "100Mi", "1048576", 1 << 20,
			func(st *unix.Statfs_t) uint64 { return st.Bavail * uint64(st.Bsize) },
			func(dir string, bytes uint64) error {
				return os.WriteFile(filepath.Join(dir, "file"), make([]byte, bytes), 0o600)
			},
			func(t testing.TB, image ggcr.Image) ggcr.Image { return registry.WithLayer(t, image, 60<<20) }},
		"inodes": {"nr_inodes=5000", "inodesFree", "inodes", "'1000'", "0", 1,
			func(st *unix.Statfs_t) uint64 { return st.Ffree },
			func(dir string, files uint64) (err error) {
				for i := range files {
					err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600))
				}
				return err
			},
			func(t testing.TB, image ggcr.Image) ggcr.Image { return registry.WithFiles(t, image, 60) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := small(t, c.many)
			n := node.New(t, binary, node.Options{Dir: disk, Config: fmt.Sprintf("evictionHard: {nodefs.%[1]s: %[2]s, imagefs.%[1]s: %[2]s}\n"+
				"evictionPressureTransitionPeriod: 1s\nimageGCHighThresholdPercent: 100\nimageMinimumGCAge: 1s", c.signal, c.hard)})
			images := filepath.Join(n.RootDir, "containerd", "root")
			if err := errors.Join(unix.Mount("", disk, "", unix.MS_SHARED, ""), os.MkdirAll(images, 0o700),
				unix.Mount("deckhand-test", images, "tmpfs", 0, "mode=700,"+c.many)); err != nil {
				t.Fatal(err)
			}
			n.Start()
			r := registry.New(t)
			r.Push(t, "unused:1", c.layer(t, registry.FromArchive(t, filepath.Join(n.RootDir, "images", "web.tar"), node.Image)))
			unused := r.Ref("unused:1")
			const once = "spec.restartPolicy: Never"
			n.Write("neighbour.yaml", pod("neighbour"))
			n.Write("ended.yaml", pod("ended", "args: [fill, /, '60', '"+c.file+"']", once))
			n.Write("layer.yaml", pod("layer", "args: [fill, /, '60', '"+c.file+"']", once))
			n.Write("volume.yaml", pod("volume", "args: [fill, /data, '60', '"+c.file+"']", once, "volumeMounts: [{name: data, mountPath: /data}]",
				"spec.volumes: [{name: data, emptyDir: {}}]"))
			n.Await("the pods run", node.Ready("neighbour", "ended", "layer", "volume"))
			mustPull(t, n, unused)
			for _, name := range []string{"ended", "layer", "volume"} {
				n.Eventually("it has written its files", logs(n, name, "web", "wrote 60"))
			}
			killContainer(t, n, "ended")
			n.Await("a pod has ended", node.Phase("ended", v1.PodSucceeded))

			// shortOf leaves so little on a file system that half of what one of them has put there is enough, until the condition
			// has ended.
			shortOf := func(dir string, then func()) {
				t.Helper()
				least := uint64(1000)
				if c.unit > 1 {
					least = 100
				}
				var st unix.Statfs_t
				if err := unix.Statfs(dir, &st); err != nil {
					t.Fatal(err)
				}
				ballast := filepath.Join(dir, "ballast")
				if err := errors.Join(os.Mkdir(ballast, 0o700), c.take(ballast, c.free(&st)-(least-30)*c.unit)); err != nil {
					t.Fatal(err)
				}
				then()
				n.Eventually("the condition ends", tellsLike(`DiskPressure +False`, func() string { out, _ := n.Deckhand("node"); return out }))
				if err := os.RemoveAll(ballast); err != nil {
					t.Fatal(err)
				}
			}
			there := func(container, image bool) func() error {
				return func() error {
					has := slices.ContainsFunc(n.Containers(), func(c node.Container) bool { return c.Pod == "ended-"+node.Name })
					pulled, err := hasImage(n, unused)
					if err == nil && (has != container || pulled != image) {
						err = fmt.Errorf("the ended container is there: %v, want %v; the unused image: %v, want %v", has, container, pulled, image)
					}
					return err
				}
			}
			shortOf(disk, func() {
				n.Await("a pod that uses the node's disk is evicted", evictedFor("volume", c.resource, "nodefs."+c.signal), node.Ready("neighbour", "layer"), noRestarts)
			})
			if err := there(true, true)(); err != nil {
				t.Error(err)
			}
			shortOf(images, func() { n.Eventually("ended containers go", there(false, true)) })
			shortOf(images, func() { n.Eventually("unused images go", there(false, false)) })
			n.Await("no pod was evicted meanwhile", node.Ready("neighbour", "layer"), noRestarts)
			shortOf(images, func() {
				n.Await("a pod that uses the images' disk is evicted", evictedFor("layer", c.resource, "imagefs."+c.signal), node.Ready("neighbour"), noRestarts)
			})
			if e := n.AwaitNodeEvent("EvictionThresholdMet", "Attempting to reclaim "+c.resource); e.Type != v1.EventTypeWarning {
				t.Errorf("the event is of type %s", e.Type)
			}
		})
	}
}

// killContainer ends the container of a pod.
func killContainer(t *testing.T, n *node.Node, name string) {
	t.Helper()
	for _, c := range n.Containers() {
		if c.Pod != name+"-"+node.Name {
			continue
		}
		text, err := n.CgroupFile(c.UID, c.ID, "cgroup.procs")
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(text)
		if err == nil {
			err = unix.Kill(pid, unix.SIGTERM)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("pod %s has no container", name)
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
