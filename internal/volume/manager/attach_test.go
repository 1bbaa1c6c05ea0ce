package manager_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/host/pluginwatch"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/csi"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
	csidriver "github.com/deckhand-node/deckhand/test/csidriver/driver"
)

const attachedDriver = "csi.deckhand.test"

// cluster is a world with an API server, a controller that attaches the volumes of claims when the test wants it, and a
// driver that checks that nothing is used before it is attached.
type cluster struct {
	*world
	driver *csidriver.Process
	handle string // of the volume of the claim "data"

	mu       sync.Mutex
	board    *nodefacts.Board
	lists    *nodefacts.Writer
	inUse    []v1.UniqueVolumeName
	reported []v1.UniqueVolumeName // what the node's object has
	damaged  bool                  // there are records that can't be read
	reports  bool                  // the node's status is written at once
	listed   bool                  // volumesAttached has the volume
	attached *storagev1.VolumeAttachment
	object   *storagev1.CSIDriver // nil for none
	away     bool                 // the API server
	stop     func()
	log      logr.Logger
	lost     []string // volumes that were mounted when they weren't reported
	wrap     func(csi.Plugin) volume.Plugin
}

func newCluster(t *testing.T, capabilities ...string) *cluster {
	t.Helper()
	root, err := os.MkdirTemp("", "deckhand-test-attach-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	c := &cluster{world: bareWorld(t, root), reports: true, wrap: func(p csi.Plugin) volume.Plugin { return p }}
	t.Cleanup(c.unmount)
	c.driver = csidriver.Start(t, csidriver.Options{Below: []string{root}, Capabilities: capabilities, Args: []string{"--enable-attach"}})
	c.control(func(ctx context.Context, of spec.ControllerClient) error {
		made, err := of.CreateVolume(ctx, &spec.CreateVolumeRequest{Name: "data", VolumeCapabilities: []*spec.VolumeCapability{able()}})
		c.handle = made.GetVolume().GetVolumeId()
		return err
	})
	c.bound["data"] = binding{&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "default"}},
		&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-data"}, Spec: v1.PersistentVolumeSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, PersistentVolumeSource: v1.PersistentVolumeSource{
				CSI: &v1.CSIPersistentVolumeSource{Driver: attachedDriver, VolumeHandle: c.handle}}}}}
	return c
}

func able() *spec.VolumeCapability {
	return &spec.VolumeCapability{AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
}

func (c *cluster) control(do func(context.Context, spec.ControllerClient) error) {
	c.t.Helper()
	conn, err := grpc.NewClient("unix://"+c.driver.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(c.t, err)
	defer conn.Close()
	must(c.t, do(c.t.Context(), spec.NewControllerClient(conn)))
}

// agent starts an agent; the one before ends. It knows its pods.
func (c *cluster) agent() *manager.Manager {
	c.t.Helper()
	m, run := c.prepared(c)
	run()
	return m
}

// prepared returns the manager of an agent that hasn't started in the background yet; the agent before ends.
func (c *cluster) prepared(attached manager.Attached) (m *manager.Manager, start func()) {
	c.t.Helper()
	c.end()
	board := nodefacts.NewBoard(nodefacts.Facts{})
	facts, err := board.Writer("drivers", nodefacts.CSIDrivers)
	must(c.t, err)
	lists, err := board.Writer("node", nodefacts.InUse|nodefacts.ReportedInUse|nodefacts.VolumesAttached)
	must(c.t, err)
	drivers := csi.NewDrivers(csi.Config{Facts: facts, Board: board, Meter: c, BootID: "this", Written: time.Millisecond,
		Log: c.log, Changed: func(all ...pod.Object) { c.changed.Wake(all...) }})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = drivers.Run(ctx) })
	must(c.t, drivers.Register(ctx, pluginwatch.Registration{Type: "CSIPlugin", Name: attachedDriver, Endpoint: c.driver.Endpoint,
		Socket: c.driver.Endpoint + "-reg", Versions: []string{"1.0.0"}}))
	conf := c.config()
	conf.Plugins = append([]volume.Plugin{c.wrap(csi.NewPlugin(drivers, c.root))}, conf.Plugins...)
	conf.Attached, conf.Changed, conf.FirstBackoff = attached, c.changed, time.Millisecond
	c.mu.Lock()
	c.board, c.lists, c.inUse = board, lists, nil
	c.mu.Unlock()
	c.publish()
	c.stop = func() { cancel(); running.Wait() }
	c.t.Cleanup(c.end)
	m = manager.New(conf, c.log)
	if err := m.Adopt(ctx); (err != nil) != c.damaged {
		c.t.Errorf("records are damaged: %v, error %v", c.damaged, err)
	}
	m.PodsKnown()
	return m, func() { running.Go(func() { _ = m.Run(ctx) }) }
}

