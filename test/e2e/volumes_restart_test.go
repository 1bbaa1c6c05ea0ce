package e2e

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// allKinds are volumes of the kinds that a node has by itself, six of them for each number, and the
// mounts of a container that has them all.
func allKinds(n *node.Node, object string, number int) (mounts, volumes []string) {
	kinds := []struct{ name, source string }{
		{"conf", "configMap: {name: " + object + "}"},
		{"hush", "secret: {secretName: " + object + "}"},
		{"all", "projected: {sources: [{configMap: {name: " + object + "}}, {secret: {name: " + object + ", items: [{key: password, path: hush/password}]}}]}"},
		{"self", "downwardAPI: {items: [{path: tide, fieldRef: {fieldPath: \"metadata.annotations['tide']\"}}]}"},
		{"disk", "emptyDir: {}"},
		{"memory", "emptyDir: {medium: Memory, sizeLimit: 1Mi}"},
		{"host", "hostPath: {path: " + filepath.Join(n.Base, "host", object) + ", type: DirectoryOrCreate}"},
		{"claim", "persistentVolumeClaim: {claimName: " + object + "}"},
	}
	for i := range 6 {
		k := kinds[(number+i)%len(kinds)]
		mounts = append(mounts, "{name: "+k.name+", mountPath: /"+k.name+"}")
		volumes = append(volumes, "{name: "+k.name+", "+k.source+"}")
	}
	return mounts, volumes
}

// A new agent finds the volumes of running pods as the last one left them: nothing is mounted anew or
// restarted. What was edited meanwhile, and what is edited after, reaches them.
func TestVolumesAreAdopted(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	objects := func(text string) string {
		return documents(configMap("keep", "a: "+text), secret("keep", "password: hush-"+text), localPV("keep", "keep", hostDir(t, n, "pv")), claim("keep", "keep"))
	}
	pod := func(name, tide string, number int) string {
		mounts, volumes := allKinds(n, "keep", number)
		if strings.Contains(strings.Join(mounts, ""), "name: disk,") {
			mounts = append(mounts, "{name: disk, mountPath: /part, subPath: deep/part}")
		}
		text := withVolumes(toolPod(n, name, containers(mounting(tool("main", "survey -stay"), mounts...))), volumes...)
		return strings.Replace(text, "labels: {}", "annotations: {tide: "+tide+"}", 1)
	}
	n.Write("objects.yaml", objects("one"))
	n.Write("a.yaml", pod("a", "low", 0))
	n.Write("b.yaml", pod("b", "low", 2))
	n.Write("done.yaml", withVolumes(toolPod(n, "done", "restartPolicy: Never", containers(mounting(tool("main", "survey /hush"), "{name: hush, mountPath: /hush}"))), "{name: hush, secret: {secretName: keep}}"))
	s := n.Await("they run", node.Ready("a", "b"), node.Phase("done", v1.PodSucceeded))
	a, b, done := view(t, s, "a"), view(t, s, "b"), view(t, s, "done")
	n.Eventually("the finished one's volume is gone", isGone(onDisk(n, done, "secret", "hush")))
	putFile(t, onDisk(n, b, "empty-dir", "memory")+"/word", "said")
	pods := filepath.Join(n.RootDir, "pods")
	containers, mounts := n.RunningIDs(), mountIDs(t, pods)
	if len(mounts) < 7 {
		t.Fatalf("mounted are %v", mounts)
	}
	same := func(when string) {
		t.Helper()
		unchanged(t, containers, n.RunningIDs())
		if now := mountIDs(t, pods); !maps.Equal(now, mounts) {
			t.Errorf("%s there are the mounts %v, and there were %v", when, now, mounts)
		}
	}
	reach := func(text string) {
		t.Helper()
		for path, want := range map[string]string{
			onDisk(n, a, "configmap", "conf") + "/a": text, onDisk(n, a, "secret", "hush") + "/password": "hush-" + text,
			onDisk(n, a, "projected", "all") + "/a": text, onDisk(n, b, "projected", "all") + "/hush/password": "hush-" + text,
		} {
			n.Eventually("the edit reaches "+path, holds(path, want))
		}
	}

	n.Kill()
	n.Start()
	n.Await("the next agent has them", agentIs(n), node.Ready("a", "b"), node.Only("a", "b", "done"), noRestarts)
	same("after a kill")
	n.Write("objects.yaml", objects("two"))
	reach("two")

	n.Kill()
	n.Write("objects.yaml", objects("three"))
	n.Write("a.yaml", pod("a", "high", 0))
	n.Start()
	n.Await("the next agent has them", agentIs(n), node.Ready("a", "b"), noRestarts)
	reach("three")
	n.Eventually("the annotation's edit is there", holds(onDisk(n, a, "downward-api", "self")+"/tide", "high"))
	same("after edits while no agent ran")

	n.Kill()
	n.Remove("b.yaml")
	n.Write("c.yaml", pod("c", "low", 3))
	n.Start()
	n.Await("what changed is caught up with", agentIs(n), node.Ready("a", "c"), node.Only("a", "c", "done"), noRestarts)
	n.Eventually("its directory is gone", isGone(filepath.Join(pods, string(b.Pod.UID))))
	for at := range mountIDs(t, pods) {
		if strings.Contains(at, string(b.Pod.UID)) {
			t.Errorf("of the pod that is gone there is mounted %s", at)
		}
	}
	if left := slices.DeleteFunc(slices.Collect(maps.Keys(mountIDs(t, pods))), func(at string) bool { return !strings.Contains(at, string(done.Pod.UID)) }); len(left) > 0 {
		t.Errorf("the finished pod has %q again", left)
	}

	// After a reboot all are made again, but for what is on the disk.
	n.PowerOff()
	n.Start()
	n.Await("they are back", agentIs(n), node.Ready("a", "c"), restarted("a", 1))
	reach3 := map[string]string{onDisk(n, a, "configmap", "conf") + "/a": "three", onDisk(n, a, "secret", "hush") + "/password": "hush-three"}
	for path, text := range reach3 {
		n.Eventually("it is there again", holds(path, text))
	}
	for _, name := range []string{"a", "c", "done"} {
		n.Remove(name + ".yaml")
	}
	n.Await("all are gone", node.Only())
	n.Eventually("they leave nothing", n.PodLeftovers)
}
