package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/agent"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/resources/devices/devicestest"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	"github.com/deckhand-node/deckhand/test/csidriver/driver"
)

// diskKind is a way in which the disk of a root directory can't be written.
type diskKind struct {
	name string
	// options are those of the tmpfs.
	options string
	errno   unix.Errno
	// mirrored says that writes to a mirror of the disk fail, not those to the disk.
	mirrored bool
	// limit limits the root directory, which isn't a disk of its own then, by a quota, and returns errno. It may be nil.
	limit func(t *testing.T, root string) unix.Errno
}

var diskKinds = []diskKind{
	{name: "full", options: "size=40m", errno: unix.ENOSPC},
	{name: "no inodes", options: "size=40m,nr_inodes=600", errno: unix.ENOSPC},
	{name: "quota", options: "size=40m", errno: unix.EDQUOT, mirrored: true},
	{name: "read-only", options: "size=40m", errno: unix.EROFS, mirrored: true},
	{name: "broken", options: "size=40m", errno: unix.EIO, mirrored: true},
}

// diskMoment is an agent on a small disk of its own, with the pods a and hog.
type diskMoment struct {
	*reloads
	kind   diskKind
	disk   *smallDisk
	mirror *mounttest.Mirror // nil if the disk itself fails
	// before are the IDs of the containers when the disk failed.
	before map[string]string
	// ended receives the error of the agent that runs.
	ended chan error
}

const momentSpec = "  terminationGracePeriodSeconds: 1\n  volumes: [{name: data, emptyDir: {}}]\n" +
	"  containers: [{name: main, image: \"IMAGE\", volumeMounts: [{name: data, mountPath: /data}]}]\n"

// quietDisk switches evictions for disks off, evictingDisk evicts pods that use some of the disk.
const (
	quietDisk    = "evictionHard: {memory.available: 1Mi}\n"
	evictingDisk = "evictionHard: {nodefs.available: 99%}\n"
)

// TestDiskMoments: whenever the disk of the root directory can't be written, containers that run are left alone, no pod
// fails for it, what waits names a path and the error, and all goes on by itself once the disk works again.
func TestDiskMoments(t *testing.T) {
	var cells sync.WaitGroup
	for _, kind := range diskKinds {
		for moment := range diskMoments() {
			cells.Go(func() { runDiskMoment(t, kind, moment) })
		}
	}
	cells.Wait()
}

func diskMoments() map[string]func(*diskMoment) {
	return map[string]func(*diskMoment){
		"first start": (*diskMoment).firstStart, "at rest": (*diskMoment).atRest, "admission": (*diskMoment).admission,
		"admission with a device":            (*diskMoment).devices,
		"admission with volumes of a driver": (*diskMoment).driver,
		"a pod of the API server":            (*diskMoment).lastKnown,
		"commands and edits":                 (*diskMoment).commands,
		"claims and images":                  (*diskMoment).claimed,
		"eviction":                           (*diskMoment).eviction, "shutdown": (*diskMoment).shutdown,
		"restart": (*diskMoment).restarted,
	}
}

func runDiskMoment(t *testing.T, kind diskKind, moment string) {
	t.Run(kind.name+"/"+moment, func(t *testing.T) {
		d := &diskMoment{kind: kind}
		d.make(t)
		diskMoments()[moment](d)
	})
}

