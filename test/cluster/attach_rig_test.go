package cluster_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/csidriver/driver"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// followed is a Sight of the objects of a resource, by their names.
type followed[T metav1.Object] struct {
	// each is called for each change, unless it is nil, but not for deletions.
	each    func(object T)
	changed wake.Group
	mu      sync.Mutex
	objects map[string]T
}

// followAll follows a resource until the end of the test.
func followAll[T metav1.Object](t *testing.T, c *apiclient.Client, resource apiclient.Resource,
	each func(T)) *followed[T] {
	f := &followed[T]{each: each, objects: map[string]T{}}
	follow(t, c, resource, f)
	return f
}

func (f *followed[T]) Listed(all apiclient.List) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.objects)
	for _, o := range all.Objects {
		f.set(watch.Modified, o)
	}
	f.changed.Wake()
}

func (f *followed[T]) Changed(kind watch.EventType, o kruntime.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set(kind, o)
	f.changed.Wake()
}

func (f *followed[T]) set(kind watch.EventType, o kruntime.Object) {
	object := o.(T)
	if kind == watch.Deleted {
		delete(f.objects, object.GetName())
		return
	}
	f.objects[object.GetName()] = object
	if f.each != nil {
		f.each(object)
	}
}

func (f *followed[T]) Malformed(apiclient.Malformed) {}

func (f *followed[T]) Away(error) {}

func (f *followed[T]) now() map[string]T {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.objects)
}

// await waits until nothing is missing.
func (f *followed[T]) await(t *testing.T, what string, missing func(objects map[string]T) error) {
	t.Helper()
	changed, stop := f.changed.Subscribe()
	defer stop()
	late := time.After(node.Deadline)
	for {
		err := missing(f.now())
		if err == nil {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%s: not within %s: %v", what, node.Deadline, err)
		}
	}
}

// attacher stands in for Kubernetes' external-attacher: it attaches volumes of attachRig's driver to a node, and
// detaches them, as the VolumeAttachments say.
type attacher struct {
	client     *apiclient.Client
	controller csi.ControllerClient
	node       string
}

// startAttacher starts an attacher, and returns the VolumeAttachments of all nodes.
func startAttacher(t *testing.T, a attacher) *followed[*storage.VolumeAttachment] {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	locks := map[string]*sync.Mutex{} // by the object
	return followAll(t, a.client, apiclient.VolumeAttachments, func(o *storage.VolumeAttachment) {
		if o.Spec.Attacher != attachDriver || o.Spec.NodeName != a.node {
			return
		}
		lock := cmp.Or(locks[o.Name], &sync.Mutex{})
		locks[o.Name] = lock
		running.Go(func() {
			lock.Lock()
			defer lock.Unlock()
			for {
				err := a.reconcile(ctx, o.Name)
				if err == nil || ctx.Err() != nil {
					return
				}
				t.Logf("VolumeAttachment %s: %v", o.Name, err)
				wake.Sleep(ctx, 100*time.Millisecond)
			}
		})
	})
}

// controllerOf connects to a driver's controller service, before volumes are used: the law of calls allows more after a
// new connection.
func controllerOf(t *testing.T, d *driver.Process) csi.ControllerClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+d.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	conn.Connect()
	return csi.NewControllerClient(conn)
}

// attacherFinalizer keeps a VolumeAttachment until the volume is detached.
const attacherFinalizer = "external-attacher/test"