func (c *cluster) end() {
	if c.stop != nil {
		c.stop()
	}
	c.stop = nil
}

// CSICall implements csi.Meter.
func (*cluster) CSICall(string, string, string, bool, time.Duration) {}

func (c *cluster) name() v1.UniqueVolumeName {
	return v1.UniqueVolumeName("kubernetes.io/csi/" + attachedDriver + "^" + c.handle)
}

// SetInUse implements manager.Attached. A volume with a note may be mounted.
func (c *cluster) SetInUse(names []v1.UniqueVolumeName) {
	for _, pattern := range []string{"plugins/kubernetes.io/csi/*/*/vol_data.json", "pods/*/volumes/kubernetes.io~csi/*/vol_data.json"} {
		if notes, _ := filepath.Glob(filepath.Join(c.root, pattern)); len(notes) > 0 && !slices.Contains(names, c.name()) {
			c.mu.Lock()
			if c.object == nil { // else it isn't attached
				c.lost = append(c.lost, fmt.Sprintf("%v with %v", names, notes))
			}
			c.mu.Unlock()
		}
	}
	c.mu.Lock()
	c.inUse = names
	c.mu.Unlock()
	c.publish()
}

func (c *cluster) Reported() []v1.UniqueVolumeName {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.board.Now().ReportedInUse
}

func (c *cluster) Detached(name v1.UniqueVolumeName) bool {
	c.mu.Lock()
	f := c.board.Now()
	c.mu.Unlock()
	return slices.Contains(f.ReportedInUse, name) && !f.Attached(name)
}

// publish writes the node's lists, and wakes pods and volumes as the finder of objects does.
func (c *cluster) publish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists.Set(func(f *nodefacts.Facts) {
		f.InUse = c.inUse
		if c.away {
			return
		}
		f.VolumesAttached = []v1.AttachedVolume{{Name: c.name() + "-unknown"}} // to be ignored
		if c.reports && c.inUse != nil {
			c.reported = c.inUse
		}
		f.ReportedInUse = c.reported
		if c.listed {
			f.VolumesAttached = append(f.VolumesAttached, v1.AttachedVolume{Name: c.name()})
		}
	})
	c.changed.Wake(pod.Object{Kind: string(object.VolumeAttachment)})
}

// change changes what the API server has.
func (c *cluster) change(do func()) {
	c.mu.Lock()
	do()
	c.mu.Unlock()
	c.publish()
}

// attach is what the controllers do; context is the publish_context.
func (c *cluster) attach(uid types.UID, secret string) {
	c.t.Helper()
	c.control(func(ctx context.Context, of spec.ControllerClient) error {
		_, err := of.ControllerPublishVolume(ctx, &spec.ControllerPublishVolumeRequest{VolumeId: c.handle, NodeId: "node1", VolumeCapability: able()})
		return err
	})
	c.change(func() {
		c.listed, c.attached = true, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{UID: uid},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: attachedDriver, NodeName: "node1",
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv-data")}},
			Status: storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"device": secret}}}
	})
}

// detach is what the controllers do, by force if the volume is in use.
func (c *cluster) detach() {
	c.t.Helper()
	c.change(func() { c.listed, c.attached = false, nil })
	c.control(func(ctx context.Context, of spec.ControllerClient) error {
		_, err := of.ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: c.handle, NodeId: "node1"})
		return err
	})
}

func (c *cluster) used() []v1.UniqueVolumeName {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inUse
}

func (c *cluster) isInUse() bool { return slices.Contains(c.used(), c.name()) }

// user returns a pod with the claim.
func (c *cluster) user(n int) *v1.Pod {
	p := namedPod(fmt.Sprint("web-", n), c.uid(n), claim("v", "data"))
	p.Spec.NodeName = "node1"
	return c.want(p)
}

