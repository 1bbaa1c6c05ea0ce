package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// Volumes of ConfigMaps, Secrets and the pod's own fields, as containers see them.
func TestVolumesOfObjects(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	parts(t, n, map[string]func(*testing.T, *node.Node){
		"seen": testVolumesSeen, "group": testVolumesOfAGroup, "edits": testVolumesFollow, "immutable": testImmutableVolume,
		"missing": testVolumesWait, "missing key": testVolumesWaitForKey, "optional": testOptionalVolume,
		"stopping": testVolumesOfAStoppingPod, "nested": testVolumesInVolumes,
	})
}

// testVolumesSeen looks at contents, modes, owners and links, and that nobody can write.
func testVolumesSeen(t *testing.T, n *node.Node) {
	n.Write("seen-objects.yaml", configMap("seen", "greeting: ahoy", "app.conf: 'a = b'")+"binaryData: {bell: /wD+}\n---\n"+secret("seen", "password: hush-seen"))
	main := mounting(tool("main", "survey -write /conf/greeting=x -write /conf/new=x -write /hush/password=x -write /self/name=x -write /all/new=x -write /writable/new=x -stay /conf /some /hush /self /all",
		"resources: {limits: {cpu: 250m, memory: 64Mi}}"),
		"{name: conf, mountPath: /conf}", "{name: some, mountPath: /some, readOnly: true}", "{name: hush, mountPath: /hush}",
		"{name: self, mountPath: /self}", "{name: all, mountPath: /all}", "{name: scratch, mountPath: /writable}")
	text := withVolumes(labelledPod(n, "seen", "{app: sail}", containers(main)),
		"{name: scratch, emptyDir: {}}", "{name: conf, configMap: {name: seen}}",
		"{name: some, configMap: {name: seen, defaultMode: 0640, items: [{key: greeting, path: deep/er/hello}, {key: app.conf, path: script, mode: 0755}]}}",
		"{name: hush, secret: {secretName: seen, defaultMode: 0400}}",
		"{name: self, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}, {path: labels, fieldRef: {fieldPath: metadata.labels}, mode: 0600},"+
			" {path: cpu, resourceFieldRef: {containerName: main, resource: limits.cpu, divisor: 1m}}]}}",
		"{name: all, projected: {defaultMode: 0444, sources: [{configMap: {name: seen, items: [{key: greeting, path: from/config}]}}, {secret: {name: seen}},"+
			" {downwardAPI: {items: [{path: from/self, fieldRef: {fieldPath: \"metadata.labels['app']\"}}]}}, {configMap: {name: none, optional: true}}]}}")
	n.Write("seen.yaml", text)
	s := n.Await("it runs", node.Ready("seen"))
	saw := surveys(t, n, "seen", "main")
	for path, w := range map[string]struct{ text, mode, link string }{
		"/conf/greeting": {"ahoy", "-rw-r--r--", "..data/greeting"}, "/conf/app.conf": {"a = b", "-rw-r--r--", "..data/app.conf"}, "/conf/bell": {"\ufffd\x00\ufffd", "-rw-r--r--", "..data/bell"},
		"/some/..data/deep/er/hello": {"ahoy", "-rw-r-----", ""}, "/some/script": {"a = b", "-rwxr-xr-x", "..data/script"},
		"/hush/password": {"hush-seen", "-r--------", "..data/password"},
		"/self/name":     {"seen-" + node.Name, "-rw-r--r--", "..data/name"}, "/self/labels": {`app="sail"`, "-rw-------", "..data/labels"}, "/self/cpu": {"250", "-rw-r--r--", "..data/cpu"},
		"/all/password": {"hush-seen", "-r--r--r--", "..data/password"}, "/all/..data/from/config": {"ahoy", "-r--r--r--", ""}, "/all/..data/from/self": {"sail", "-r--r--r--", ""},
	} {
		// "..data" is a link itself, so what is below it is listed by its directory's own name.
		path = strings.Replace(path, "..data", saw.Files[path[:strings.Index(path[1:], "/")+1]+"/..data"].Link, 1)
		want(t, path, saw.Files[path], found{Text: w.text, Mode: w.mode, Link: w.link, Owner: "0:0", FSType: saw.Files[path].FSType})
	}
	for _, not := range []string{"/some/greeting", "/all/greeting", "/some/app.conf"} {
		if f, there := saw.Files[not]; there {
			t.Errorf("%s, which no item names, is there: %+v", not, f)
		}
	}
	for try, came := range saw.Tried {
		wanted := syscall.EROFS.Error()
		if strings.HasPrefix(try, "/writable") {
			wanted = "ok"
		}
		want(t, "the attempt to write "+try, came, wanted)
	}
	want(t, "the Secret's file system", saw.Files["/hush/password"].FSType, tmpfsMagic)
	want(t, "the file system of what has a Secret among others", saw.Files["/all/password"].FSType, tmpfsMagic)
	v := view(t, s, "seen")
	dir := onDisk(n, v, "secret", "hush")
	if mountIDs(t, dir)[dir] == 0 {
		t.Errorf("nothing is mounted at %s: %v", dir, mountIDs(t, n.RootDir+"/pods"))
	}
	if info, err := os.Stat(onDisk(n, v, "configmap", "conf") + "/greeting"); err != nil || info.Size() != 4 {
		t.Errorf("the ConfigMap's file on the host: %v", err)
	}
	remove(t, n, "seen")
	n.Eventually("nothing of it is mounted", isGone(dir))
}

