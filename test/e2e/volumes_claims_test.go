package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// Claims get PersistentVolumes of the node, and keep them.
func TestClaims(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	parts(t, n, map[string]func(*testing.T, *node.Node){
		"kept": testClaimsKeepTheirData, "missing": testClaimsThatAreMissing, "taken": testClaimsThatAreTaken, "once": testClaimOfOnePod, "ephemeral": testEphemeralClaim, "group": testClaimOfAGroup,
		"metrics": testClaimsInMetrics,
	})
}

// localPV is a manifest of a PersistentVolume that is a directory of this node. class keeps tests apart.
func localPV(name, class, path string) string {
	return persistentVolume(name, class, "local: {path: "+path+"}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: ["+node.Name+"]}]}]}}")
}

func persistentVolume(name, class, source string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: %s}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: %s, %s}\n", name, class, source)
}

// claim is a manifest of a PersistentVolumeClaim.
func claim(name, class string) string { return claimOf(name, class, "ReadWriteOnce") }

func claimOf(name, class, mode string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s}\nspec: {accessModes: [%s], storageClassName: %s, resources: {requests: {storage: 1Mi}}}\n", name, mode, class)
}

// claiming is a pod with a container that surveys these claims, each at the path of its name.
func claiming(n *node.Node, pod, command string, claims ...string) string {
	var mounts, volumes []string
	for _, c := range claims {
		name, _, _ := strings.Cut(c, ",")
		mounts = append(mounts, "{name: "+name+", mountPath: /"+name+"}")
		volumes = append(volumes, "{name: "+name+", persistentVolumeClaim: {claimName: "+c+"}}")
	}
	return withVolumes(toolPod(n, pod, containers(mounting(tool("main", command), mounts...))), volumes...)
}

// What a pod writes is there for the next one, also for one that may only read; and it stays on the node.
func testClaimsKeepTheirData(t *testing.T, n *node.Node) {
	dir := hostDir(t, n, "kept")
	local, host := filepath.Join(dir, "local"), filepath.Join(dir, "host")
	if err := errors.Join(os.Mkdir(local, 0o777), os.Mkdir(host, 0o777)); err != nil {
		t.Fatal(err)
	}
	n.Write("kept-objects.yaml", documents(localPV("kept-local", "kept-a", local), persistentVolume("kept-host", "kept-b", "hostPath: {path: "+host+", type: Directory}"),
		claim("kept-one", "kept-a"), claim("kept-two", "kept-b")))
	n.Write("writer.yaml", claiming(n, "writer", "survey -write /kept-one/word=said -write /kept-two/word=told -stay", "kept-one", "kept-two"))
	v := view(t, n.Await("it runs", node.Ready("writer")), "writer")
	want(t, "what it writes", surveys(t, n, "writer", "main").Tried, map[string]string{"/kept-one/word=said": "ok", "/kept-two/word=told": "ok"})
	if at := onDisk(n, v, "local-volume", "kept-local"); mountIDs(t, at)[at] == 0 {
		t.Errorf("nothing is mounted at %s", at)
	}
	remove(t, n, "writer")
	if err := errors.Join(holds(local+"/word", "said")(), holds(host+"/word", "told")()); err != nil {
		t.Fatalf("what is the claim's went with the pod: %v", err)
	}
	n.Write("reader.yaml", claiming(n, "reader", "survey -write /kept-one/more=x -write /kept-two/more=x -stay /kept-one /kept-two", "kept-one, readOnly: true", "kept-two, readOnly: true"))
	n.Await("the next one runs", node.Ready("reader"))
	saw := surveys(t, n, "reader", "main")
	want(t, "what it reads", saw.text("/kept-one/word")+" "+saw.text("/kept-two/word"), "said told")
	for try, came := range saw.Tried {
		want(t, "what comes of "+try, came, syscall.EROFS.Error())
	}
	remove(t, n, "reader")
}

// The metrics tell how full a claim is while a pod uses it, and what was done for that.
func testClaimsInMetrics(t *testing.T, n *node.Node) {
	metrics := func() string {
		body, _, err := get(n.ReadOnlyURL("metrics"))
		if err != nil {
			return err.Error()
		}
		return body
	}
	const full = `kubelet_volume_stats_capacity_bytes{namespace="default",persistentvolumeclaim="counted"}`
	n.Write("counted.yaml", documents(localPV("counted", "counted", hostDir(t, n, "counted")), claim("counted", "counted"), claiming(n, "counted", "survey -stay", "counted")))
	n.Await("it runs", node.Ready("counted"))
	for _, line := range []string{
		regexp.QuoteMeta(full) + " [1-9]",
		`volume_manager_total_volumes\{plugin_name="kubernetes.io/local-volume",state="desired_state_of_world"\} [1-9]`,
		`volume_manager_total_volumes\{plugin_name="kubernetes.io/local-volume",state="actual_state_of_world"\} [1-9]`,
		`storage_operation_duration_seconds_count\{.*operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/local-volume"\} [1-9]`,
		`volume_operation_total_seconds_count\{operation_name="volume_mount",plugin_name="kubernetes.io/local-volume"\} [1-9]`,
	} {
		n.Eventually("that is reported", tellsLike("(?m)^"+line, metrics))
	}
	remove(t, n, "counted")
	n.Eventually("its end is reported", tellsLike(`(?m)^storage_operation_duration_seconds_count\{.*operation_name="volume_unmount",status="success",volume_plugin="kubernetes.io/local-volume"\} [1-9]`, metrics))
	if strings.Contains(metrics(), full) {
		t.Error("a claim is reported that nobody uses any more")
	}
}