func (a attacher) reconcile(ctx context.Context, name string) error {
	var o storage.VolumeAttachment
	err := a.client.Get(ctx, apiclient.Calls, apiclient.VolumeAttachments, "", name, &o)
	going, ours := o.DeletionTimestamp != nil, slices.Contains(o.Finalizers, attacherFinalizer)
	if err != nil || going && !ours || !going && o.Status.Attached {
		return ignoreGone(err)
	}
	if !ours {
		o.Finalizers = append(o.Finalizers, attacherFinalizer)
		if err := a.client.Update(ctx, apiclient.Calls, apiclient.VolumeAttachments, "", &o, &o); err != nil {
			return ignoreGone(err)
		}
	}
	var n storage.CSINode
	var volume v1.PersistentVolume
	volumeName := *o.Spec.Source.PersistentVolumeName
	err = cmp.Or(a.client.Get(ctx, apiclient.Calls, apiclient.CSINodes, "", a.node, &n),
		a.client.Get(ctx, apiclient.Calls, apiclient.PersistentVolumes, "", volumeName, &volume))
	at := slices.IndexFunc(n.Spec.Drivers, func(d storage.CSINodeDriver) bool { return d.Name == attachDriver })
	if err != nil || at < 0 {
		return cmp.Or(err, errors.New("the CSINode object doesn't have the driver"))
	}
	handle, nodeID := volume.Spec.CSI.VolumeHandle, n.Spec.Drivers[at].NodeID
	if going {
		if _, err := a.controller.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: handle,
			NodeId: nodeID}); err != nil {
			return err
		}
		o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return f == attacherFinalizer })
		return ignoreGone(a.client.Update(ctx, apiclient.Calls, apiclient.VolumeAttachments, "", &o, &o))
	}
	answer, err := a.controller.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: handle,
		NodeId: nodeID, VolumeCapability: writerCapability()})
	if err != nil {
		return err
	}
	status, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.UID}, "status": map[string]any{
		"attached": true, "attachmentMetadata": answer.GetPublishContext()}})
	if err != nil {
		return err
	}
	return ignoreGone(a.client.Patch(ctx, apiclient.Calls, apiclient.VolumeAttachments, "", name, types.MergePatchType,
		status, nil, "status"))
}

// ignoreGone returns nil for an object that is gone, or was changed by others: there will be another event.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func writerCapability() *csi.VolumeCapability {
	return &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
}

// attachRig is a node with attached volumes of a driver: the control plane, the agent and the mounts are real, and the
// containers are in memory.
type attachRig struct {
	*rig
	admin       *apiclient.Client
	driver      *driver.Process
	controller  csi.ControllerClient
	pods        *followed[*v1.Pod]
	nodes       *followed[*v1.Node]
	attachments *followed[*storage.VolumeAttachment]
	// handles are those of volumes, by the names of their PersistentVolumes and claims.
	handles map[string]string
	// seen are the driver's calls that were taken from it.
	seen []driver.Call
	// from is how many calls the audit log had before.
	from int
	// endpoint is that of the runtime.
	endpoint string
}

// attachDriver is the name of attachRig's driver.
const attachDriver = "attached.deckhand.test"

func joinAttached(t *testing.T, p *plane.Plane, binary string) *attachRig {
	t.Helper()
	return joinAttachedAs(t, p, binary, node.Name, driver.Options{})
}

// joinAttachedAs is joinAttached under that name, with these options of its driver.
func joinAttachedAs(t *testing.T, p *plane.Plane, binary, name string, o driver.Options) *attachRig {
	t.Helper()
	r := newAttachRig(t, joinAs(t, p, binary, name, "cgroupDriver: cgroupfs\nmaxPods: 500\n"), o)
	r.AddFlags("--container-runtime-endpoint", r.endpoint)
	r.Start()
	r.joined()
	return r
}

// newAttachRig starts everything but the node's agent, which may be a kubelet.
func newAttachRig(t *testing.T, n *rig, o driver.Options) *attachRig {
	t.Helper()
	r := &attachRig{rig: n, admin: admin(t, n.p), handles: map[string]string{}, from: len(n.p.Audited())}
	_, r.endpoint = n.memoryRuntime(node.Image)
	o.Name, o.Args = attachDriver, []string{"--enable-attach"}
	r.driver = n.startDriver(o)
	r.controller = controllerOf(t, r.driver)
	r.pods = followAll[*v1.Pod](t, r.admin, apiclient.Pods, nil)
	r.nodes = followAll[*v1.Node](t, r.admin, apiclient.Nodes, nil)
	r.attachments = startAttacher(t, attacher{r.admin, r.controller, r.name})
	return r
}