// With an fsGroup, who isn't root reads what is for that group.
func testVolumesOfAGroup(t *testing.T, n *node.Node) {
	n.Write("group-objects.yaml", configMap("group", "greeting: ahoy")+"---\n"+secret("group", "password: hush-group"))
	main := mounting(tool("main", "survey -write /own/new=x -stay /conf /hush /self /all /own", secured("runAsUser: 1000", "runAsGroup: 2000")),
		"{name: conf, mountPath: /conf}", "{name: hush, mountPath: /hush}", "{name: self, mountPath: /self}", "{name: all, mountPath: /all}", "{name: own, mountPath: /own}")
	n.Write("group.yaml", withVolumes(toolPod(n, "group", "securityContext: {fsGroup: 3000}", containers(main)),
		"{name: conf, configMap: {name: group, defaultMode: 0400}}", "{name: hush, secret: {secretName: group, defaultMode: 0400}}",
		"{name: self, downwardAPI: {defaultMode: 0400, items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}",
		"{name: all, projected: {defaultMode: 0400, sources: [{secret: {name: group}}]}}", "{name: own, emptyDir: {}}"))
	n.Await("it runs", node.Ready("group"))
	saw := surveys(t, n, "group", "main")
	for path, text := range map[string]string{"/conf/greeting": "ahoy", "/hush/password": "hush-group", "/self/name": "group-" + node.Name, "/all/password": "hush-group"} {
		f := saw.Files[path]
		want(t, "what the group reads in "+path, f.Text, text)
		want(t, "the owner of "+path, f.Owner, "0:3000")
		if !strings.HasPrefix(f.Mode, "-r") || !strings.HasSuffix(f.Mode, "---") {
			t.Errorf("%s has mode %s, want it closed to others", path, f.Mode)
		}
	}
	want(t, "what it may write", saw.Tried, map[string]string{"/own/new=x": "ok"})
	want(t, "whose that is", saw.Files["/own/new"].Owner, "1000:3000")
	remove(t, n, "group")
}

