package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// Pods with hostUsers: false have users of their own, which are nobody on the host.
func TestUserNamespaces(t *testing.T) {
	t.Parallel()
	// As many ranges as there may be pods: the third pod runs on one that was given back.
	n := node.New(t, binary, node.Options{Archives: []string{tools}, Config: "maxPods: 2"})
	if err := os.Chmod(n.Base, 0o711); err != nil { // the users have to get to their files
		t.Fatal(err)
	}
	n.Start()
	n.Write("odd.yaml", toolPod(n, "odd", "hostUsers: false", "hostNetwork: true", containers(tool("main", "act"))))
	n.Await("no pod has the host's network and users of its own", node.Problem("odd", "hostNetwork", "may not be set when `hostUsers` is false"))
	n.Remove("odd.yaml")

	n.Write("a.yaml", ownUsersPod(n, "a"))
	n.Write("b.yaml", ownUsersPod(n, "b"))
	s := n.Await("they run", node.Ready("a", "b"))
	a, b := ownUsers(t, n, s, "a"), ownUsers(t, n, s, "b")
	if a == b || a%ids != 0 || b%ids != 0 {
		t.Errorf("the pods' users begin with %d and %d", a, b)
	}
	testFiles(t, n, s)
	testMasks(t, sees(t, n, "a", "unmasked").mounts(), false)
	testMasks(t, sees(t, n, "a", "main").mounts(), true)

	before := n.RunningIDs()
	n.Kill()
	n.Start()
	s = n.Await("the next agent has them", agentIs(n), node.Ready("a", "b"))
	unchanged(t, before, n.RunningIDs())
	if err := syscall.Kill(processOf(t, n, s, "a", "main"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s = n.Await("the container is back", runs("a", "main", 1), node.Ready("a"))
	want(t, "the first user of a, after all that", ownUsers(t, n, s, "a"), a)

	uid := view(t, s, "a").Pod.UID
	remove(t, n, "a")
	if _, err := os.Stat(usersRecord(n, uid)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the record of a is left: %v", err)
	}
	n.Write("c.yaml", ownUsersPod(n, "c"))
	s = n.Await("the next pod runs", node.Ready("b", "c"))
	want(t, "the first user of c", ownUsers(t, n, s, "c"), a)
	remove(t, n, "c")
	remove(t, n, "b")
	n.Eventually("they leave nothing", n.PodLeftovers)
}

// ids is how many users a pod has.
const ids = 65536

// ownUsersPod has an emptyDir in the place of the diary.
func ownUsersPod(n *node.Node, name string) string {
	text := toolPod(n, name, "hostUsers: false", containers(
		tool("main", "look -stay -mkdir /diary/main /proc/self/uid_map /proc/self/gid_map /proc/self/mountinfo"),
		tool("unmasked", "look -stay -mkdir /diary/unmasked /proc/self/mountinfo", secured("runAsUser: 1000", "procMount: Unmasked"))))
	return strings.Replace(text, "hostPath: {path: "+diaryDir(n, name)+", type: DirectoryOrCreate}", "emptyDir: {}", 1)
}

// ownUsers looks at a pod's users from all sides, and returns which the first of them is on the host.
func ownUsers(t *testing.T, n *node.Node, s local.Snapshot, pod string) int {
	t.Helper()
	in := sees(t, n, pod, "main")
	for _, kind := range []string{"user", "net", "ipc", "uts", "pid"} {
		if ns := in.Namespaces[kind]; ns == hostNamespace(t, kind) {
			t.Errorf("%s has the host's %s namespace", pod, kind)
		}
	}
	fields := strings.Fields(in.Files["/proc/self/uid_map"])
	if len(fields) != 3 || fields[0] != "0" || fields[2] != strconv.Itoa(ids) || in.Files["/proc/self/gid_map"] != in.Files["/proc/self/uid_map"] {
		t.Fatalf("%s has the users %q and the groups %q", pod, in.Files["/proc/self/uid_map"], in.Files["/proc/self/gid_map"])
	}
	first, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	want(t, "who main is", in.who(), "0 0 [0]")
	for container, user := range map[string]int{"main": first, "unmasked": first + 1000} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", processOf(t, n, s, pod, container)))
		if err != nil {
			t.Fatal(err)
		}
		want(t, container+"'s user on the host", one(statusField(string(text), "Uid")), user)
	}
	testRecord(t, usersRecord(n, view(t, s, pod).Pod.UID), first)
	return first
}

// testFiles looks at who owns what a's containers made in an emptyDir: on disk those who they are inside.
func testFiles(t *testing.T, n *node.Node, s local.Snapshot) {
	t.Helper()
	want(t, "the owner of what main made", sees(t, n, "a", "main").Made["/diary/main"], "0:0")
	want(t, "the owner of what unmasked made", sees(t, n, "a", "unmasked").Made["/diary/unmasked"], "1000:0")
	dir := filepath.Join(n.RootDir, "pods", string(view(t, s, "a").Pod.UID), "volumes", "kubernetes.io~empty-dir", "diary")
	for name, owner := range map[string]uint32{"main": 0, "unmasked": 1000} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want(t, "the owner on disk of what "+name+" made", info.Sys().(*syscall.Stat_t).Uid, owner)
	}
}

// processOf is the one process of a container, on the host.
func processOf(t *testing.T, n *node.Node, s local.Snapshot, pod, name string) int {
	t.Helper()
	procs, err := n.CgroupFile(string(view(t, s, pod).Pod.UID), containerID(t, s, pod, name), "cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(procs)
	if err != nil {
		t.Fatalf("processes of %s: %q", name, procs)
	}
	return pid
}

func usersRecord(n *node.Node, uid types.UID) string {
	return filepath.Join(n.RootDir, "pods", string(uid), "userns")
}

// testRecord looks at what is kept of a pod's users, which is in the kubelet's place and format.
func testRecord(t *testing.T, path string, first int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	type mapping struct{ HostID, ContainerID, Length int }
	var record struct{ UIDMappings, GIDMappings []mapping }
	if err := json.Unmarshal(text, &record); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	only := []mapping{{first, 0, ids}}
	want(t, "users on record", record.UIDMappings, only)
	want(t, "groups on record", record.GIDMappings, only)
}