// uid returns the UID of the pod of user.
func (*cluster) uid(n int) types.UID { return types.UID(fmt.Sprint("uid-", n)) }

// mountedInCluster returns a cluster with an agent that has mounted an attached volume for a pod.
func mountedInCluster(t *testing.T) (c *cluster, m *manager.Manager, p *v1.Pod) {
	t.Helper()
	c = newCluster(t, "STAGE_UNSTAGE_VOLUME")
	m, p = c.agent(), c.user(1)
	c.attach("va-1", "one")
	eventually(t, "it is mounted", func() bool { return m.Prepare(t.Context(), p, c) == nil })
	return c, m, p
}

// waits fails unless the pod's volume waits with this text.
func (c *cluster) waits(m *manager.Manager, p *v1.Pod, text string) {
	c.t.Helper()
	err := m.Prepare(c.t.Context(), p, c)
	if err == nil {
		c.t.Fatal("prepared")
	}
	f := failure(c.t, err)
	if !strings.Contains(f.Message, `MountVolume.WaitForAttach failed for volume "pv-data" : VolumeAttachment csi-`) ||
		!strings.Contains(f.Message, text) || f.Awaits.Kind != "VolumeAttachment" || f.Permanent || f.Reason != pod.ReasonFailedMount {
		c.t.Errorf("got %+v, want %q", f, text)
	}
}

// calls lists the calls of the node service since the last time.
func (c *cluster) calls() (list []string) {
	c.t.Helper()
	s, err := c.driver.State(c.t.Context())
	must(c.t, err)
	for _, call := range s.Calls {
		if name, ok := strings.CutPrefix(call.Method, "Node"); ok && !strings.HasPrefix(name, "Get") {
			device := map[string]string{}
			_ = call.Decode("publishContext", &device) // Unstage and Unpublish have none
			list = append(list, strings.TrimSpace(strings.TrimSuffix(name, "Volume")+" "+device["device"]))
		}
	}
	must(c.t, c.driver.Clear(c.t.Context()))
	return list
}

func (c *cluster) wantCalls(want ...string) {
	c.t.Helper()
	if got := c.calls(); !slices.Equal(got, want) {
		c.t.Errorf("calls %q, want %q", got, want)
	}
}

// finish checks that nothing was lost or left, and that no text or file has the publish_context.
func (c *cluster) finish() {
	c.t.Helper()
	c.driver.CheckLaw(c.t)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.lost) > 0 {
		c.t.Errorf("not reported: %q", c.lost)
	}
	if c.inUse == nil || len(c.inUse) > 0 {
		c.t.Errorf("in use at the end: %v", c.inUse)
	}
	c.clean()
}

func (c *cluster) CSIDriver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.object == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "csidrivers"}, name)
	}
	return c.object, nil
}

func (*cluster) Admitted() bool { return true }

func (c *cluster) VolumeAttachment(_ context.Context, name string) (*storagev1.VolumeAttachment, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.away:
		return nil, &object.Unknown{Key: object.Key{Kind: object.VolumeAttachment, Name: name}, Why: "no route", Away: true}
	case c.attached == nil || name != object.AttachmentName(attachedDriver, c.handle, "node1"):
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "volumeattachments"}, name)
	}
	return c.attached, nil
}

// reports is a cluster that records the lists of volumes in use.
type reports struct {
	*cluster
	lists *[][]v1.UniqueVolumeName
}

func (r reports) SetInUse(names []v1.UniqueVolumeName) {
	r.change(func() { r.inUse, *r.lists = names, append(*r.lists, names) })
}

// The attached volumes of a pod are in use from one moment on: each change of the list may be a call to the API server.
func TestInUseTogether(t *testing.T) {
	c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
	var volumes []v1.Volume
	for i := range 5 {
		name := fmt.Sprint("more-", i)
		pv := c.bound["data"].pv.DeepCopy()
		pv.Name, pv.Spec.CSI.VolumeHandle = "pv-"+name, name
		of := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
		c.bound[name] = binding{of, pv}
		volumes = append(volumes, claim(name, name))
	}
	var lists [][]v1.UniqueVolumeName
	m, _ := c.prepared(reports{c, &lists})
	p := namedPod("web", "uid-0", volumes...)
	p.Spec.NodeName = "node1"
	if err := m.Prepare(t.Context(), c.want(p), c); err == nil {
		t.Error("prepared")
	}
	for _, list := range lists {
		if len(list) > 0 && len(list) < len(volumes) {
			t.Errorf("in use at first: %q", list)
		}
	}
	if len(c.used()) != len(volumes) {
		t.Errorf("in use: %q", c.used())
	}
	must(t, m.Clean(t.Context(), p.UID))
	c.finish()
}