// testVolumesFollow edits what volumes are made from while containers read them in a loop: they see every
// version whole, and in the end the last one. What is mounted by subPath stays.
func testVolumesFollow(t *testing.T, n *node.Node) {
	objects := func(version string) string {
		same := []string{"a: " + version, "b: " + version, "c: " + version}
		return configMap("edits", same...) + "---\n" + secret("edits", same...)
	}
	ann := func(key string) string { return "fieldRef: {fieldPath: \"metadata.annotations['" + key + "']\"}" }
	pod := func(version string) string {
		reader := func(name, until string, mounts ...string) string {
			return mounting(tool(name, "survey "+until+" -stay /conf /part /self"), append(mounts, "{name: conf, mountPath: /conf}", "{name: conf, mountPath: /part, subPath: a}", "{name: self, mountPath: /self}")...)
		}
		text := withVolumes(toolPod(n, "edits", containers(
			reader("conf", "-until /conf/a=last"), reader("hush", "-until /hush/a=last", "{name: hush, mountPath: /hush}"), reader("all", "-until /all/a=last", "{name: all, mountPath: /all}"),
			reader("self", "-until /self/tide=last"), reader("labels", `-until /labels/all=app="last"`, "{name: labels, mountPath: /labels}"))),
			"{name: conf, configMap: {name: edits}}", "{name: hush, secret: {secretName: edits}}", "{name: all, projected: {sources: [{configMap: {name: edits}}]}}",
			"{name: self, downwardAPI: {items: [{path: tide, "+ann("tide")+"}, {path: again, "+ann("tide")+"}]}}",
			"{name: labels, downwardAPI: {items: [{path: all, fieldRef: {fieldPath: metadata.labels}}]}}")
		return strings.Replace(text, "labels: {}", fmt.Sprintf("labels: {app: %s}, annotations: {tide: %q}", version, version), 1)
	}
	n.Write("edits-objects.yaml", objects("first"))
	n.Write("edits.yaml", pod("first"))
	s := n.Await("it runs", node.Ready("edits"))
	before := n.RunningIDs()
	v := view(t, s, "edits")
	for i := range 8 {
		version := fmt.Sprint("version-", i)
		n.Write("edits-objects.yaml", objects(version))
		n.Eventually("the ConfigMap's edit is there", holds(onDisk(n, v, "configmap", "conf")+"/c", version))
	}
	n.Write("edits-objects.yaml", objects("last"))
	n.Write("edits.yaml", pod("last"))
	for _, c := range []string{"conf", "hush", "all", "self", "labels"} {
		saw := surveys(t, n, "edits", c)
		for try, came := range saw.Tried {
			want(t, c+" waits until "+try, came, "ok")
		}
		want(t, "what is mounted by subPath into "+c, saw.text("/part"), "first")
	}
	n.Eventually("only the last version is kept, and what is mounted by subPath", func() error {
		versions, err := filepath.Glob(onDisk(n, v, "configmap", "conf") + "/..2*/*")
		if err == nil && len(versions) != 3+1 {
			err = fmt.Errorf("there are %q", versions)
		}
		return err
	})
	n.Await("nothing was restarted", node.Ready("edits"), noRestarts)
	after := n.RunningIDs()
	for key, id := range before {
		if strings.HasPrefix(key, "edits-") && after[key] != id {
			t.Errorf("container %s was replaced", key)
		}
	}
	remove(t, n, "edits")
}

// testVolumesInVolumes mounts something in volumes that nobody can write to: it stays there when they are updated.
func testVolumesInVolumes(t *testing.T, n *node.Node) {
	objects := func(version string) string {
		return configMap("nest", "a: "+version) + "---\n" + secret("nest", "a: "+version)
	}
	n.Write("nest-objects.yaml", objects("one"))
	main := mounting(tool("main", "survey -write /conf/in/x=kept -write /hush/in/er/x=kept -write /self/in/x=kept -write /all/in/x=kept -until /conf/a=two -until /hush/a=two -until /all/a=two -stay /conf /hush /self /all"),
		"{name: scratch, mountPath: /conf/in, subPath: conf}", "{name: conf, mountPath: /conf}", "{name: hush, mountPath: /hush}", "{name: scratch, mountPath: /hush/in/er, subPath: hush}",
		"{name: self, mountPath: /self}", "{name: scratch, mountPath: /self/in, subPath: self}", "{name: all, mountPath: /all}", "{name: scratch, mountPath: /all/in, subPath: all}",
		"{name: hush, mountPath: /all/hush}", "{name: conf, mountPath: /all/hush/in}")
	n.Write("nest.yaml", withVolumes(toolPod(n, "nest", containers(main)), "{name: scratch, emptyDir: {}}", "{name: conf, configMap: {name: nest}}",
		"{name: hush, secret: {secretName: nest}}", "{name: self, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}", "{name: all, projected: {sources: [{configMap: {name: nest}}]}}"))
	n.Await("it runs", node.Ready("nest"))
	n.Write("nest-objects.yaml", objects("two"))
	saw := surveys(t, n, "nest", "main")
	for try, came := range saw.Tried {
		want(t, "the attempt "+try, came, "ok")
	}
	for path, text := range map[string]string{
		"/conf/in/x": "kept", "/hush/in/er/x": "kept", "/self/in/x": "kept", "/all/in/x": "kept",
		"/conf/a": "two", "/hush/a": "two", "/all/a": "two", "/all/hush/a": "two", "/all/hush/in/a": "two",
	} {
		want(t, path, saw.text(path), text)
	}
	remove(t, n, "nest")
}

