package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// Volumes that are parts of the node, of images, and of volumes.
func TestVolumesOfTheNode(t *testing.T) {
	t.Parallel()
	n := node.New(t, binary, node.Options{Archives: []string{tools, crewArchive(t)}})
	n.Start()
	parts(t, n, map[string]func(*testing.T, *node.Node){
		"types": testHostPathTypes, "wrong types": testHostPathWrong, "vanishes": testHostPathVanishes, "image": testImageVolume, "subPath": testSubPaths, "escape": testSubPathEscapes,
		"propagation": testPropagation, "a driver's mounts": testDriverMounts, "not shared": testNotShared, "recursive read-only": testRecursiveReadOnly,
	})
}

// hostDir is a directory of the host for one test.
func hostDir(t *testing.T, n *node.Node, name string) string {
	t.Helper()
	dir := filepath.Join(n.Base, "host", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func hostPath(name, path, typ string) string {
	return "{name: " + name + ", hostPath: {path: " + path + ", type: " + typ + "}}"
}

func testHostPathTypes(t *testing.T, n *node.Node) {
	dir := hostDir(t, n, "types")
	putFile(t, dir+"/file", "there")
	if err := os.Symlink("file", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var mounts, volumes []string
	for name, of := range map[string]struct{ path, typ string }{
		"dir": {dir, "Directory"}, "newdir": {dir + "/new/dir", "DirectoryOrCreate"}, "file": {dir + "/file", "File"}, "newfile": {dir + "/newfile", "FileOrCreate"},
		"link": {dir + "/link", "File"}, "socket": {dir + "/socket", "Socket"}, "device": {"/dev/null", "CharDevice"}, "any": {dir + "/file", `""`},
	} {
		mounts = append(mounts, "{name: "+name+", mountPath: /"+name+"}")
		volumes = append(volumes, hostPath(name, of.path, of.typ))
	}
	n.Write("types.yaml", withVolumes(toolPod(n, "types", containers(mounting(
		tool("main", "survey -write /newdir/word=said -write /newfile=said -stay /newdir /file /newfile /link /socket /device /any"), mounts...))), volumes...))
	n.Await("it runs", node.Ready("types"))
	saw := surveys(t, n, "types", "main")
	for path, wanted := range map[string]found{
		"/newdir": {Mode: "drwxr-xr-x"}, "/newdir/word": {Mode: "-rw-r--r--", Text: "said"}, "/newfile": {Mode: "-rw-r--r--", Text: "said"},
		"/file": {Mode: "-rw-r--r--", Text: "there"}, "/link": {Mode: "-rw-r--r--", Text: "there"}, "/any": {Mode: "-rw-r--r--", Text: "there"},
		"/socket": {Mode: "Srwxr-xr-x"}, "/device": {Mode: "Dcrw-rw-rw-"},
	} {
		f := saw.Files[path]
		want(t, path, found{Mode: f.Mode, Text: f.Text}, wanted)
	}
	remove(t, n, "types")
	for _, path := range []string{dir + "/new/dir/word", dir + "/newfile"} {
		if err := holds(path, "said")(); err != nil {
			t.Errorf("what is the node's went with the pod: %v", err)
		}
	}
}

// A path that isn't what its type says holds the pod, until it is fixed; other pods go on.
func testHostPathWrong(t *testing.T, n *node.Node) {
	dir := hostDir(t, n, "wrong")
	putFile(t, dir+"/file", "")
	pods := map[string]struct{ path, typ, words string }{
		"wrong-dir":     {dir + "/file", "Directory", "/file is a regular file, and type Directory wants a directory"},
		"wrong-file":    {dir, "File", "/wrong is a directory, and type File wants a regular file"},
		"wrong-socket":  {dir + "/file", "Socket", "type Socket wants a UNIX socket"},
		"wrong-device":  {dir + "/file", "BlockDevice", "type BlockDevice wants a block device"},
		"wrong-missing": {dir + "/missing", "File", "/missing does not exist, and type File makes nothing"},
	}
	var conditions []node.Condition
	for pod, c := range pods {
		n.Write(pod+".yaml", withVolumes(toolPod(n, pod, containers(mounting(tool("main", "act"), "{name: host, mountPath: /host}"))), hostPath("host", c.path, c.typ)))
		conditions = append(conditions, held(pod, `MountVolume.SetUp failed for volume "host" : `, c.words))
	}
	n.Write("right.yaml", withVolumes(toolPod(n, "right", containers(mounting(tool("main", "act"), "{name: host, mountPath: /host}"))), hostPath("host", dir, "Directory")))
	n.Await("they are held, and another isn't", append(conditions, node.Ready("right"))...)
	n.AwaitEvent("wrong-missing", "FailedMount", pods["wrong-missing"].words)
	explains(t, n, "wrong-missing", pods["wrong-missing"].words)
	putFile(t, dir+"/missing", "")
	n.Await("it is tried again", node.Ready("wrong-missing"))
	for pod := range pods {
		remove(t, n, pod)
	}
	remove(t, n, "right")
}

// What is gone when a container is to be started again holds it, with words, until it is back; neither agent nor runtime make anything there.
func testHostPathVanishes(t *testing.T, n *node.Node) {
	dir := hostDir(t, n, "vanishes")
	control := hostDir(t, n, "control")
	types := map[string]string{"socket": "Socket", "file": "File", "dir": "Directory"}
	put := func() {
		if err := os.Mkdir(dir+"/dir", 0o755); err != nil {
			t.Fatal(err)
		}
		putFile(t, dir+"/file", "there")
		l, err := net.Listen("unix", dir+"/socket")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	put()
	var members, volumes []string
	for name, typ := range types {
		members = append(members, mounting(tool(name, "survey -until /control/end=now"), "{name: "+name+", mountPath: /thing}", "{name: control, mountPath: /control}"))
		volumes = append(volumes, hostPath(name, dir+"/"+name, typ))
	}
	n.Write("vanishes.yaml", withVolumes(toolPod(n, "vanishes", containers(members...)), append(volumes, hostPath("control", control, "Directory"))...))
	n.Await("it runs", node.Ready("vanishes"))
	for name := range types {
		if err := os.Remove(dir + "/" + name); err != nil {
			t.Fatal(err)
		}
	}
	putFile(t, control+"/end", "now")
	var waits, restarts []node.Condition
	for name, typ := range types {
		waits = append(waits, container("vanishes", name, func(c v1.ContainerStatus) error {
			words := "/" + name + " does not exist, and type " + typ + " makes nothing"
			if w := c.State.Waiting; w == nil || w.Reason != "CreateContainerConfigError" || !strings.Contains(w.Message, words) {
				return fmt.Errorf("container %s doesn't wait with words: %v", name, c.State)
			}
			return nil
		}))
		restarts = append(restarts, container("vanishes", name, func(c v1.ContainerStatus) error {
			if c.RestartCount == 0 || c.State.Running == nil {
				return fmt.Errorf("container %s is %v after %d restarts", name, c.State, c.RestartCount)
			}
			return nil
		}))
	}
	n.Await("its containers wait", waits...)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("something was made on the host: %v, %v", entries, err)
	}
	if err := os.Remove(control + "/end"); err != nil {
		t.Fatal(err)
	}
	put()
	n.Await("they are started again", restarts...)
	remove(t, n, "vanishes")
}

// The files of an image, and a directory of them, which nobody can change.
func testImageVolume(t *testing.T, n *node.Node) {
	n.Write("image.yaml", withVolumes(toolPod(n, "image", containers(mounting(tool("main", "survey -write /crew/new=x -stay /crew/etc /sailor"),
		"{name: crew, mountPath: /crew}", "{name: crew, mountPath: /sailor, subPath: home/sailor}"))), "{name: crew, image: {reference: '"+crewNamed+"'}}"))
	n.Write("no-image.yaml", withVolumes(toolPod(n, "no-image", containers(mounting(tool("main", "act"), "{name: crew, mountPath: /crew}"), tool("beside", "act"))),
		"{name: crew, image: {reference: 'deckhand.local/none:1', pullPolicy: Never}}"))
	n.Await("it runs", node.Ready("image"))
	saw := surveys(t, n, "image", "main")
	want(t, "a file of the image", saw.text("/crew/etc/group"), crewGroups)
	want(t, "a file of its directory", saw.text("/sailor/log"), "fair wind\n")
	want(t, "the attempt to write", saw.Tried["/crew/new=x"], syscall.EROFS.Error())
	n.Await("what isn't there holds up the container that mounts it", node.Each([]string{"no-image"}, func(v local.PodView) error {
		for _, c := range v.Pod.Status.ContainerStatuses {
			w := c.State.Waiting
			if says := w != nil && w.Reason == "ErrImageNeverPull" && strings.Contains(w.Message, "deckhand.local/none:1"); says != (c.Name == "main") || c.Name == "beside" && c.State.Running == nil {
				return fmt.Errorf("container %s is %v", c.Name, c.State)
			}
		}
		return nil
	}))
	remove(t, n, "image")
	remove(t, n, "no-image")
}

func testSubPaths(t *testing.T, n *node.Node) {
	n.Write("sub-objects.yaml", configMap("sub", "app.conf: 'a = b'", "other: x"))
	first := mounting(tool("first", "survey -write /data/file=whole -link /data/inside=made /data"), "{name: data, mountPath: /data}")
	main := mounting(tool("main", "survey -write /made/word=said -write /expr/word=told -write /through/more=x -write /ro/x=y -stay /made /file /expr /conf /ro", "env: [{name: WHO, value: crew}]"),
		"{name: data, mountPath: /made, subPath: made}", "{name: data, mountPath: /file, subPath: file}", "{name: data, mountPath: /expr, subPathExpr: deep/$(WHO)}",
		"{name: data, mountPath: /through, subPath: inside}", "{name: conf, mountPath: /conf, subPath: app.conf}", "{name: data, mountPath: /ro, subPath: made, readOnly: true}")
	n.Write("sub.yaml", withVolumes(toolPod(n, "sub", initContainers(first), containers(main)), "{name: data, emptyDir: {}}", "{name: conf, configMap: {name: sub}}"))
	s := n.Await("it runs", node.Ready("sub"))
	saw := surveys(t, n, "sub", "main")
	for path, text := range map[string]string{"/made/word": "said", "/made/more": "x", "/file": "whole", "/expr/word": "told", "/conf": "a = b", "/ro/word": "said"} {
		want(t, path, saw.text(path), text)
	}
	want(t, "writing to what is read-only", saw.Tried["/ro/x=y"], syscall.EROFS.Error())
	v := view(t, s, "sub")
	dir := onDisk(n, v, "empty-dir", "data")
	if err := errors.Join(holds(dir+"/made/word", "said")(), holds(dir+"/deep/crew/word", "told")()); err != nil {
		t.Error(err)
	}
	// The next instance gets the same parts, and none is mounted twice.
	places := func() map[string]int {
		return mountIDs(t, filepath.Join(n.RootDir, "pods", string(v.Pod.UID), "volume-subpaths"))
	}
	before := places()
	if len(before) != 6 {
		t.Errorf("the parts are mounted at %v", before)
	}
	if err := syscall.Kill(processOf(t, n, s, "sub", "main"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.Await("it is back", runs("sub", "main", 1), node.Ready("sub"))
	want(t, "the parts' mounts", places(), before)
	remove(t, n, "sub")
	if left := places(); len(left) > 0 {
		t.Errorf("mounted still: %v", left)
	}
}

// A part that isn't inside its volume, whatever a container made of the path, is refused.
func testSubPathEscapes(t *testing.T, n *node.Node) {
	links := "survey -link /data/absolute=/etc -link /data/up=../../../../../../etc -link /data/magic=/proc/self/root /data"
	init := mounting(tool("first", links), "{name: data, mountPath: /data}")
	sub := func(name, path string) string {
		return mounting(tool(name, "survey -stay /part"), "{name: data, mountPath: /part, "+path+"}")
	}
	n.Write("escape.yaml", withVolumes(toolPod(n, "escape", initContainers(init), containers(sub("absolute", "subPath: absolute"), sub("up", "subPath: up/ssh"), sub("magic", "subPath: magic/etc"),
		strings.Replace(sub("expr", "subPathExpr: $(WHERE)"), "image:", "env: [{name: WHERE, value: ../../..}], image:", 1), sub("good", "subPath: good"))), "{name: data, emptyDir: {}}"))
	n.Await("only what is inside is mounted", runs("escape", "good", 0),
		waits("escape", "absolute", "CreateContainerConfigError", "leads out of the volume"), waits("escape", "up", "CreateContainerConfigError", "leads out of the volume"),
		waits("escape", "magic", "CreateContainerConfigError", "leads out of the volume"), waits("escape", "expr", "CreateContainerConfigError", `subPathExpr "$(WHERE)" must be a path in the volume`))
	explains(t, n, "escape", `volume "data" at /part: subPath "absolute": it leads out of the volume`)
	for _, c := range n.Containers() {
		if strings.HasPrefix(c.Pod, "escape-") && c.Name != "good" && c.Name != "first" {
			t.Errorf("container %s was made", c.Name)
		}
	}
	remove(t, n, "escape")
	n.Write("steps.yaml", withVolumes(toolPod(n, "steps", containers(sub("main", "subPath: a/../../b"))), "{name: data, emptyDir: {}}"))
	n.Await("one that can't be right is no pod", node.Problem(n.Path("steps.yaml"), "subPath", ".."))
	n.Remove("steps.yaml")
}

// mountOn mounts for the rest of the test.
func mountOn(t *testing.T, source, target, fstype string, flags uintptr) {
	t.Helper()
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(source, target, fstype, flags, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
			continue
		}
	})
}

// What is mounted on the host later is seen by those who ask for it, and what a container mounts by the host.
func testPropagation(t *testing.T, n *node.Node) {
	dir := hostDir(t, n, "shared")
	mountOn(t, dir, dir, "", unix.MS_BIND)
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	at := func(mode string) string { return "{name: host, mountPath: /host, mountPropagation: " + mode + "}" }
	const wait = " -until /host/from-host/word=hello -until /host/from-container/word=hello -stay /host"
	n.Write("shared.yaml", withVolumes(toolPod(n, "shared", containers(
		mounting(tool("both", "survey -tmpfs /host/from-container -write /host/from-container/word=hello"+wait, secured("privileged: true")), at("Bidirectional")),
		mounting(tool("in", "survey"+wait), at("HostToContainer")),
		mounting(tool("none", "survey -until /host/go=on -stay /host"), at("None")))), hostPath("host", dir, "Directory")))
	s := n.Await("it runs", node.Ready("shared"))
	n.Eventually("the host has what the container mounted", holds(dir+"/from-container/word", "hello"))
	mountOn(t, "tmpfs", dir+"/from-host", "tmpfs", 0)
	putFile(t, dir+"/from-host/word", "hello")
	for _, c := range []string{"both", "in"} {
		saw := surveys(t, n, "shared", c)
		want(t, "what "+c+" sees", saw.text("/host/from-host/word")+" "+saw.text("/host/from-container/word"), "hello hello")
	}
	putFile(t, dir+"/go", "on")
	saw := surveys(t, n, "shared", "none")
	if f, there := saw.Files["/host/from-host/word"]; there {
		t.Errorf("the one that wants no mounts has %+v", f)
	}
	if id := containerID(t, s, "shared", "none"); id == "" {
		t.Error("it doesn't run")
	}
	remove(t, n, "shared")
}

// What a driver mounts below the root directory reaches the host, however that is mounted.
func testDriverMounts(t *testing.T, n *node.Node) {
	plugins := filepath.Join(n.RootDir, "plugins")
	mounted := filepath.Join(plugins, "driver")
	t.Cleanup(func() {
		for unix.Unmount(mounted, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
			continue
		}
	})
	n.Write("driver.yaml", withVolumes(toolPod(n, "driver", containers(mounting(
		tool("main", "survey -tmpfs /plugins/driver -write /plugins/driver/word=hello -stay /plugins", secured("privileged: true")),
		"{name: plugins, mountPath: /plugins, mountPropagation: Bidirectional}"))), hostPath("plugins", plugins, "Directory")))
	n.Await("it runs", node.Ready("driver"))
	n.Eventually("the host has what the driver mounted", holds(mounted+"/word", "hello"))
	remove(t, n, "driver")
	if err := holds(mounted+"/word", "hello")(); err != nil {
		t.Errorf("it is gone with the driver's pod: %v", err)
	}
}

// Mounts of a container reach the host through a shared mount only: anything else is refused.
func testNotShared(t *testing.T, n *node.Node) {
	dir := hostDir(t, n, "private")
	mountOn(t, dir, dir, "", unix.MS_BIND)
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	n.Write("private.yaml", withVolumes(toolPod(n, "private", containers(mounting(tool("main", "act", secured("privileged: true")),
		"{name: host, mountPath: /host, mountPropagation: Bidirectional}"))), hostPath("host", dir, "Directory")))
	n.Await("it is held", container("private", "main", func(c v1.ContainerStatus) error {
		if w := c.State.Waiting; w == nil || !strings.Contains(w.Message, "shared") || !strings.Contains(w.Message, "private") {
			return errors.New("it doesn't wait for a shared mount: " + c.State.String())
		}
		return nil
	}))
	remove(t, n, "private")
}

// Read-only is a mount with all that is mounted in it, where that is asked for.
func testRecursiveReadOnly(t *testing.T, n *node.Node) {
	dir := hostDir(t, n, "recursive")
	mountOn(t, "tmpfs", dir+"/sub", "tmpfs", 0)
	try := func(name, mode string) string {
		return mounting(tool(name, "survey -write /host/top-"+name+"=x -write /host/sub/deep-"+name+"=x -stay /host"), "{name: host, mountPath: /host, readOnly: true"+mode+"}")
	}
	n.Write("recursive.yaml", withVolumes(toolPod(n, "recursive", containers(try("flat", ""), try("all", ", recursiveReadOnly: Enabled"), try("may", ", recursiveReadOnly: IfPossible"))), hostPath("host", dir, "Directory")))
	all := runs("recursive", "all", 0)
	supported := !errors.Is(unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH, &unix.MountAttr{}), unix.ENOSYS) // the kernel, since 5.12; containerd does
	if !supported {
		all = waits("recursive", "all", "CreateContainerConfigError", "recursiveReadOnly")
	}
	s := n.Await("it runs, or is refused where the kernel can't", runs("recursive", "flat", 0), runs("recursive", "may", 0), all)
	deep := map[string]string{"flat": "ok", "all": syscall.EROFS.Error(), "may": syscall.EROFS.Error()}
	if !supported {
		delete(deep, "all")
		deep["may"] = "ok"
	}
	for name, came := range deep {
		saw := surveys(t, n, "recursive", name)
		want(t, name+" writes to the mount", saw.Tried["/host/top-"+name+"=x"], syscall.EROFS.Error())
		want(t, name+" writes to what is mounted in it", saw.Tried["/host/sub/deep-"+name+"=x"], came)
	}
	reported := map[string]v1.RecursiveReadOnlyMode{"flat": v1.RecursiveReadOnlyDisabled, "all": v1.RecursiveReadOnlyEnabled, "may": v1.RecursiveReadOnlyEnabled}
	if !supported {
		delete(reported, "all")
		reported["may"] = v1.RecursiveReadOnlyDisabled
	}
	for name, mode := range reported {
		var says []string
		for _, m := range status(t, s, "recursive", name).VolumeMounts {
			if m.Name == "host" {
				says = append(says, fmt.Sprint(m.MountPath, ", read-only: ", m.ReadOnly, ", ", ptr.Deref(m.RecursiveReadOnly, "not said")))
			}
		}
		want(t, "what the status of "+name+" says of the mount", says, []string{"/host, read-only: true, " + string(mode)})
	}
	remove(t, n, "recursive")
}

// reserveHugePages has the kernel reserve as many huge pages of 2Mi as TestHugePages needs, until the test
// ends. It reports whether they are there: a kernel may have none, or no memory for them in one piece.
func reserveHugePages(t *testing.T) bool {
	t.Helper()
	const count = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
	if _, err := os.Stat(count); err != nil {
		return false
	}
	before := numberIn(t, count)
	putFile(t, count, strconv.Itoa(before+3))
	t.Cleanup(func() { putFile(t, count, strconv.Itoa(before)) })
	return numberIn(t, count) == before+3
}

// A file system of huge pages in a container is as large as the pod may have of them. No other test runs
// beside this one: pages that are reserved are taken off the memory that nodes have.
func TestHugePages(t *testing.T) {
	n := node.New(t, binary, node.Options{Archives: []string{tools}})
	reserved := reserveHugePages(t) // before the agent looks what the node has
	n.Start()
	n.Write("huge.yaml", withVolumes(toolPod(n, "huge", containers(mounting(
		tool("main", "survey -stay /huge", "resources: {limits: {hugepages-2Mi: 6Mi, memory: 64Mi}}"), "{name: huge, mountPath: /huge}"))), "{name: huge, emptyDir: {medium: HugePages}}"))
	if !reserved {
		n.AwaitEvent("huge", "OutOfhugepages-2Mi", "Node didn't have enough resource: hugepages-2Mi, requested: 6Mi, used: 0, capacity: 0")
		remove(t, n, "huge")
		return
	}
	s := n.Await("it runs", node.Ready("huge"))
	saw := surveys(t, n, "huge", "main")
	want(t, "the file system in the container", saw.Files["/huge"].FSType, strconv.FormatInt(unix.HUGETLBFS_MAGIC, 16))
	var at unix.Statfs_t
	if err := unix.Statfs(onDisk(n, view(t, s, "huge"), "empty-dir", "huge"), &at); err != nil {
		t.Fatal(err)
	}
	want(t, "its page size and its size", fmt.Sprint(at.Bsize, " ", int64(at.Blocks)*at.Bsize), "2097152 6291456")
	remove(t, n, "huge")
}

func numberIn(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return number
}
