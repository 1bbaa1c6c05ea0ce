package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// A volume that can't be made holds its pod with the reason, or the pod is refused, for good where that is
// the only way; a good pod beside goes on, and what was right before stays.
func TestBadVolumes(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	n.Write("good-objects.yaml", documents(configMap("good", "a: b"), secret("good", "password: hush-good")))
	good := withVolumes(toolPod(n, "good", containers(mounting(tool("main", "survey -stay /conf /hush"), "{name: conf, mountPath: /conf}", "{name: hush, mountPath: /hush}"))),
		"{name: conf, configMap: {name: good}}", "{name: hush, secret: {secretName: good}}")
	n.Write("good.yaml", good)
	n.Await("it runs", node.Ready("good"))
	before := n.RunningIDs()

	conditions := append(badWaits(t, n), badForGood(n)...)
	conditions = append(conditions, badManifests(n)...)
	n.Await("what is wrong is reported each", append(conditions, node.Ready("good"), noRestarts)...)
	unchanged(t, before, n.RunningIDs())
	explains(t, n, "unsupported-nfs", "volumes of the kind nfs", "hostPath or a PersistentVolume of the kind local")
	explains(t, n, "bad-key", `has no key "wanted"`)
	explains(t, n, "bad-large", n.Path("x-large.yaml")+" defines it, but there is a mistake")
	if left := mountIDs(t, filepath.Join(n.RootDir, "pods")); len(left) != 1 {
		t.Errorf("mounted are %v, want nothing but the good pod's Secret", left)
	}

	// A manifest that went bad leaves its pod and its objects as they were, across a restart, too.
	n.Write("good.yaml", strings.Replace(good, "{name: conf, configMap: {name: good}}", "{name: conf, configMap: {name: good, items: [{key: a, path: ../b}]}}", 1))
	n.Write("good-objects.yaml", documents(configMap("good", "a: "+strings.Repeat("x", v1.MaxSecretSize+1)), secret("good", "password: hush-good")))
	bad := []node.Condition{node.Problem(n.Path("good.yaml"), "items[0].path"), node.Problem(n.Path("good-objects.yaml"), "ConfigMap default/good")}
	s := n.Await("it is reported", append(bad, node.Ready("good"), node.Stale("good", "path"))...)
	n.Kill()
	n.Start()
	n.Await("the next agent keeps them as well", append(bad, agentIs(n), node.Ready("good"))...)
	if err := holds(onDisk(n, view(t, s, "good"), "configmap", "conf")+"/a", "b")(); err != nil {
		t.Error(err)
	}
	files, err := filepath.Glob(n.Path("*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		n.Remove(filepath.Base(file))
	}
	n.Await("all are gone", node.Only())
	n.Eventually("they leave nothing", n.PodLeftovers)
}

// withVolume is a pod whose only container mounts this.
func withVolume(n *node.Node, pod, source string) string {
	return withVolumes(toolPod(n, pod, containers(mounting(tool("main", "act"), "{name: data, mountPath: /data}"))), "{name: data, "+source+"}")
}

// badWaits are pods that wait until something is fixed, and what they wait for.
func badWaits(t *testing.T, n *node.Node) (conditions []node.Condition) {
	putFile(t, n.Base+"/host/file", "")
	n.Write("bad-objects.yaml", documents(configMap("bad", "other: x"), secret("bad", "other: x"), localPV("bad", "bad", hostDir(t, n, "pv")), claim("bad-first", "bad"), claim("bad-taken", "bad")))
	n.Write("bad-first.yaml", withVolume(n, "bad-first", "persistentVolumeClaim: {claimName: bad-first}"))
	n.Await("one has the volume", node.Ready("bad-first"))
	remove(t, n, "bad-first") // its claim keeps it
	for pod, c := range map[string]struct{ source, words string }{
		"bad-key":     {"configMap: {name: bad, items: [{key: wanted, path: a}]}", `ConfigMap "bad" (namespace default) has no key "wanted"`},
		"bad-secret":  {"secret: {secretName: bad, items: [{key: wanted, path: a}]}", `Secret "bad" (namespace default) has no key "wanted"`},
		"bad-all":     {"projected: {sources: [{configMap: {name: bad}}, {secret: {name: none}}]}", `Secret "none" (namespace default) isn't there`},
		"bad-none":    {"configMap: {name: none}", `ConfigMap "none" (namespace default) isn't there`},
		"bad-claim":   {"persistentVolumeClaim: {claimName: none}", `persistentvolumeclaim "none" not found in namespace "default"`},
		"bad-taken":   {"persistentVolumeClaim: {claimName: bad-taken}", "is taken by PersistentVolumeClaim default/bad-first"},
		"bad-type":    {"hostPath: {path: " + n.Base + "/host/file, type: Directory}", "type Directory wants a directory"},
		"bad-large":   {"configMap: {name: large}", `configmap "large" not found in namespace "default" (` + n.Path("x-large.yaml") + " defines it, but there is a mistake in that"},
		"bad-hush":    {"secret: {secretName: large}", `secret "large" not found in namespace "default" (` + n.Path("x-large.yaml") + " defines it, but there is a mistake in that"},
		"bad-path":    {`configMap: {name: bad, items: [{key: other, path: 'a\b'}]}`, "backslash"},
		"bad-missing": {"hostPath: {path: " + n.Base + "/host/none, type: File}", "does not exist"},
	} {
		n.Write(pod+".yaml", withVolume(n, pod, c.source))
		conditions = append(conditions, held(pod, `volume "data"`, c.words))
	}
	return conditions
}

// badForGood are pods with volumes that this build can't make.
func badForGood(n *node.Node) (conditions []node.Condition) {
	for pod, c := range map[string]struct {
		source string
		words  []string
	}{
		"unsupported-nfs":   {"nfs: {server: a, path: /b}", []string{"volumes of the kind nfs are not supported by this build", "mount it on the host"}},
		"unsupported-git":   {"gitRepo: {repository: 'https://example.com/a.git'}", []string{"volumes of the kind gitRepo are not supported by this build", "init container"}},
		"unsupported-iscsi": {"iscsi: {targetPortal: 10.0.0.1, iqn: iqn.2001-04.com.example:a, lun: 0}", []string{"volumes of the kind iscsi", "attach and mount it on the host"}},
		"unsupported-token": {"projected: {sources: [{serviceAccountToken: {path: token}}]}", []string{"serviceAccountToken", "API server"}},
	} {
		n.Write(pod+".yaml", withVolume(n, pod, c.source))
		conditions = append(conditions, held(pod, c.words...))
	}
	return conditions
}

// badManifests are manifests that are refused, and what is reported them.
func badManifests(n *node.Node) (conditions []node.Condition) {
	item := func(path string) string { return "configMap: {name: good, items: [{key: a, path: " + path + "}]}" }
	for pod, c := range map[string]struct {
		source string
		words  []string
	}{
		"path-up":        {item("../a"), []string{"items[0].path", ".."}},
		"path-inside":    {item("a/../../b"), []string{"items[0].path", ".."}},
		"path-absolute":  {item("/etc/passwd"), []string{"items[0].path"}},
		"path-self":      {"downwardAPI: {items: [{path: ../x, fieldRef: {fieldPath: metadata.name}}]}", []string{"items[0].path", ".."}},
		"path-projected": {"projected: {sources: [{secret: {name: good, items: [{key: password, path: /x}]}}]}", []string{"items[0].path"}},
		"two-kinds":      {"emptyDir: {}, hostPath: {path: /}", []string{"volumes[0]"}},
		"relative":       {"hostPath: {path: a/../../b}", []string{"hostPath.path"}},
		"field":          {"downwardAPI: {items: [{path: x, fieldRef: {fieldPath: status.phase}}]}", []string{"fieldPath"}},
		"mode":           {"configMap: {name: good, defaultMode: 4096}", []string{"defaultMode"}},
		"limit":          {"emptyDir: {sizeLimit: -1}", []string{"sizeLimit"}},
	} {
		n.Write("x-"+pod+".yaml", withVolume(n, "x-"+pod, c.source))
		conditions = append(conditions, node.Problem(append(c.words, n.Path("x-"+pod+".yaml"))...))
	}
	n.Write("x-subpath.yaml", strings.Replace(withVolume(n, "x-subpath", "emptyDir: {}"), "mountPath: /data}", "mountPath: /data, subPath: ../a}", 1))
	n.Write("x-mount.yaml", strings.Replace(withVolume(n, "x-mount", "emptyDir: {}"), "{name: data, mountPath", "{name: none, mountPath", 1))
	n.Write("x-large.yaml", documents(configMap("large", "a: "+strings.Repeat("x", v1.MaxSecretSize), "b: x"), secret("large", "a: "+strings.Repeat("x", v1.MaxSecretSize), "b: x")))
	return append(conditions, node.Problem(n.Path("x-subpath.yaml"), "subPath", ".."), node.Problem(n.Path("x-mount.yaml"), "volumeMounts[0].name"),
		node.Problem(n.Path("x-large.yaml"), "ConfigMap default/large"), node.Problem(n.Path("x-large.yaml"), "Secret default/large"))
}

// testSecretVolumes has Secrets in volumes, good and bad ones; what may tell of them is looked at by
// testSecretsAreNotShown.
func testSecretVolumes(t *testing.T, n *node.Node, s *secrets) {
	first, second := s.value(), s.value()
	n.Write("v-objects.yaml", secret("v", "password: "+first, "link: "+s.value()))
	n.Write("v.yaml", withVolumes(toolPod(n, "v", containers(mounting(tool("main", "survey -stay"),
		"{name: hush, mountPath: /hush}", "{name: all, mountPath: /all}", "{name: hush, mountPath: /part, subPath: password}"))),
		"{name: hush, secret: {secretName: v}}", "{name: all, projected: {sources: [{secret: {name: v, items: [{key: link, path: deep/link}]}}]}}"))
	for pod, c := range map[string]struct{ source, words string }{
		"v-key":  {"secret: {secretName: v, items: [{key: none, path: a}]}", `has no key "none"`},
		"v-path": {`secret: {secretName: v, items: [{key: password, path: 'a\b'}]}`, "backslash"},
		"v-both": {"projected: {sources: [{secret: {name: v, items: [{key: password, path: a}]}}, {secret: {name: v, items: [{key: link, path: a/b}]}}]}", "both a file and a directory"},
	} {
		n.Write(pod+".yaml", withVolume(n, pod, c.source))
		n.Await("it is held", held(pod, c.words))
	}
	n.Write("v-large.yaml", secret("v-large", "a: "+strings.Repeat(s.value(), 40_000)))
	v := view(t, n.Await("it runs", node.Ready("v"), node.Problem(n.Path("v-large.yaml"), "Secret default/v-large")), "v")
	file := onDisk(n, v, "secret", "hush") + "/password"
	n.Eventually("it has the value", holds(file, first))
	n.Write("v-objects.yaml", secret("v", "password: "+second, "link: "+s.value()))
	n.Eventually("it has the new value", holds(file, second))
	info, err := os.Stat(n.Path("v-objects.yaml"))
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Fatal("the manifest isn't as others may read it:", err)
	}
	if out, _ := n.Deckhand("events", "-o", "json"); !strings.Contains(out, "ReadableSecret") || !strings.Contains(out, "chmod 600 "+n.Path("v-objects.yaml")) {
		t.Errorf("that others may read the Secret's file isn't reported: %s", out)
	}
}

// inMemory reports whether a directory or a file is of a tmpfs that is mounted in the node's directory.
func inMemory(n *node.Node, path string) bool {
	var at, root unix.Stat_t
	var fs unix.Statfs_t
	if unix.Lstat(path, &at) != nil || unix.Stat(n.RootDir, &root) != nil || unix.Statfs(path, &fs) != nil {
		return false
	}
	return at.Dev != root.Dev && fs.Type == unix.TMPFS_MAGIC
}