// What is immutable stays as it is, however its manifest is edited.
func testImmutableVolume(t *testing.T, n *node.Node) {
	objects := func(version string) string {
		return configMap("fixed", "v: "+version) + "immutable: true\n---\n" + secret("fixed", "v: hush-"+version) + "immutable: true\n---\n" + configMap("moving", "v: "+version)
	}
	n.Write("fixed-objects.yaml", objects("one"))
	n.Write("fixed.yaml", withVolumes(toolPod(n, "fixed", containers(mounting(tool("main", "survey -until /moving/v=two -stay /fixed /hush /moving"),
		"{name: fixed, mountPath: /fixed}", "{name: hush, mountPath: /hush}", "{name: moving, mountPath: /moving}"))),
		"{name: fixed, configMap: {name: fixed}}", "{name: hush, secret: {secretName: fixed}}", "{name: moving, configMap: {name: moving}}"))
	n.Await("it runs", node.Ready("fixed"))
	n.Write("fixed-objects.yaml", objects("two"))
	n.Await("the edit is refused", node.Problem(n.Path("fixed-objects.yaml"), "ConfigMap default/fixed", "immutable"), node.Problem(n.Path("fixed-objects.yaml"), "Secret default/fixed", "immutable"))
	saw := surveys(t, n, "fixed", "main")
	want(t, "the one that may change", saw.text("/moving/v"), "two")
	want(t, "the immutable ones", saw.text("/fixed/v")+", "+saw.text("/hush/v"), "one, hush-one")
	remove(t, n, "fixed")
}

// A pod whose volume is of what isn't there is held, with the reason, and runs as soon as it is.
func testVolumesWait(t *testing.T, n *node.Node) {
	n.Write("miss.yaml", withVolumes(toolPod(n, "miss", containers(mounting(tool("main", "survey -stay /conf /hush"), "{name: conf, mountPath: /conf}", "{name: hush, mountPath: /hush}"))),
		"{name: conf, configMap: {name: miss}}", "{name: hush, secret: {secretName: miss}}"))
	const noMap, noSecret = `MountVolume.SetUp failed for volume "conf" : ConfigMap "miss" (namespace default) isn't there`, `MountVolume.SetUp failed for volume "hush" : Secret "miss" (namespace default) isn't there`
	n.Await("it is held", held("miss", noMap, noSecret), waiting("miss", "ContainerCreating", ""))
	n.AwaitEvent("miss", "FailedMount", noMap, noSecret)
	explains(t, n, "miss", noMap, noSecret)
	n.Write("miss-1.yaml", configMap("miss", "a: b"))
	n.Await("of the one that is there nothing is said any more", held("miss", noSecret))
	releases(t, n, "miss", func() { n.Write("miss-2.yaml", secret("miss", "c: d")) })
	saw := surveys(t, n, "miss", "main")
	want(t, "what it reads", saw.text("/conf/a")+saw.text("/hush/c"), "bd")
	remove(t, n, "miss")
}