// Each step of the handshake waits for the one before, whatever the agent that waits. The next agent knows from its
// records what is in use, and how to release it (kubernetes/kubernetes#52683).
func TestAttach(t *testing.T) {
	c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
	c.reports = false
	m := c.agent()
	p := c.user(1)
	c.waits(m, p, "volumesInUse")
	if !c.isInUse() {
		t.Error("not reported as in use")
	}
	m = c.agent()
	c.waits(m, p, "volumesInUse")
	c.change(func() { c.reports = true })
	c.waits(m, p, "a controller has to attach it")
	c.change(func() { c.listed = true })
	c.waits(m, p, "has no VolumeAttachment")
	c.attach("va-1", "secret-1")
	c.change(func() { c.attached.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} })
	c.waits(m, p, "is being deleted")
	c.attach("va-1", "secret-1")
	c.change(func() { c.attached.Spec.Attacher = "other" })
	c.waits(m, p, `attacher "other"`)
	c.attach("va-1", "secret-1")
	c.change(func() {
		c.attached.Status = storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no such disk"}}
	})
	c.waits(m, p, "no such disk")
	c.attach("va-1", "secret-1")
	c.change(func() { c.listed = false })
	c.waits(m, p, "volumesAttached")
	c.wantCalls()
	c.change(func() { c.listed = true })
	must(t, m.Prepare(t.Context(), p, c))
	c.wantCalls("Stage secret-1", "Publish secret-1")
	for _, pattern := range []string{"plugins/kubernetes.io/csi/*/*/vol_data.json", "pods/*/volumes/*/*/vol_data.json"} {
		notes, _ := filepath.Glob(filepath.Join(c.root, pattern))
		text, err := os.ReadFile(append(notes, "none")[0])
		if err != nil || strings.Contains(string(text), "secret-1") || !strings.Contains(string(text), "va-1") {
			t.Errorf("%s: %s %v", pattern, text, err)
		}
	}
	m = c.agent()
	if !c.isInUse() {
		t.Error("a staged volume isn't reported after a restart")
	}
	must(t, m.Clean(t.Context(), p.UID)) // by the notes only
	c.wantCalls("Unpublish", "Unstage")
	if c.isInUse() {
		t.Error("still reported")
	}
	c.detach()
	c.finish()
}

// The driver reports that it couldn't stage the volume in time, but it has, and the pod is deleted: the volume stays in
// use until it is unstaged (kubernetes/kubernetes#82190, #86360, #100182, #106729).
func TestAttachedUncertainDevice(t *testing.T) {
	c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
	m := c.agent()
	p := c.user(1)
	c.attach("va-1", "one")
	for method, code := range map[string]codes.Code{"NodeStageVolume": codes.DeadlineExceeded, "NodeUnstageVolume": codes.Internal} {
		_, err := c.driver.Add(t.Context(), csidriver.Rule{Method: method, Count: -1, After: method == "NodeStageVolume",
			Do: csidriver.Fail, Code: code})
		must(t, err)
	}
	if err := m.Prepare(t.Context(), p, c); err == nil || !strings.Contains(err.Error(), "DeadlineExceeded") {
		t.Errorf("got %v", err)
	}
	c.unwant(p.UID)
	must(t, m.Clean(t.Context(), p.UID))
	for range 2 {
		if !c.isInUse() {
			t.Error("the volume isn't in use while it may be staged")
		}
		c.agent()
	}
	must(t, c.driver.Release(t.Context(), 0))
	eventually(t, "the volume can be detached", func() bool { return !c.isInUse() })
	if calls := c.calls(); !slices.Contains(calls, "Stage one") || calls[len(calls)-1] != "Unstage" || slices.Contains(calls, "Publish one") {
		t.Errorf("calls %q", calls)
	}
	c.detach()
	c.finish()
}