// make makes the disk.
func (d *diskMoment) make(t *testing.T) {
	d.reloads = newReloads(t, quietDisk)
	d.disk = &smallDisk{dir: d.path("root"), inodes: strings.HasSuffix(d.kind.name, "inodes")}
	dirs := []string{d.disk.dir}
	if d.kind.mirrored {
		dirs = append(dirs, d.path("disk"))
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if d.kind.limit != nil {
		d.kind.errno = d.kind.limit(t, d.disk.dir)
		return
	}
	if err := unix.Mount("deckhand-test", dirs[len(dirs)-1], "tmpfs", 0, d.kind.options+",mode=755"); err != nil {
		t.Fatal(err)
	}
	if d.kind.mirrored {
		d.mirror = mounttest.MountMirror(t, dirs[1], dirs[0])
	}
}

// begin starts the agent, and its pods.
func (d *diskMoment) begin() {
	d.t.Helper()
	d.want("a", momentSpec)
	d.want("hog", momentSpec)
	d.launch()
	d.await("the pods run", d.running("a/main", "hog/main"))
	for _, name := range []string{"a", "hog"} {
		d.awaitPod(name, ready)
	}
}

// ready reports what keeps a pod from being ready.
func ready(v local.PodView) string {
	if !v.Done() {
		return fmt.Sprintf("%s: %v", v.Pod.Status.Phase, v.Waits)
	}
	return ""
}

// fail has writes fail from now on.
func (d *diskMoment) fail() {
	d.t.Helper()
	d.before = map[string]string{}
	for _, c := range d.Containers() {
		d.before[nameOf(c)] = c.Id
	}
	if d.mirror != nil {
		d.mirror.Fail(d.kind.errno)
	} else {
		d.disk.fill(d.t)
	}
}

// recovers makes the disk work again. It returns a function that reports how long ago that was.
func (d *diskMoment) recovers() (report func(what string)) {
	d.t.Helper()
	if d.mirror != nil {
		d.mirror.Fail(0)
	} else {
		d.disk.free(d.t)
	}
	begun := time.Now()
	return func(what string) {
		took := time.Since(begun).Round(time.Millisecond)
		d.t.Logf("%s: %s after the disk works", what, took)
		if took > 25*time.Second { // 5 s, on a machine that is five times slower
			d.t.Errorf("%s: only %s after the disk works", what, took)
		}
	}
}

// says reports whether a text names a path in the root directory, and the error.
func (d *diskMoment) says(text string) bool {
	return strings.Contains(text, d.disk.dir) && strings.Contains(text, d.kind.errno.Error())
}

// waits waits until a pod says that it waits for the disk.
func (d *diskMoment) waits(name string) {
	d.t.Helper()
	d.waitsToWrite(name, "")
}

// waitsToWrite waits until a pod says that it waits for the disk, to write a file below a directory.
func (d *diskMoment) waitsToWrite(name, below string) {
	d.t.Helper()
	d.awaitPod(name, func(v local.PodView) string { return d.waiting(v, below) })
}

// waiting reports what a pod says instead of that it waits for the disk, to write a file below a directory.
func (d *diskMoment) waiting(v local.PodView, below string) string {
	for _, w := range v.Waits {
		if w.Disk && d.says(w.Message) && strings.Contains(w.Message, filepath.Join(d.disk.dir, below)) {
			return ""
		}
	}
	return fmt.Sprintf("%s: %+v", v.Pod.Status.Phase, v.Waits)
}

// same fails the test unless these containers run that ran before the disk failed, and no pod has failed but those that
// were evicted.
func (d *diskMoment) same(names ...string) {
	d.t.Helper()
	d.unchanged(names...)
	s, err := d.client.Snapshot(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, v := range s.Pods {
		if v.Pod.Status.Phase == v1.PodFailed && v.Pod.Status.Reason != string(pod.ReasonEvicted) {
			d.t.Errorf("pod %s failed: %s", v.Pod.Name, v.Pod.Status.Message)
		}
	}
}

// unchanged fails the test unless these containers run that ran before the disk failed.
func (d *diskMoment) unchanged(names ...string) {
	d.t.Helper()
	for _, name := range names {
		c := d.newest(name)
		if c == nil || c.Id != d.before[name] || c.State.String() != "CONTAINER_RUNNING" {
			d.t.Errorf("%s was %s: %s", name, d.before[name], d.describe())
		}
	}
}

// launch starts an agent, which d.stop stops.
func (d *diskMoment) launch() {
	d.t.Helper()
	a, err := agent.NewBetween(d.cfg, d.options, d.between)
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	d.ended = ended
	d.stop = func() {
		d.stop = func() {}
		cancel()
		if err := <-ended; err != nil {
			d.t.Errorf("the agent ended: %v", err)
		}
	}
}

// starts starts an agent on the failed disk, and reports whether it could start. One that can't names a path and the
// error.
func (d *diskMoment) starts() bool {
	d.t.Helper()
	calls := d.Calls("ListContainers")
	d.launch()
	for {
		select {
		case err := <-d.ended:
			d.stop = func() {}
			if err == nil || !d.says(err.Error()) {
				d.t.Errorf("the agent didn't start: %v", err)
			}
			return false
		case <-time.After(5 * time.Millisecond):
			if _, err := d.client.Snapshot(d.t.Context()); err == nil {
				return true
			}
			// The mirror's quota leaves nothing for the socket of the local API: the reserve is of no use here.
			if d.mirror != nil && d.kind.errno == unix.EDQUOT && d.Calls("ListContainers") > calls {
				return true
			}
		}
	}
}

// recoversAfter is recovers. An agent that couldn't start is started again then, as by a service manager.
func (d *diskMoment) recoversAfter(started bool) (report func(what string)) {
	d.t.Helper()
	report = d.recovers()
	if !started {
		d.launch()
	}
	return report
}

func (d *diskMoment) firstStart() {
	d.fail()
	d.want("a", momentSpec)
	d.want("hog", momentSpec)
	report := d.recoversAfter(d.starts())
	d.await("the pods run", d.running("a/main", "hog/main"))
	report("the pods run")
	d.awaitPod("a", ready)
	d.same()
}

func (d *diskMoment) atRest() {
	d.begin()
	d.fail()
	if err := d.Exit(d.newest("hog/main").Id, 1, "Error"); err != nil {
		d.t.Fatal(err)
	}
	d.awaitPod("hog", func(v local.PodView) string {
		if c := d.newest("hog/main"); c.Metadata.Attempt == 1 && c.State.String() == "CONTAINER_RUNNING" {
			return ""
		}
		if d.kind.name == "full" {
			return "it isn't started again, though that takes no space"
		}
		return d.waiting(v, "") // a new instance needs an inode
	})
	d.same("a/main")
	report := d.recovers()
	d.awaitPod("hog", ready)
	report("all are ready")
	d.same("a/main")
}

func (d *diskMoment) admission() {
	d.begin()
	d.fail()
	d.want("b", momentSpec)
	d.waits("b")
	fails := d.kind.errno == unix.EROFS || d.kind.errno == unix.EIO
	d.await("the node reports a disk that fails", func() string { return d.storageFailed(fails) })
	d.same("a/main", "hog/main")
	report := d.recovers()
	d.awaitPod("b", ready)
	report("the new pod is ready")
	d.await("the node doesn't report the disk", func() string { return d.storageFailed(false) })
	report("the node is as before")
	d.same("a/main", "hog/main")
}

// devices admits a pod whose devices have to be recorded first.
func (d *diskMoment) devices() {
	d.begin()
	p := devicestest.New(d.t, d.path("root/device-plugins"), "example.com/gpu", "one", "two")
	if err := p.Register(); err != nil {
		d.t.Fatal(err)
	}
	spec := strings.Replace(momentSpec, "volumeMounts:", "resources: {limits: {example.com/gpu: 1}}, volumeMounts:", 1)
	d.want("first", spec)
	d.awaitPod("first", ready)
	d.fail()
	d.want("second", spec)
	d.waitsToWrite("second", "device-plugins/kubelet_internal_checkpoint")
	d.same("a/main", "hog/main", "first/main")
	report := d.recovers()
	d.awaitPod("second", ready)
	report("the pod with a device is ready")
	d.same("a/main", "hog/main", "first/main")
}

// csiVolume describes a volume of a driver, and a claim that is bound to it.
func csiVolume(name string) string {
	return "---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: " + name + "}\nspec: {capacity: " +
		"{storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: csi.deckhand.test, volumeHandle: " + name + "}}\n" +
		strings.Replace(claim(name), "spec: {", "spec: {volumeName: "+name+", ", 1)
}

// driver has pods wait for a driver that registers only when the disk has failed: the records of their volumes, of the
// devices of these and of the devices' users have to be written before the driver is called.
func (d *diskMoment) driver() {
	registry := d.path("root/plugins_registry") // with room for the driver's socket
	if err := os.Mkdir(registry, 0o755); err != nil {
		d.t.Fatal(err)
	}
	if err := unix.Mount("deckhand-test", registry, "tmpfs", 0, "mode=755"); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { // before the rig unmounts the disk
		d.stop()
		if err := unix.Unmount(registry, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			d.t.Error(err)
		}
	})
	d.begin()
	const object = "---\napiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: csi.deckhand.test}\n" +
		"spec: {volumeLifecycleModes: [Ephemeral, Persistent]}\n"
	d.put("objects", object+csiVolume("staged")+csiVolume("device")+csiVolume("user"))
	d.want("inline", endless(map[string]string{"data": "csi: {driver: csi.deckhand.test}"}))
	below := map[string]string{"staged": "plugins/kubernetes.io", "device": "staged", "user": "staged"}
	for name := range below {
		d.want(name, uses(name))
	}
	below["inline"] = "pods/" + d.uid("inline") + "/volumes"
	for name := range below {
		d.waitsFor(name, "the CSI driver csi.deckhand.test hasn't registered")
	}
	// These records are there already: each has to be written again before the next one.
	for name, of := range map[string]string{"device": "/../..", "user": ""} {
		users, err := filepath.Glob(d.path("root/staged/*/users/" + d.uid(name)))
		if err != nil || len(users) != 1 {
			d.t.Fatal(users, err)
		}
		if err := os.RemoveAll(filepath.Clean(users[0] + of)); err != nil {
			d.t.Fatal(err)
		}
	}
	d.fail()
	switch d.kind.errno {
	case unix.EROFS, unix.EIO:
		below["staged"] = "staged" // the user's file is opened again
	case unix.ENOSPC:
		if d.kind.name == "full" {
			below["user"] = below["staged"] // an empty file takes no space
		}
	}
	p := driver.Start(d.t, driver.Options{Registration: filepath.Join(registry, "csi.sock"),
		Below: []string{d.disk.dir}, Capabilities: []string{"STAGE_UNSTAGE_VOLUME"}})
	for name, path := range below {
		d.waitsToWrite(name, path)
	}
	d.same("a/main", "hog/main")
	state, err := p.State(d.t.Context())
	if err != nil || len(state.Of("NodeStageVolume"))+len(state.Of("NodePublishVolume")) > 0 {
		d.t.Errorf("without a record the driver was called: %+v, %v", state.Calls, err)
	}
	report := d.recovers()
	for name := range below {
		d.awaitPod(name, ready)
	}
	report("the pods with volumes of the driver are ready")
	d.same("a/main", "hog/main")
	p.CheckLaw(d.t)
}

// lastKnown adds a pod at the API server: the agent knows it, reports that its object isn't recorded, and records that
// once it can. So it runs on when the next agent starts without the API server.
func (d *diskMoment) lastKnown() {
	api := &apiServer{pods: podList(apiPod(d.t, "member", 0)), more: make(chan v1.Pod)}
	server := d.join(api, quietDisk)
	d.want("a", momentSpec)
	d.launch()
	for _, name := range []string{"a", "member"} {
		d.awaitPod(name, ready)
	}
	d.fail()
	late := apiPod(d.t, "late", 0)
	late.ResourceVersion, late.Annotations = "2", map[string]string{"large": strings.Repeat("x", 64<<10)}
	api.more <- late
	d.waits("late")
	const record = "checkpoints/apiserver.jsonl"
	if d.kind.name == "no inodes" { // an append needs none
		d.await("it is recorded at once", func() string {
			text, err := os.ReadFile(d.path("root/" + record))
			if err == nil && bytes.Contains(text, []byte("/late")) {
				return ""
			}
			return fmt.Sprintf("%d bytes are recorded: %v", len(text), err)
		})
	} else {
		d.await("the node reports the failed record", d.unrecorded(record, true))
	}
	d.same("a/main", "member/main")
	report := d.recovers()
	d.awaitPod("late", ready)
	d.await("all is recorded", d.unrecorded(record, false))
	report("all is recorded")
	d.before["late/main"] = d.newest("late/main").Id
	d.stop()
	server.Close()
	d.launch()
	d.awaitPod("late", ready)
	d.same("a/main", "member/main", "late/main")
}

// commands has users stop a pod, start another one, add a container and edit a manifest. A command whose effect can't be
// recorded fails and has none, but a stop on a full disk, which may free it, is recorded later.
func (d *diskMoment) commands() {
	named := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: "default", Name: name + "-n"}
	}
	sized := func(cpu string) string {
		return strings.Replace(momentSpec, "volumeMounts:", "resources: {requests: {cpu: "+cpu+"}}, volumeMounts:", 1)
	}
	d.begin()
	d.want("idle", momentSpec)
	d.want("sized", sized("10m"))
	d.awaitPod("idle", ready)
	d.awaitPod("sized", ready)
	if err := d.client.StopPods(d.t.Context(), false, named("idle")); err != nil {
		d.t.Fatal(err)
	}
	d.await("it is stopped", d.nothing("idle"))
	d.fail()
	debug := v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: image}}
	add := func() error { return d.client.AddContainer(d.t.Context(), named("a"), "", debug) }
	if err := add(); err == nil || !d.says(err.Error()) || !strings.Contains(err.Error(), "added.json") {
		d.t.Errorf("a container is added: %v", err)
	}
	d.wantAnnotated("a", `edited: "yes"`, momentSpec)
	d.awaitPod("a", func(v local.PodView) string {
		if v.Pod.Annotations["edited"] != "yes" {
			return "the manifest isn't the edited one"
		}
		return ""
	})
	d.want("sized", sized("20m"))
	d.waitsToWrite("sized", "checkpoints/pods/"+d.uid("sized")+"/allocation.json")
	const lastGood = "checkpoints/desired/file.json"
	d.await("the node reports the manifest's record", d.unrecorded(lastGood, true))
	if d.mirror == nil { // the reserve is released
		if err := d.client.StopPods(d.t.Context(), false, named("hog")); err != nil {
			d.t.Errorf("hog isn't stopped: %v", err)
		}
		if err := d.client.StartPods(d.t.Context(), named("idle")); err != nil {
			d.t.Errorf("idle isn't started: %v", err)
		}
	} else {
		err := d.client.StartPods(d.t.Context(), named("idle"))
		if err == nil || !d.says(err.Error()) || !strings.Contains(err.Error(), "stopped.json") {
			d.t.Errorf("idle is started: %v", err)
		}
		err = d.client.StopPods(d.t.Context(), false, named("hog"))
		full := d.kind.errno == unix.EDQUOT
		if stopped := err == nil || !strings.Contains(err.Error(), "nothing was changed"); stopped != full {
			d.t.Errorf("hog is stopped: %v", err)
		}
	}
	d.same("a/main", "sized/main")
	report := d.recovers()
	d.await("the manifest is recorded", d.unrecorded(lastGood, false))
	report("the manifest is recorded")
	d.awaitPod("sized", func(v local.PodView) string {
		if cpu := v.Pod.Status.ContainerStatuses[0].AllocatedResources.Cpu(); cpu.String() != "20m" {
			return "it has " + cpu.String()
		}
		return ready(v)
	})
	report("the pod is resized")
	if err := add(); err != nil {
		d.t.Errorf("no container is added: %v", err)
	}
	d.await("the added container runs", func() string {
		if c := d.newest("a/debug"); c == nil {
			return d.describe()
		}
		return ""
	})
	d.same("a/main", "sized/main")
}

