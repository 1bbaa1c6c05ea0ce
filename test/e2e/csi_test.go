package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/csidriver/driver"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// csiManifest describes the driver, its volumes and a claim.
const csiManifest = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: csi.deckhand.test}
spec: {podInfoOnMount: true, fsGroupPolicy: File, volumeLifecycleModes: [Ephemeral, Persistent]}
`

// Pods of one machine alone use inline volumes and PersistentVolumes of a CSI driver. While that is away, those that use
// a volume go on, over a restart of the agent as well; others wait for it, and say so.
func TestCSI(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	registration := filepath.Join(n.RootDir, "plugins_registry", "csi.deckhand.test-reg.sock")
	n.Write("objects.yaml", documents(csiManifest, persistentVolume("csi", "csi", "csi: {driver: csi.deckhand.test, volumeHandle: h1, fsType: ext4}"),
		claim("csi", "csi")))
	n.Write("inline.yaml", withVolume(n, "inline", "csi: {driver: csi.deckhand.test, volumeAttributes: {size: 1Mi}}"))
	n.Write("claim.yaml", withVolume(n, "claim", "persistentVolumeClaim: {claimName: csi}"))
	absent := "the CSI driver csi.deckhand.test hasn't registered on this node"
	n.Await("they wait for the driver", held("inline", absent), held("claim", absent))
	explains(t, n, "inline", absent)

	d := driver.Start(t, driver.Options{Registration: registration, Below: []string{n.RootDir}, Capabilities: []string{"STAGE_UNSTAGE_VOLUME"}})
	n.Await("they run", node.Ready("inline", "claim"))
	n.Kill()
	d.Stop()
	n.Start()
	n.Await("they run on without agent and driver", agentIs(n), node.Ready("inline", "claim"), noRestarts)
	n.Write("late.yaml", withVolume(n, "late", "csi: {driver: csi.deckhand.test}"))
	n.Await("another one waits", held("late", absent))
	n.Remove("inline.yaml")
	n.Await("its volume can't be released", node.Stopping("inline"))

	d.Launch(t)
	n.Await("all is as it should be", node.Ready("claim", "late"), node.Only("claim", "late"), noRestarts)
	n.Remove("late.yaml")
	n.Remove("claim.yaml")
	n.Await("they are gone", node.Only())
	n.Eventually("nothing is left", n.PodLeftovers)
	s, err := d.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var calls []string
	for _, c := range s.Calls {
		if name, ok := strings.CutPrefix(c.Method, "Node"); ok && !strings.HasPrefix(name, "Get") {
			calls = append(calls, strings.TrimSuffix(name, "Volume"))
		}
	}
	slices.Sort(calls)
	if want := []string{"Publish", "Publish", "Publish", "Stage", "Unpublish", "Unpublish", "Unpublish", "Unstage"}; !slices.Equal(calls, want) {
		t.Errorf("the driver was called %v", calls)
	}
	d.CheckLaw(t)
	for _, dir := range []string{"plugins/kubernetes.io/csi/csi.deckhand.test", "staged"} {
		if left := names(filepath.Join(n.RootDir, dir)); len(left) > 0 {
			t.Errorf("left in %s: %v", dir, left)
		}
	}
}

// A driver that is a pod itself mounts volumes for other pods: its mounts reach the node and their containers.
func TestCSIDriverPod(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	binary := driver.Build(t)
	sockets, state := filepath.Join(n.RootDir, "plugins", "csi-test"), hostDir(t, n, "state")
	command, err := json.Marshal([]string{"/driver/" + filepath.Base(binary), "--nodeid", "here", "--statedir", "/state",
		"--endpoint", "unix:///sockets/csi.sock", "--kubelet-registration-path", filepath.Join(sockets, "csi.sock"),
		"--registration", "/registration/csi.sock", "--control", "/state/control.sock"})
	if err != nil {
		t.Fatal(err)
	}
	pods, registry := filepath.Join(n.RootDir, "pods"), filepath.Join(n.RootDir, "plugins_registry")
	mounts := []string{"{name: driver, mountPath: /driver}", "{name: state, mountPath: /state}",
		"{name: sockets, mountPath: /sockets}", "{name: registration, mountPath: /registration}",
		"{name: pods, mountPath: " + pods + ", mountPropagation: Bidirectional}"}
	n.Write("objects.yaml", csiManifest)
	n.Write("driver.yaml", withVolumes(toolPod(n, "driver", containers("{name: main, image: "+tools1+", command: "+string(command)+
		", securityContext: {privileged: true}, volumeMounts: ["+strings.Join(mounts, ", ")+"]}")),
		hostPath("driver", filepath.Dir(binary), "Directory"), hostPath("state", state, "Directory"),
		hostPath("sockets", sockets, "DirectoryOrCreate"), hostPath("registration", registry, "Directory"),
		hostPath("pods", pods, "Directory")))
	n.Write("user.yaml", withVolumes(toolPod(n, "user", containers(mounting(
		tool("main", "survey -stay /data"), "{name: data, mountPath: /data}"))),
		"{name: data, csi: {driver: csi.deckhand.test}}"))
	n.Await("both run", node.Ready("driver", "user"))
	if text := surveys(t, n, "user", "main").text("/data/volume_context"); !strings.Contains(text, "csi.storage.k8s.io/pod.name") {
		t.Errorf("the container has %q in the driver's volume", text)
	}
	n.Remove("user.yaml")
	n.Await("its user is gone", node.Only("driver"))
	c := driver.NewClient(filepath.Join(state, "control.sock"))
	s, err := c.State(t.Context())
	if err != nil || len(s.Of("NodePublishVolume")) != 1 || len(s.Of("NodeUnpublishVolume")) != 1 || len(s.Violations) > 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// The driver of volumes is uninstalled while pods use them: the pods can't end. Their volumes are forgotten, and nothing is
// left of them; a pod that runs keeps its own.
func TestCSIForget(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	registration := filepath.Join(n.RootDir, "plugins_registry", "csi.deckhand.test-reg.sock")
	n.Write("objects.yaml", documents(csiManifest, persistentVolume("csi", "csi", "csi: {driver: csi.deckhand.test, volumeHandle: h1}"),
		claim("csi", "csi")))
	n.Write("inline.yaml", withVolume(n, "inline", "csi: {driver: csi.deckhand.test}"))
	n.Write("claim.yaml", withVolume(n, "claim", "persistentVolumeClaim: {claimName: csi}"))
	n.Write("stays.yaml", withVolume(n, "stays", "csi: {driver: csi.deckhand.test}"))
	n.Await("they wait for the driver", held("stays", "hasn't registered"))
	d := driver.Start(t, driver.Options{Registration: registration, Below: []string{n.RootDir}, Capabilities: []string{"STAGE_UNSTAGE_VOLUME"}})
	s := n.Await("they run", node.Ready("inline", "claim", "stays"))
	id := func(pod, volume string) string { return string(node.Find(s, pod).Pod.UID) + "/" + volume }
	d.Kill()
	if err := os.Remove(registration); err != nil {
		t.Fatal(err)
	}
	if out, code := n.Deckhand("volumes", "forget", "--yes", id("stays", "data")); code != 1 || !strings.Contains(out, "is wanted") {
		t.Errorf("the volume of a pod that runs: exit code %d\n%s", code, out)
	}
	n.Remove("inline.yaml")
	n.Remove("claim.yaml")
	awaits := func(pod, volume string) {
		n.Await("its driver is awaited, and the remedy is told", node.Stopping(pod), node.Each([]string{pod}, func(v local.PodView) error {
			if text := v.Waiting(); !strings.Contains(text, "`deckhand volumes forget "+volume+"`") {
				return errors.New("it waits for " + text)
			}
			return nil
		}))
	}
	awaits("inline", id("inline", "data"))
	awaits("claim", id("claim", "csi"))
	succeeds(t, n, id("claim", "csi"), "volumes")
	succeeds(t, n, "csi.deckhand.test^h1", "volumes")
	n.Kill() // the next agent knows of the volumes by their records only
	n.Start()
	n.Await("all but the two are as they were", agentIs(n), node.Ready("stays"), node.Stopping("inline"), node.Stopping("claim"))
	if out, code := n.Deckhand("volumes", "forget", id("inline", "data")); code != 2 || !strings.Contains(out, "--yes") {
		t.Errorf("without a terminal: exit code %d\n%s", code, out)
	}
	succeeds(t, n, "forgot "+id("inline", "data"), "volumes", "forget", "--yes", id("inline", "data"))
	succeeds(t, n, "forgot csi.deckhand.test^h1, which no other volume used", "volumes", "forget", "--yes", id("claim", "csi"))
	s = n.Await("the two are gone", node.Only("stays"), node.Ready("stays"), noRestarts)
	if mounts := driver.Mounts(t, n.RootDir); !slices.ContainsFunc(mounts, func(m string) bool { return strings.Contains(m, id("stays", "")) }) ||
		slices.ContainsFunc(mounts, func(m string) bool { return strings.Contains(m, "globalmount") }) {
		t.Errorf("mounted: %v", mounts)
	}
	n.Remove("stays.yaml")
	awaits("stays", id("stays", "data"))
	succeeds(t, n, "forgot", "volumes", "forget", "--yes", id("stays", "data"))
	n.Await("all are gone", node.Only())
	n.Eventually("nothing is left", n.PodLeftovers)
	for _, dir := range []string{"plugins/kubernetes.io/csi/csi.deckhand.test", "staged"} {
		if left := names(filepath.Join(n.RootDir, dir)); len(left) > 0 {
			t.Errorf("left in %s: %v", dir, left)
		}
	}
}