// joined waits until the agent has joined with its driver.
func (r *attachRig) joined() {
	r.t.Helper()
	r.created()
	r.is(v1.ConditionTrue)
	r.apply(manifest("storage.k8s.io/v1", "CSIDriver", "name: "+attachDriver, "{attachRequired: true}"))
	r.kubectl("wait", "--for=jsonpath={.spec.drivers[0].name}="+attachDriver, "csinode/"+r.name, "--timeout=60s")
}

// addVolumes makes PersistentVolumes that are bound to claims of the same names.
func (r *attachRig) addVolumes(names ...string) {
	r.t.Helper()
	var manifests strings.Builder
	for _, name := range names {
		answer, err := r.controller.CreateVolume(r.t.Context(), &csi.CreateVolumeRequest{Name: name,
			VolumeCapabilities: []*csi.VolumeCapability{writerCapability()}})
		if err != nil {
			r.t.Fatal(err)
		}
		r.handles[name] = answer.GetVolume().GetVolumeId()
		manifests.WriteString(claimed(name, "csi: {driver: "+attachDriver+", volumeHandle: "+r.handles[name]+"}", ""))
	}
	r.apply(manifests.String())
	r.kubectl("wait", "--for=jsonpath={.status.phase}=Bound", "pvc", "--all", "--timeout=180s")
}

// addPod makes a pod that mounts the volumes of claims.
func (r *attachRig) addPod(name string, claims ...string) {
	r.t.Helper()
	r.addPodTo("", name, claims...)
}