// A claim that isn't there holds its pod, as does one without a volume; both run when there is one.
func testClaimsThatAreMissing(t *testing.T, n *node.Node) {
	n.Write("absent.yaml", claiming(n, "absent", "survey -stay /absent", "absent"))
	const noClaim, noVolume = `failed to process volumes=[absent]: volume "absent": persistentvolumeclaim "absent" not found in namespace "default"`, "PersistentVolumeClaim default/absent: no PersistentVolume fits"
	n.Await("it is held", held("absent", noClaim))
	n.AwaitEvent("absent", "FailedMount", noClaim)
	explains(t, n, "absent", noClaim)
	n.Write("absent-claim.yaml", claim("absent", "absent"))
	n.Await("there is no volume for it", held("absent", "PersistentVolumeClaim default/absent", "no PersistentVolume"))
	small := strings.Replace(localPV("absent", "absent", hostDir(t, n, "absent")), "storage: 1Gi", "storage: 1Ki", 1)
	n.Write("absent-volume.yaml", small)
	n.Await("it is reported why the one that is there doesn't fit", held("absent", noVolume, "1Ki", "1Mi"))
	n.Write("absent-volume.yaml", localPV("absent", "absent", hostDir(t, n, "absent")))
	n.Await("it runs", node.Ready("absent"))
	remove(t, n, "absent")

	n.Write("lost.yaml", documents(localPV("lost", "lost", n.Base+"/host/lost/directory"), claim("lost", "lost"), claiming(n, "lost", "survey -stay /lost", "lost")))
	n.Await("the directory isn't there", held("lost", n.Base+"/host/lost/directory does not exist on this node"))
	hostDir(t, n, "lost/directory")
	n.Await("it is tried again", node.Ready("lost"))
	remove(t, n, "lost")
}

// A volume is one claim's only; the other waits until there is another.
func testClaimsThatAreTaken(t *testing.T, n *node.Node) {
	n.Write("taken-objects.yaml", documents(localPV("taken-1", "taken", hostDir(t, n, "taken-1")), claim("taken-a", "taken"), claim("taken-b", "taken")))
	n.Write("first.yaml", claiming(n, "first", "survey -stay", "taken-a"))
	n.Await("the first has it", node.Ready("first"))
	n.Write("second.yaml", claiming(n, "second", "survey -stay", "taken-b"))
	n.Await("the second is held", held("second", "taken-1 is taken by PersistentVolumeClaim default/taken-a"), node.Ready("first"))
	explains(t, n, "second", "taken-1 is taken by")
	releases(t, n, "second", func() { n.Write("taken-more.yaml", localPV("taken-2", "taken", hostDir(t, n, "taken-2"))) })
	n.Await("the first goes on", node.Ready("first", "second"), noRestarts)
	remove(t, n, "first")
	remove(t, n, "second")
}

// A claim that only one pod may have is the next one's when that is gone.
func testClaimOfOnePod(t *testing.T, n *node.Node) {
	n.Write("once-objects.yaml", documents(strings.Replace(localPV("once", "once", hostDir(t, n, "once")), "ReadWriteOnce", "ReadWriteOncePod", 1), claimOf("once", "once", "ReadWriteOncePod")))
	n.Write("holder.yaml", claiming(n, "holder", "survey -stay", "once"))
	n.Await("the first has it", node.Ready("holder"))
	n.Write("waiter.yaml", claiming(n, "waiter", "survey -stay", "once"))
	n.Await("the second is held", held("waiter", "PersistentVolumeClaim default/once", "ReadWriteOncePod", "holder-"+node.Name))
	explains(t, n, "waiter", "ReadWriteOncePod")
	releases(t, n, "waiter", func() { remove(t, n, "holder") })
	remove(t, n, "waiter")
}

// A claim that is made of a pod's own template is that pod's, and so is what it was bound to.
func testEphemeralClaim(t *testing.T, n *node.Node) {
	n.Write("own-objects.yaml", localPV("own", "own", hostDir(t, n, "own")))
	text := withVolumes(toolPod(n, "own", containers(mounting(tool("main", "survey -write /own/word=said -stay"), "{name: own, mountPath: /own}"))),
		"{name: own, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: own, resources: {requests: {storage: 1Mi}}}}}}")
	n.Write("own.yaml", text)
	n.Await("it runs", node.Ready("own"))
	n.Eventually("it writes to the volume", holds(n.Base+"/host/own/word", "said"))
	remove(t, n, "own")
	n.Write("other.yaml", strings.ReplaceAll(text, "name: own", "name: other"))
	n.Await("what it released is nobody's", held("other", "own was released by", "is kept with its data"))
	remove(t, n, "other")
}

// A claim's files are given to the pod's fsGroup.
func testClaimOfAGroup(t *testing.T, n *node.Node) {
	dir := hostDir(t, n, "crewed")
	putFile(t, dir+"/deep/file", "there")
	if err := os.Chmod(dir+"/deep/file", 0o600); err != nil {
		t.Fatal(err)
	}
	n.Write("crewed-objects.yaml", documents(localPV("crewed", "crewed", dir), claim("crewed", "crewed")))
	n.Write("crewed.yaml", strings.Replace(claiming(n, "crewed", "survey -write /crewed/deep/new=x -stay /crewed", "crewed"),
		"spec:\n", "spec:\n  securityContext: {fsGroup: 3000, runAsUser: 1000}\n", 1))
	n.Await("it runs", node.Ready("crewed"))
	saw := surveys(t, n, "crewed", "main")
	want(t, "what comes of writing", saw.Tried["/crewed/deep/new=x"], "ok")
	f := saw.Files["/crewed/deep/file"]
	want(t, "the file that was there", f, found{Mode: "-rw-rw----", Owner: "0:3000", FSType: f.FSType, Text: "there"})
	want(t, "the new one's group", saw.Files["/crewed/deep/new"].Owner, "1000:3000")
	remove(t, n, "crewed")
}
