package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// What pods keep on the node for as long as they are there, and how much of it.
func TestEmptyDirs(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	parts(t, n, map[string]func(*testing.T, *node.Node){
		"shared": testSharedDirs, "finished": testFinishedPodsVolumes, "size limit": testSizeLimit, "ephemeral storage": testEphemeralStorage,
	})
}

// The containers of a pod share its emptyDirs, which outlive them and not the pod; one in memory is
// no larger than its sizeLimit.
func testSharedDirs(t *testing.T, n *node.Node) {
	const both = "{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}"
	n.Write("shared.yaml", withVolumes(toolPod(n, "shared", containers(
		mounting(tool("writer", "survey -write /disk/word=said -write /memory/word=said -fill /memory/big=4 -stay /disk", secured("runAsUser: 1000")), both),
		mounting(tool("reader", "survey -until /disk/word=said -until /memory/word=said -stay /disk /memory"), both),
		mounting(tool("again", "survey -until /disk/again=yes -until /memory/again=yes -stay /memory"), both))),
		"{name: disk, emptyDir: {}}", "{name: memory, emptyDir: {medium: Memory, sizeLimit: 2Mi}}"))
	s := n.Await("it runs", node.Ready("shared"))
	v := view(t, s, "shared")
	wrote := surveys(t, n, "shared", "writer")
	want(t, "what came of it", wrote.Tried, map[string]string{
		"/disk/word=said": "ok", "/memory/word=said": "ok", "/memory/big=4": syscall.ENOSPC.Error(),
	})
	saw := surveys(t, n, "shared", "reader")
	want(t, "what the other reads", saw.text("/disk/word")+" "+saw.text("/memory/word"), "said said")
	want(t, "whose it is", saw.Files["/disk/word"].Owner, "1000:0")
	want(t, "the volumes' modes", saw.Files["/disk"].Mode+" "+saw.Files["/memory"].Mode, "drwxrwxrwx dtrwxrwxrwx")
	want(t, "the file system in memory", saw.Files["/memory"].FSType, tmpfsMagic)

	// Another instance finds what was there, and is found by those that run.
	if err := syscall.Kill(processOf(t, n, s, "shared", "reader"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.Await("the reader is back", runs("shared", "reader", 1), node.Ready("shared"))
	saw = surveys(t, n, "shared", "reader")
	want(t, "what the next one reads", saw.text("/disk/word")+" "+saw.text("/memory/word"), "said said")
	if err := os.Remove(onDisk(n, v, "empty-dir", "memory") + "/big"); err != nil { // it takes all there is
		t.Fatal(err)
	}
	for _, name := range []string{"disk", "memory"} {
		putFile(t, onDisk(n, v, "empty-dir", name)+"/again", "yes")
	}
	want(t, "what is still read", surveys(t, n, "shared", "again").text("/memory/again"), "yes")
	remove(t, n, "shared")
	n.Eventually("the volumes are gone", isGone(onDisk(n, v, "empty-dir", "disk")))
	n.Eventually("the volumes are gone", isGone(onDisk(n, v, "empty-dir", "memory")))
}

// A pod that has run to its end stays listed, and its volumes go: nothing can use them any more. Until
// then they survive the restarts of its containers.
func testFinishedPodsVolumes(t *testing.T, n *node.Node) {
	n.Write("finished-objects.yaml", secret("finished", "password: hush-finished"))
	task := mounting(tool("main", "fail-once /memory/been 3"), "{name: memory, mountPath: /memory}", "{name: hush, mountPath: /hush}")
	look := mounting(tool("look", "survey -until /memory/been= /hush"), "{name: memory, mountPath: /memory}", "{name: hush, mountPath: /hush}")
	n.Write("finished.yaml", withVolumes(toolPod(n, "finished", "restartPolicy: OnFailure", containers(task, look)),
		"{name: memory, emptyDir: {medium: Memory}}", "{name: hush, secret: {secretName: finished}}"))
	v := view(t, n.Await("the second instance finds what the first left", node.Phase("finished", v1.PodSucceeded), lastEnded("finished", "main", 3, "Error")), "finished")
	for _, path := range []string{onDisk(n, v, "empty-dir", "memory"), onDisk(n, v, "secret", "hush")} {
		n.Eventually("the finished pod's volumes are gone", isGone(path))
	}
	if left := mountIDs(t, n.RootDir+"/pods/"+string(v.Pod.UID)); len(left) > 0 {
		t.Errorf("mounted still: %v", left)
	}
	n.Await("it stays listed", node.Phase("finished", v1.PodSucceeded))
	want(t, "its log tells", surveys(t, n, "finished", "look").text("/hush/password"), "hush-finished")
	remove(t, n, "finished")
}

// evicted is the condition that a pod was ended for what it keeps on disk.
func evicted(pod string, words ...string) node.Condition {
	return node.Each([]string{pod}, func(v local.PodView) error {
		st := v.Pod.Status
		if st.Phase != v1.PodFailed || st.Reason != "Evicted" || strings.Contains(st.Message, "\n") {
			return fmt.Errorf("it is %s, %s: %q", st.Phase, st.Reason, st.Message)
		}
		for _, w := range words {
			if !strings.Contains(st.Message, w) {
				return fmt.Errorf("its message is %q, want %q in it", st.Message, w)
			}
		}
		return nil
	})
}

// A pod that writes more to an emptyDir than that may hold ends, and one beside it that doesn't goes on.
func testSizeLimit(t *testing.T, n *node.Node) {
	for pod, mib := range map[string]string{"fat": "16", "lean": "2"} {
		n.Write(pod+".yaml", withVolumes(toolPod(n, pod, containers(mounting(tool("main", "survey -fill /data/big="+mib+" -stay"), "{name: data, mountPath: /data}"))), "{name: data, emptyDir: {sizeLimit: 8Mi}}"))
	}
	v := view(t, n.Await("it ends", evicted("fat", `Usage of EmptyDir volume "data" exceeds the limit "8Mi"`)), "fat")
	n.AwaitEvent("fat", "Evicted", `"data"`, `"8Mi"`)
	if out, code := n.Deckhand("why", "fat"); code != 1 || !strings.Contains(out, "Evicted") || !strings.Contains(out, `"8Mi"`) {
		t.Errorf("deckhand why fat ended with %d, where 1 is for a pod that isn't well, and said %s", code, out)
	}
	n.Eventually("its volume is gone", isGone(onDisk(n, v, "empty-dir", "data")))
	n.Await("the other goes on", node.Ready("lean"))
	remove(t, n, "fat")
	remove(t, n, "lean")
}

// The same goes for what a container keeps outside of volumes, where it has a limit.
func testEphemeralStorage(t *testing.T, n *node.Node) {
	limit := func(name, mib, quantity string) string {
		return tool(name, "survey -fill /big="+mib+" -stay /diary", "resources: {limits: {ephemeral-storage: "+quantity+"}}")
	}
	n.Write("layer.yaml", toolPod(n, "layer", containers(limit("greedy", "24", "8Mi"), limit("modest", "1", "64Mi"))))
	n.Write("layers.yaml", toolPod(n, "layers", containers(limit("one", "12", "64Mi"), limit("two", "1", "64Mi"))))
	n.Await("it ends", evicted("layer", `Container greedy exceeded its local ephemeral storage limit "8Mi"`))
	n.Await("the other goes on", node.Ready("layers"))
	for _, pod := range []string{"layer", "layers"} {
		if out, _ := n.Deckhand("events", "--for", pod); !strings.Contains(out, "Started") || strings.Contains(out, "not acted on") {
			t.Errorf("a limit that counts is reported to be without effect: %s", out)
		}
		remove(t, n, pod)
	}
}