// The agent restarts while the pod, which has a container that still runs, and its claim are being deleted: the volume
// stays as it is (kubernetes/kubernetes#113979, #130335).
func TestAttachedWhileDeleted(t *testing.T) {
	c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
	m := c.agent()
	p := c.user(1)
	c.attach("va-1", "one")
	must(t, m.Prepare(t.Context(), p, c))
	c.setRunning(p.UID, true)
	p = p.DeepCopy()
	p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	c.want(p)
	c.world.mu.Lock()
	c.bound["data"].claim.DeletionTimestamp = p.DeletionTimestamp
	c.world.mu.Unlock()
	m = c.agent()
	must(t, m.Prepare(t.Context(), p, c))
	if !c.isInUse() {
		t.Error("not in use after the restart")
	}
	c.wantCalls("Stage one", "Publish one")
	c.setRunning(p.UID, false)
	must(t, m.Clean(t.Context(), p.UID))
	c.wantCalls("Unpublish", "Unstage")
	c.detach()
	c.finish()
}

// A driver that stages nothing: the volume is in use until the last pod has released it.
func TestAttachWithoutStage(t *testing.T) {
	c := newCluster(t)
	m := c.agent()
	p := c.user(1)
	c.waits(m, p, "a controller has to attach it")
	c.attach("va-1", "one")
	must(t, m.Prepare(t.Context(), p, c))
	m = c.agent()
	if !c.isInUse() {
		t.Error("a published volume isn't reported after a restart")
	}
	must(t, m.Clean(t.Context(), p.UID))
	c.wantCalls("Publish one", "Unpublish")
	c.detach()
	c.finish()
}

// One hung attach: the pods that wait need no goroutine, and the others start.
func TestAttachHangs(t *testing.T) {
	c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
	m := c.agent()
	for round := range 2 {
		for n := range 100 {
			c.waits(m, c.user(n), "a controller has to attach it")
		}
		if round == 0 {
			continue
		}
		other := c.want(namedPod("other", "other", emptyDir("e", "")))
		must(t, m.Prepare(t.Context(), other, c))
		must(t, m.Clean(t.Context(), other.UID))
	}
	eventually(t, "no pod needs a goroutine", func() bool { return runtime.NumGoroutine() < 50 })
	for n := range 100 {
		must(t, m.Clean(t.Context(), c.user(n).UID))
	}
	c.wantCalls()
	c.finish()
}

// Many pods share the volume. At each step one starts, or one ends, or both, and each third step is followed by
// a restart of the agent: the volume is staged and unstaged once, and published and unpublished once for each pod.
func TestAttachShared(t *testing.T) {
	const pods, most = 20, 10
	c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
	m := c.agent()
	c.waits(m, c.user(0), "a controller has to attach it")
	c.attach("va-1", "one")
	for n := range pods + most {
		var step sync.WaitGroup
		if old := c.uid(n - most); n >= most {
			c.unwant(old)
			c.setRunning(old, false)
			step.Go(func() {
				if err := m.Clean(t.Context(), old); err != nil {
					t.Errorf("%s: %v", old, err)
				}
			})
		}
		for i := max(0, n-most+1); i < min(n+1, pods); i++ { // the last one may be new
			p := c.user(i)
			step.Go(func() {
				if err := m.Prepare(t.Context(), p, c); err != nil {
					t.Errorf("%s: %v", p.UID, err)
				}
				c.setRunning(p.UID, true)
			})
		}
		step.Wait()
		if last := n == pods+most-1; c.isInUse() == last {
			t.Errorf("step %d: in use: %t", n, !last)
		}
		if n%3 == 2 {
			m = c.agent()
		}
	}
	s, err := c.driver.State(t.Context())
	must(t, err)
	for method, want := range map[string]int{"NodeStageVolume": 1, "NodePublishVolume": pods, "NodeUnpublishVolume": pods,
		"NodeUnstageVolume": 1} {
		targets := map[string]bool{}
		for _, call := range s.Of(method) {
			targets[call.Target] = true
		}
		if got := len(s.Of(method)); got != want || len(targets) != want {
			t.Errorf("%d calls of %s with %d targets, want %d", got, method, len(targets), want)
		}
	}
	c.detach()
	c.finish()
}