// addPodTo makes it for a node, without the scheduler.
func (r *attachRig) addPodTo(node, name string, claims ...string) {
	r.t.Helper()
	volumes := ""
	for _, claim := range claims {
		volumes += fmt.Sprintf("{name: %[1]s, persistentVolumeClaim: {claimName: %[1]s}}, ", claim)
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := yaml.Unmarshal([]byte(spec("[serve]", noToken, "volumes: ["+volumes+"],")), &p.Spec)
	if p.Spec.NodeName = node; err == nil {
		err = r.admin.Create(r.t.Context(), apiclient.Calls, apiclient.Pods, "default", p, p)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// noToken spares a pod the volume with its token: all its mounts are those of claims.
const noToken = "automountServiceAccountToken: false,"

// removePod asks for the end of a pod; by force its object goes at once.
func (r *attachRig) removePod(name string, force bool) {
	r.t.Helper()
	var o metav1.DeleteOptions
	if force {
		o.GracePeriodSeconds = new(int64)
	}
	if err := r.admin.Delete(r.t.Context(), apiclient.Calls, apiclient.Pods, "default", name, o); err != nil {
		r.t.Fatal(err)
	}
}

// areReady waits until the pods are ready, areGone until their objects are gone.
func (r *attachRig) areReady(names ...string) {
	r.t.Helper()
	r.pods.await(r.t, "pods are ready", func(pods map[string]*v1.Pod) error {
		for _, name := range names {
			if p := pods[name]; p == nil || !podstatus.Ready(p) {
				return fmt.Errorf("%s isn't", name)
			}
		}
		return nil
	})
}

func (r *attachRig) areGone(names ...string) {
	r.t.Helper()
	r.pods.await(r.t, "pods are gone", func(pods map[string]*v1.Pod) error {
		for _, name := range names {
			if pods[name] != nil {
				return fmt.Errorf("%s isn't", name)
			}
		}
		return nil
	})
}

// unique is the name of a volume in the node's lists.
func (r *attachRig) unique(claim string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName("kubernetes.io/csi/" + attachDriver + "^" + r.handles[claim])
}

// listed are the node's lists, sorted.
func (r *attachRig) listed() (inUse, attached []v1.UniqueVolumeName) {
	n := r.nodes.now()[r.name]
	if n == nil {
		return nil, nil
	}
	for _, a := range n.Status.VolumesAttached {
		attached = append(attached, a.Name)
	}
	slices.Sort(attached)
	return slices.Sorted(slices.Values(n.Status.VolumesInUse)), attached
}

// settles waits until the node's lists, attachments, mounts and records are those of the volumes of these claims, each
// mounted by one pod.
func (r *attachRig) settles(claims ...string) {
	r.t.Helper()
	var want []v1.UniqueVolumeName
	attachments := map[string]bool{}
	for _, claim := range claims {
		want = append(want, r.unique(claim))
		attachments[object.AttachmentName(attachDriver, r.handles[claim], r.name)] = true
	}
	slices.Sort(want)
	r.Eventually(fmt.Sprintf("only the volumes %v are there", claims), func() error {
		var errs []error
		inUse, attached := r.listed()
		if !slices.Equal(inUse, want) || !slices.Equal(attached, want) {
			errs = append(errs, fmt.Errorf("in use %q, attached %q", inUse, attached))
		}
		for name, o := range r.attachments.now() {
			if !attachments[name] {
				errs = append(errs, fmt.Errorf("VolumeAttachment %s of %s", name, *o.Spec.Source.PersistentVolumeName))
			}
		}
		if mounts := r.mounted(); len(mounts) != 2*len(claims) {
			errs = append(errs, fmt.Errorf("mounts %q", mounts))
		}
		for _, pattern := range []string{"pods/*/volumes/kubernetes.io~csi/*/vol_data.json", "staged/*",
			"plugins/kubernetes.io/csi/*/*/vol_data.json", "plugins/kubernetes.io/csi/*/*"} {
			if list, err := filepath.Glob(filepath.Join(r.RootDir, pattern)); err != nil || len(list) != len(claims) {
				errs = append(errs, fmt.Errorf("records %q, %w", list, err))
			}
		}
		return errors.Join(errs...)
	})
}

// audited are the calls since the node has joined.
func (r *attachRig) audited() []plane.Call { return r.p.Audited()[r.from:] }

// takeCalls moves the calls from the driver's memory to seen, and checks the law of calls.
func (r *attachRig) takeCalls() {
	r.t.Helper()
	r.driver.CheckLaw(r.t)
	s, err := r.driver.State(r.t.Context())
	if err == nil {
		err = r.driver.Clear(r.t.Context())
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.seen = append(r.seen, s.Calls...)
}

// clearVolumes removes all claims and volumes.
func (r *attachRig) clearVolumes() {
	r.t.Helper()
	r.kubectl("delete", "persistentvolumeclaims,persistentvolumes,csidrivers", "--all", "--timeout=180s")
}

// lists is a field of the node's status that is a list of volumes, as one call set it.
type lists struct {
	at, answered time.Time
	failed       bool
	names        []string
}

func (l lists) has(name v1.UniqueVolumeName) bool { return slices.Contains(l.names, string(name)) }

// history are the lists that the calls set: those in use by the node, and those attached by controllers.
func (r *attachRig) history(calls []plane.Call) (inUse, attached []lists) {
	r.t.Helper()
	for _, c := range calls {
		if c.Verb != "patch" || c.Resource != "nodes/status" || c.Name != r.name {
			continue
		}
		var body struct {
			Status struct {
				VolumesInUse    *[]string
				VolumesAttached []v1.AttachedVolume
			}
		}
		if err := json.Unmarshal(c.Body, &body); err != nil {
			r.t.Fatalf("body of %v: %v", c, err)
		}
		l := lists{at: c.At, answered: c.Answered, failed: c.Code >= http.StatusMultipleChoices}
		if list := body.Status.VolumesInUse; list != nil && c.Node == r.name {
			l.names = *list
			inUse = append(inUse, l)
		} else if c.Node == "" && strings.Contains(string(c.Body), `"volumesAttached"`) {
			for _, a := range body.Status.VolumesAttached { // null if there is none
				l.names = append(l.names, string(a.Name))
			}
			attached = append(attached, l)
		}
	}
	byTime := func(a, b lists) int { return a.at.Compare(b.at) }
	slices.SortStableFunc(inUse, byTime)
	slices.SortStableFunc(attached, byTime)
	return inUse, attached
}