func testVolumesWaitForKey(t *testing.T, n *node.Node) {
	n.Write("key-objects.yaml", configMap("key", "other: x"))
	n.Write("key.yaml", withVolumes(toolPod(n, "key", containers(mounting(tool("main", "survey -stay /conf"), "{name: conf, mountPath: /conf}"))),
		"{name: conf, configMap: {name: key, items: [{key: wanted, path: file}]}}"))
	const reason = `ConfigMap "key" (namespace default) has no key "wanted" (it has "other")`
	n.Await("it is held", held("key", reason))
	explains(t, n, "key", reason)
	releases(t, n, "key", func() { n.Write("key-objects.yaml", configMap("key", "other: x", "wanted: here")) })
	want(t, "what it reads", surveys(t, n, "key", "main").text("/conf/file"), "here")
	// A key that is lost again is reported; what was there stays.
	n.Write("key-objects.yaml", configMap("key", "other: x"))
	n.AwaitEvent("key", "FailedMount", `has no key "wanted"`, "it keeps the content that it has")
	v := view(t, n.Await("it runs on", node.Ready("key"), noRestarts), "key")
	if err := holds(onDisk(n, v, "configmap", "conf")+"/file", "here")(); err != nil {
		t.Error(err)
	}
	remove(t, n, "key")
}

// What is optional holds nobody, comes when it is there, and goes with it.
func testOptionalVolume(t *testing.T, n *node.Node) {
	n.Write("maybe.yaml", withVolumes(toolPod(n, "maybe", containers(
		mounting(tool("first", "survey -stay /conf /hush"), "{name: conf, mountPath: /conf}", "{name: hush, mountPath: /hush}"),
		mounting(tool("later", "survey -until /conf/a=b -until /hush/c=d -stay /conf /hush"), "{name: conf, mountPath: /conf}", "{name: hush, mountPath: /hush}"))),
		"{name: conf, configMap: {name: maybe, optional: true}}", "{name: hush, secret: {secretName: maybe, optional: true}}"))
	v := view(t, n.Await("it runs without", node.Ready("maybe")), "maybe")
	for path := range surveys(t, n, "maybe", "first").Files {
		if name := strings.TrimPrefix(strings.TrimPrefix(path, "/conf"), "/hush"); name != "" && !strings.HasPrefix(name, "/..") {
			t.Errorf("there is %s", path)
		}
	}
	n.Write("maybe-objects.yaml", configMap("maybe", "a: b")+"---\n"+secret("maybe", "c: d"))
	for try, came := range surveys(t, n, "maybe", "later").Tried {
		want(t, "waiting until "+try, came, "ok")
	}
	n.Remove("maybe-objects.yaml")
	n.Eventually("it is gone again", isGone(onDisk(n, v, "configmap", "conf")+"/a"))
	n.Await("the pod runs on", node.Ready("maybe"), noRestarts)
	remove(t, n, "maybe")
}

// A pod that is being stopped keeps what its volumes tell of it last, and ConfigMaps' edits reach it.
func testVolumesOfAStoppingPod(t *testing.T, n *node.Node) {
	pod := func(version string) string {
		text := withVolumes(toolPod(n, "ending", "terminationGracePeriodSeconds: 60", containers(mounting(tool("main", "act -linger 60s"), "{name: self, mountPath: /self}", "{name: conf, mountPath: /conf}"))),
			"{name: self, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}", "{name: conf, configMap: {name: ending}}")
		return strings.Replace(text, "labels: {}", "labels: {app: "+version+"}", 1)
	}
	n.Write("ending-objects.yaml", configMap("ending", "a: one"))
	n.Write("ending.yaml", pod("first"))
	s := n.Await("it runs", node.Ready("ending"))
	v, process := view(t, s, "ending"), processOf(t, n, s, "ending", "main")
	self, conf := onDisk(n, v, "downward-api", "self")+"/labels", onDisk(n, v, "configmap", "conf")+"/a"
	n.Write("ending.yaml", pod("last"))
	n.Eventually("its labels' edit is there", holds(self, `app="last"`))
	n.Remove("ending.yaml")
	inOrder(t, n, "ending", "main got SIGTERM")
	for _, text := range []string{"two", "three"} {
		n.Write("ending-objects.yaml", configMap("ending", "a: "+text))
		n.Eventually("the ConfigMap's edit is there", holds(conf, text))
		if err := holds(self, `app="last"`)(); err != nil {
			t.Errorf("the labels of a pod that is being stopped: %v", err)
		}
	}
	if err := syscall.Kill(process, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.Await("it is gone", gone("ending"))
}