// unrecorded reports whether the node says that a file couldn't be written, if that isn't wanted, or what it says
// instead.
func (d *diskMoment) unrecorded(file string, want bool) func() string {
	return func() string {
		n, err := d.client.Node(d.t.Context())
		if err != nil {
			return err.Error()
		}
		for _, p := range n.Problems {
			if d.says(p.Message) && strings.Contains(p.Message, file) {
				return map[bool]string{false: p.Message}[want]
			}
		}
		return map[bool]string{true: fmt.Sprintf("%+v", n.Problems)}[want]
	}
}

// claimed has a pod wait for a volume that appears only when the disk has failed: its binding has to be recorded first.
// So has the pull of an image.
func (d *diskMoment) claimed() {
	d.begin()
	d.put("objects", claim("data"))
	d.want("web", uses("data"))
	d.waitsFor("web", "data")
	d.fail()
	d.put("volume", d.volume("data"))
	d.waitsToWrite("web", "checkpoints/volumes")
	pull := func() (err error) {
		for _, failed := range d.client.PullImage(d.t.Context(), "new:1") {
			err = errors.Join(err, failed)
		}
		return err
	}
	if err := pull(); err == nil || !d.says(err.Error()) || !strings.Contains(err.Error(), "image_manager/pulling") {
		d.t.Errorf("an image is pulled: %v", err)
	}
	d.same("a/main", "hog/main")
	report := d.recovers()
	d.awaitPod("web", ready)
	report("the pod with a claim is ready")
	if err := pull(); err != nil {
		d.t.Errorf("no image is pulled: %v", err)
	}
	d.before["web/main"] = d.newest("web/main").Id
	d.stop()
	d.launch()
	d.await("the next agent knows the events since", func() string {
		list, err := d.client.Events(d.t.Context())
		for _, e := range list {
			if e.Object == "pod/web-n" && e.Reason == "Started" {
				return ""
			}
		}
		return fmt.Sprintf("%v, %v", list, err)
	})
	d.awaitPod("web", ready)
	d.same("a/main", "hog/main", "web/main")
}

