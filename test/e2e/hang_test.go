package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// A file system that stops answering holds those pods that use it, which say so, and nothing else:
// other pods start and go, the agent is healthy, stops when it is told to and starts again. When
// the file system answers again, the pods run.
func TestAHungFileSystemHoldsOnlyItsPods(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	dir := filepath.Join(t.TempDir(), "share")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	server := mounttest.Mount(t, dir)
	n.Write("objects.yaml", documents(localPV("share", "share", dir), claim("share", "share"), configMap("web", "a: b"), secret("web", "c: d")))
	healthy := func() {
		t.Helper()
		if err := answersOK(n.HealthURL("healthz")); err != nil {
			t.Error(err)
		}
	}

	server.Hang()
	n.Write("host.yaml", withVolume(n, "host", "hostPath: {path: "+dir+", type: Directory}"))
	n.Write("pv.yaml", withVolume(n, "pv", "persistentVolumeClaim: {claimName: share, readOnly: true}"))
	hung := []node.Condition{held("host", "unmounted volumes=[data]", `volume "data" at `+dir+": still being mounted"), held("pv", "unmounted volumes=[data]", `volume "data" at `+dir+": still being mounted")}
	n.Write("other.yaml", withVolumes(toolPod(n, "other", containers(mounting(tool("main", "survey -stay /conf"), "{name: conf, mountPath: /conf}", "{name: hush, mountPath: /hush}"))),
		"{name: conf, configMap: {name: web}}", "{name: hush, secret: {secretName: web}}"))
	n.Await("another pod runs meanwhile", node.Ready("other"))
	server.AwaitWaiting(t, 1)
	n.Await("they are held", append(hung, node.Ready("other"))...)
	n.AwaitEvent("host", "FailedMount", "still being mounted")
	for _, pod := range []string{"host", "pv"} {
		explains(t, n, pod, dir, "still being mounted")
	}
	healthy()
	edited(t, n)

	// A pod that waits for it can go, and the agent too: it looks at its time itself.
	n.Remove("host.yaml")
	n.Await("one is asked to go", node.Stopping("host"))
	n.Stop()
	n.Start()
	n.Await("the next agent has the others, and waits as well", agentIs(n), node.Ready("other"), hung[1], noRestarts)
	healthy()
	n.Kill()
	n.Start()
	n.Await("as does the next", agentIs(n), node.Ready("other"), hung[1], noRestarts)
	n.Write("host.yaml", withVolume(n, "host", "hostPath: {path: "+dir+", type: Directory}"))
	n.Await("one that comes now waits, too", held("host", "still being mounted"))

	server.Resume()
	n.Await("all run", node.Ready("host", "pv", "other"), noRestarts)
	healthy()

	// Hung again, with the volumes mounted: nothing looks at them while nothing is to be done.
	server.Hang()
	n.Write("late.yaml", withVolumes(toolPod(n, "late", containers(mounting(tool("main", "act"), "{name: hush, mountPath: /hush}"))), "{name: hush, secret: {secretName: web}}"))
	n.Await("another one runs", node.Ready("late"))
	n.Kill()
	n.Start()
	n.Await("the next agent tells of them all", agentIs(n), node.Ready("late", "other"), noRestarts, runs("host", "main", 0), runs("pv", "main", 0))
	edited(t, n)
	n.Stop()
	server.Resume()
	n.Start()
	n.Await("all run still", agentIs(n), node.Ready("host", "pv", "other", "late"), noRestarts)
	for _, pod := range []string{"host", "pv", "other", "late"} {
		n.Remove(pod + ".yaml")
	}
	n.Await("all are gone", node.Only())
	n.Eventually("they leave nothing", n.PodLeftovers)
	if err := holds(dir+"/"+mounttest.File, mounttest.Content)(); err != nil {
		t.Errorf("what is the node's has gone: %v", err)
	}
}

// edited edits the ConfigMap of pod other, which reaches its volume.
func edited(t *testing.T, n *node.Node) {
	t.Helper()
	v := view(t, n.Await("it is there", node.Ready("other")), "other")
	path := onDisk(n, v, "configmap", "conf") + "/a"
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(before) + "b"
	manifest, err := os.ReadFile(n.Path("objects.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	n.Write("objects.yaml", strings.Replace(string(manifest), "a: "+string(before), "a: "+text, 1))
	n.Eventually("the edit reaches another pod's volume", holds(path, text))
}

// answersOK looks whether a page is answered with 200.
func answersOK(url string) error {
	body, status, err := get(url)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("%s answered %d %q", url, status, body)
	}
	return nil
}