// The volume is detached while a pod uses it, and attached again: the pod's mounts stay, others wait until they are gone.
func TestDetachedUnderUs(t *testing.T) {
	c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
	m := c.agent()
	first, second := c.user(1), c.user(2)
	c.waits(m, first, "a controller has to attach it")
	c.attach("va-1", "one")
	must(t, m.Prepare(t.Context(), first, c))
	c.setRunning(first.UID, true)
	c.change(func() { c.listed, c.attached = false, nil })
	eventually(t, "an event", func() bool { return len(c.told()) > 0 })
	must(t, m.Prepare(t.Context(), first, c))
	c.waits(m, second, "a controller has to attach it")
	c.attach("va-2", "two")
	err := m.Prepare(t.Context(), second, c)
	if err == nil || !strings.Contains(err.Error(), "while pods use it") {
		t.Errorf("got %v", err)
	}
	c.wantCalls("Stage one", "Publish one")
	if told := c.told(); len(told) != 1 || !strings.Contains(told[0], "was detached") {
		t.Errorf("events: %q", told)
	}
	c.setRunning(first.UID, false)
	must(t, m.Clean(t.Context(), first.UID))
	eventually(t, "the second pod starts", func() bool { return m.Prepare(t.Context(), second, c) == nil })
	must(t, m.Clean(t.Context(), second.UID))
	c.wantCalls("Unpublish", "Unstage", "Stage two", "Publish two", "Unpublish", "Unstage")
	c.detach()
	c.finish()
}

// While the API server is away, a volume that was found attached can be used for another pod; after a restart only if
// there is no publish_context.
func TestAttachedWithoutAPIServer(t *testing.T) {
	for _, secret := range []string{"", "one"} {
		c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
		m := c.agent()
		c.waits(m, c.user(1), "a controller has to attach it")
		c.attach("va-1", secret)
		if secret == "" {
			c.change(func() { c.attached.Status.AttachmentMetadata = nil })
		}
		must(t, m.Prepare(t.Context(), c.user(1), c))
		c.change(func() { c.away = true })
		must(t, m.Prepare(t.Context(), c.user(2), c))
		m = c.agent()
		err := m.Prepare(t.Context(), c.user(3), c)
		if (err == nil) != (secret == "") {
			t.Errorf("publish_context %q: %v", secret, err)
		}
		for n := range 3 {
			must(t, m.Clean(t.Context(), c.user(n+1).UID))
		}
		c.detach()
		c.finish()
	}
}

// A volume that waits to be attached stops waiting if its driver turns out not to need that, and can be detached.
func TestAttachNotRequired(t *testing.T) {
	c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
	m := c.agent()
	p := c.user(1)
	c.waits(m, p, "a controller has to attach it")
	c.attach("va-1", "secret-1") // for the driver's law
	c.change(func() {
		c.listed = false
		c.object = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(false)}}
	})
	must(t, m.Prepare(t.Context(), p, c))
	if c.isInUse() {
		t.Error("still reported as in use")
	}
	c.wantCalls("Stage", "Publish")
	c.unwant(p.UID)
	must(t, m.Clean(t.Context(), p.UID))
	c.detach()
	c.finish()
}

// A device that the driver doesn't unstage outlives its last pod. It must not be detached before it is unstaged
// (kubernetes/kubernetes#106710, #106902).
func TestAttachedDeviceWithoutUsers(t *testing.T) {
	c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
	m := c.agent()
	p := c.user(1)
	c.attach("va-1", "secret-1")
	must(t, m.Prepare(t.Context(), p, c))
	rule, err := c.driver.Add(t.Context(), csidriver.Rule{Method: "NodeUnstageVolume", Count: -1, Do: csidriver.Fail,
		Code: codes.Internal})
	must(t, err)
	c.unwant(p.UID)
	must(t, m.Clean(t.Context(), p.UID))
	if !c.isInUse() {
		t.Error("the staged volume isn't reported as in use")
	}
	c.agent()
	if !c.isInUse() {
		t.Error("the staged volume isn't reported as in use after a restart of the agent")
	}
	must(t, c.driver.Release(t.Context(), rule))
	eventually(t, "the volume can be detached", func() bool { return !c.isInUse() })
	c.detach()
	c.finish()
}