// storageFailed reports whether the node says something else about a disk that can't be written.
func (d *diskMoment) storageFailed(want bool) string {
	n, err := d.client.Node(d.t.Context())
	if err != nil {
		return err.Error()
	}
	for _, c := range n.Conditions {
		switch {
		case c.Type != v1.NodeReady:
		case want != (c.Reason == "StorageFailed" && d.says(c.Message)):
			return fmt.Sprintf("%+v", c)
		default:
			return ""
		}
	}
	return "no condition"
}

func (d *diskMoment) eviction() {
	d.begin()
	volumes, err := filepath.Glob(d.path("root/pods/" + string(d.uid("hog")) + "/volumes/*/data"))
	if err != nil || len(volumes) != 1 {
		d.t.Fatal(volumes, err)
	}
	if err := os.WriteFile(filepath.Join(volumes[0], "file"), make([]byte, 4<<20), 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.fail()
	d.reload(evictingDisk, v1.EventTypeNormal, "ConfigurationReloaded", "evictionHard")
	evicted := func(v local.PodView) string {
		if v.Pod.Status.Phase != v1.PodFailed || v.Pod.Status.Reason != string(pod.ReasonEvicted) {
			return fmt.Sprintf("%s %s: %+v", v.Pod.Status.Phase, v.Pod.Status.Reason, v.Waits)
		}
		return ""
	}
	d.awaitPod("hog", evicted)
	d.await("one is evicted", d.running("a/main"))
	d.same("a/main")
	report := d.recovers()
	record := d.path("root/checkpoints/pods/" + string(d.uid("hog")) + "/kept.json")
	d.await("the eviction is recorded", func() string {
		if text, err := os.ReadFile(record); err != nil || !strings.Contains(string(text), string(pod.ReasonEvicted)) {
			return fmt.Sprintf("%s, %v", text, err)
		}
		return ""
	})
	report("the eviction is recorded")
	// Without it the next agent knows of no pressure, and starts the pod again.
	d.await("the pressure is recorded", func() string {
		text, err := os.ReadFile(d.path("root/checkpoints/pressure_state"))
		if !strings.Contains(string(text), "nodefs") {
			return fmt.Sprintf("%s, %v", text, err)
		}
		return ""
	})
	d.stop()
	d.launch()
	d.awaitPod("hog", evicted)
	d.await("it stays evicted", d.running("a/main"))
	d.same("a/main")
}

// uid returns the UID of a pod.
func (d *diskMoment) uid(name string) (uid string) {
	d.t.Helper()
	d.awaitPod(name, func(v local.PodView) string { uid = string(v.Pod.UID); return "" })
	return uid
}

func (d *diskMoment) shutdown() {
	d.begin()
	d.fail()
	if err := d.client.StopAll(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	d.await("all are gone", d.nothing(""))
	select {
	case err := <-d.ended:
		if !errors.Is(err, agent.ErrAllStopped) {
			d.t.Errorf("the agent ended: %v", err)
		}
	case <-time.After(time.Minute):
		d.t.Fatal("the agent doesn't end, though nothing runs")
	}
	report := d.recovers()
	d.launch()
	d.await("the pods run", d.running("a/main", "hog/main"))
	report("the pods run")
	d.awaitPod("a", ready)
	d.same()
}

func (d *diskMoment) restarted() {
	d.begin()
	d.fail()
	d.stop()
	d.want("b", momentSpec)
	started := d.starts()
	if started && (d.mirror == nil || d.kind.errno != unix.EDQUOT) {
		d.waits("b")
		d.same("a/main", "hog/main")
	} else {
		d.unchanged("a/main", "hog/main")
	}
	report := d.recoversAfter(started)
	d.await("the pods run", d.running("a/main", "b/main", "hog/main"))
	d.awaitPod("b", ready)
	report("all are ready")
	d.same("a/main", "hog/main")
}
