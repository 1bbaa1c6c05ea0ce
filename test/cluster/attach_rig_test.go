package cluster_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	neturl "net/url"
	"os"
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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/runtime/memcri"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/csidriver/driver"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// api is an administrator's client that makes many calls, each without a process of its own.
type api struct {
	server string
	client *http.Client
}

func newAPI(t *testing.T, p *plane.Plane) *api {
	t.Helper()
	c, err := p.Client()
	if err != nil {
		t.Fatal(err)
	}
	c.Transport.(*http.Transport).MaxIdleConnsPerHost = 100
	t.Cleanup(c.CloseIdleConnections)
	return &api{p.Server(), c}
}

// open makes a call and returns the body of the answer, which the caller closes.
func (a *api) open(ctx context.Context, method, path, contentType string, body any) (io.ReadCloser, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, a.server+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", contentType)
	response, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode < http.StatusBadRequest {
		return response.Body, nil
	}
	defer response.Body.Close()
	var status metav1.Status
	if err := json.NewDecoder(response.Body).Decode(&status); err != nil {
		return nil, fmt.Errorf("%s %s: %s: %w", method, path, response.Status, err)
	}
	return nil, &apierrors.StatusError{ErrStatus: status}
}

func (a *api) call(ctx context.Context, method, path, contentType string, body, into any) error {
	answer, err := a.open(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	defer answer.Close()
	if into == nil {
		_, err = io.Copy(io.Discard, answer) // so that the connection is used again
		return err
	}
	return json.NewDecoder(answer).Decode(into)
}

func (a *api) get(ctx context.Context, path string, into any) error {
	return a.call(ctx, http.MethodGet, path, "application/json", nil, into)
}

func (a *api) create(ctx context.Context, path string, o any) error {
	return a.call(ctx, http.MethodPost, path, "application/json", o, nil)
}

// patch merges the fields into an object.
func (a *api) patch(ctx context.Context, path string, fields any) error {
	return a.call(ctx, http.MethodPatch, path, string(types.MergePatchType), fields, nil)
}

// remove deletes an object, or all at the path of a list.
func (a *api) remove(ctx context.Context, path string, o metav1.DeleteOptions) error {
	return a.call(ctx, http.MethodDelete, path, "application/json", o, nil)
}

// followed are the objects of a list, by their names, as a watch passes them.
type followed[T any] struct {
	changed wake.Group
	mu      sync.Mutex
	objects map[string]T
}

// followList follows a list until the end of the test. It calls each, if there is one, for each change with the
// object's name.
func followList[T any](t *testing.T, a *api, path string, selector string, each func(name string)) *followed[T] {
	t.Helper()
	f := &followed[T]{objects: map[string]T{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			if err := f.run(ctx, a, path, selector, each); err != nil && ctx.Err() == nil {
				t.Logf("watch %s: %v", path, err)
				wake.Sleep(ctx, 100*time.Millisecond)
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return f
}

func (f *followed[T]) set(objects map[string]T, each func(name string)) {
	f.mu.Lock()
	f.objects = objects
	f.mu.Unlock()
	f.changed.Wake()
	if each != nil {
		for name := range objects {
			each(name)
		}
	}
}

func nameOf(object json.RawMessage) (string, error) {
	var o metav1.PartialObjectMetadata
	err := json.Unmarshal(object, &o)
	return o.Name, err
}

// run lists once, and watches until the watch ends.
func (f *followed[T]) run(ctx context.Context, a *api, path, selector string, each func(name string)) error {
	var list struct {
		Metadata metav1.ListMeta
		Items    []json.RawMessage
	}
	query := neturl.Values{"fieldSelector": {selector}}
	if err := a.get(ctx, path+"?"+query.Encode(), &list); err != nil {
		return err
	}
	objects := map[string]T{}
	add := func(object json.RawMessage) error {
		name, err := nameOf(object)
		var o T
		if err = errors.Join(err, json.Unmarshal(object, &o)); err == nil {
			objects[name] = o
		}
		return err
	}
	for _, item := range list.Items {
		if err := add(item); err != nil {
			return err
		}
	}
	f.set(maps.Clone(objects), each)
	query.Set("watch", "1")
	query.Set("resourceVersion", list.Metadata.ResourceVersion)
	events, err := a.open(ctx, http.MethodGet, path+"?"+query.Encode(), "application/json", nil)
	if err != nil {
		return err
	}
	defer events.Close()
	for lines := json.NewDecoder(events); ; {
		var e struct {
			Type   string
			Object json.RawMessage
		}
		if err := lines.Decode(&e); err != nil {
			return nil // the watch has ended
		}
		name, err := nameOf(e.Object)
		switch {
		case err != nil:
		case e.Type == "DELETED":
			delete(objects, name)
		case e.Type == "ERROR":
			return fmt.Errorf("%s", e.Object)
		default:
			err = add(e.Object)
		}
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.objects = maps.Clone(objects)
		f.mu.Unlock()
		f.changed.Wake()
		if each != nil {
			each(name)
		}
	}
}

func (f *followed[T]) now() map[string]T {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.objects
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

// attacher stands in for Kubernetes' external-attacher: it attaches and detaches the volumes of a driver as the
// VolumeAttachments say.
type attacher struct {
	t      *testing.T
	api    *api
	driver string
	// controllers has a driver's controller for each node.
	controllers map[string]csi.ControllerClient
	running     sync.WaitGroup
	mu          sync.Mutex
	locks       map[string]*sync.Mutex
}

// startAttacher starts an attacher for drivers of one name, by the nodes that they are for. It connects before volumes
// are used: the law of calls allows more after a new connection.
func startAttacher(t *testing.T, a *api, drivers map[string]*driver.Process) *followed[storage.VolumeAttachment] {
	t.Helper()
	at := &attacher{t: t, api: a, controllers: map[string]csi.ControllerClient{}, locks: map[string]*sync.Mutex{}}
	ctx, cancel := context.WithCancel(context.Background())
	for name, d := range drivers {
		at.driver = d.Name
		at.controllers[name] = controllerOf(t, d)
	}
	t.Cleanup(func() { cancel(); at.running.Wait() })
	return followList[storage.VolumeAttachment](t, a, attachmentsPath, "", func(name string) {
		at.running.Go(func() {
			for ctx.Err() == nil {
				err := at.reconcile(ctx, name)
				if err == nil || ctx.Err() != nil {
					return
				}
				t.Logf("VolumeAttachment %s: %v", name, err)
				wake.Sleep(ctx, 100*time.Millisecond)
			}
		})
	})
}

// controllerOf connects to a driver's controller service.
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

const attachmentsPath = "/apis/storage.k8s.io/v1/volumeattachments"

// attacherFinalizer keeps a VolumeAttachment until the volume is detached.
const attacherFinalizer = "external-attacher/test"

func (a *attacher) reconcile(ctx context.Context, name string) error {
	a.mu.Lock()
	lock := a.locks[name]
	if lock == nil {
		lock = &sync.Mutex{}
		a.locks[name] = lock
	}
	a.mu.Unlock()
	lock.Lock()
	defer lock.Unlock()
	var o storage.VolumeAttachment
	path := attachmentsPath + "/" + name
	if err := a.api.get(ctx, path, &o); err != nil || o.Spec.Attacher != a.driver {
		return ignoreNotFound(err)
	}
	controller := a.controllers[o.Spec.NodeName]
	going, ours := o.DeletionTimestamp != nil, slices.Contains(o.Finalizers, attacherFinalizer)
	if controller == nil || going && !ours || !going && o.Status.Attached {
		return nil
	}
	finalizers := func(list ...string) map[string]any {
		return map[string]any{"metadata": map[string]any{"finalizers": list, "uid": o.UID}}
	}
	if !going && !ours {
		if err := a.api.patch(ctx, path, finalizers(attacherFinalizer)); err != nil {
			return ignoreNotFound(err)
		}
	}
	var n storage.CSINode
	var volume v1.PersistentVolume
	err := a.api.get(ctx, "/apis/storage.k8s.io/v1/csinodes/"+o.Spec.NodeName, &n)
	if err == nil {
		err = a.api.get(ctx, volumesPath+"/"+*o.Spec.Source.PersistentVolumeName, &volume)
	}
	at := slices.IndexFunc(n.Spec.Drivers, func(d storage.CSINodeDriver) bool { return d.Name == a.driver })
	if err != nil || at < 0 {
		return cmp.Or(err, errors.New("the CSINode object doesn't have the driver"))
	}
	handle, nodeID := volume.Spec.CSI.VolumeHandle, n.Spec.Drivers[at].NodeID
	if going {
		request := &csi.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: nodeID}
		if _, err := controller.ControllerUnpublishVolume(ctx, request); err != nil {
			return err
		}
		return ignoreNotFound(a.api.patch(ctx, path, finalizers()))
	}
	answer, err := controller.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: handle,
		NodeId: nodeID, VolumeCapability: writerCapability()})
	if err != nil {
		return err
	}
	return ignoreNotFound(a.api.patch(ctx, path+"/status", map[string]any{"metadata": map[string]any{"uid": o.UID},
		"status": map[string]any{"attached": true, "attachmentMetadata": answer.GetPublishContext()}}))
}

// ignoreNotFound returns nil for an object that is gone, or is another one by now: there will be another event.
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func writerCapability() *csi.VolumeCapability {
	return &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
}

const (
	volumesPath = "/api/v1/persistentvolumes"
	claimsPath  = "/api/v1/namespaces/default/persistentvolumeclaims"
	podsPath    = "/api/v1/namespaces/default/pods"
)

// attachRig is a node with attached volumes of a driver: the control plane, the agent and the mounts are real, and the
// containers are in memory.
type attachRig struct {
	*rig
	api         *api
	driver      *driver.Process
	controller  csi.ControllerClient
	pods        *followed[v1.Pod]
	nodes       *followed[v1.Node]
	attachments *followed[storage.VolumeAttachment]
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
	s, err := memcri.New(memcri.Options{Images: []string{node.Image}, WriteLogs: true, EventQueue: 100_000,
		CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS})
	if err != nil {
		t.Fatal(err)
	}
	r := &attachRig{rig: n, api: newAPI(t, n.p), handles: map[string]string{}, from: len(n.p.Audited())}
	socket := filepath.Join(r.Base, "cri.sock")
	if err := s.Start(socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	r.endpoint = "unix://" + socket
	registry := filepath.Join(r.RootDir, "plugins_registry")
	for _, dir := range []string{"pods", "plugins", "plugins_registry"} {
		if err := os.MkdirAll(filepath.Join(r.RootDir, dir), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	o.Name, o.NodeID, o.Below, o.Args = attachDriver, "id-1", []string{r.RootDir}, []string{"--enable-attach"}
	o.Registration, o.Capabilities = filepath.Join(registry, "csi.sock"), []string{"STAGE_UNSTAGE_VOLUME"}
	r.driver = driver.Start(t, o)
	r.controller = controllerOf(t, r.driver)
	r.pods = followList[v1.Pod](t, r.api, podsPath, "", nil)
	r.nodes = followList[v1.Node](t, r.api, "/api/v1/nodes", "metadata.name="+r.name, nil)
	r.attachments = startAttacher(t, r.api, map[string]*driver.Process{r.name: r.driver})
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
	storageClass, size := "", v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	for _, name := range names {
		answer, err := r.controller.CreateVolume(r.t.Context(), &csi.CreateVolumeRequest{Name: name,
			VolumeCapabilities: []*csi.VolumeCapability{writerCapability()}})
		if err != nil {
			r.t.Fatal(err)
		}
		r.handles[name] = answer.GetVolume().GetVolumeId()
		for path, o := range map[string]any{
			volumesPath: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
				Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
				ClaimRef: &v1.ObjectReference{Namespace: "default", Name: name},
				PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
					Driver: attachDriver, VolumeHandle: r.handles[name]}}}},
			claimsPath: &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: v1.PersistentVolumeClaimSpec{AccessModes: modes, StorageClassName: &storageClass, VolumeName: name,
					Resources: v1.VolumeResourceRequirements{Requests: size}}},
		} {
			if err := r.api.create(r.t.Context(), path, o); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	claims := followList[v1.PersistentVolumeClaim](r.t, r.api, claimsPath, "", nil)
	claims.await(r.t, "claims are bound", func(objects map[string]v1.PersistentVolumeClaim) error {
		for _, name := range names {
			if phase := objects[name].Status.Phase; phase != v1.ClaimBound {
				return fmt.Errorf("%s is %s", name, phase)
			}
		}
		return nil
	})
}

// addPod makes a pod that mounts the volumes of claims.
func (r *attachRig) addPod(name string, claims ...string) {
	r.t.Helper()
	if err := r.api.create(r.t.Context(), podsPath, podWith(name, claims...)); err != nil {
		r.t.Fatal(err)
	}
}

func podWith(name string, claims ...string) *v1.Pod {
	grace, token := int64(1), false
	c := v1.Container{Name: "c", Image: node.Image, Args: []string{"serve"}}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{TerminationGracePeriodSeconds: &grace,
		AutomountServiceAccountToken: &token}}
	for _, claim := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: claim, MountPath: "/" + claim})
	}
	p.Spec.Containers = []v1.Container{c}
	return p
}

// removePod asks for the end of a pod; by force its object goes at once.
func (r *attachRig) removePod(name string, force bool) {
	r.t.Helper()
	var o metav1.DeleteOptions
	if force {
		o.GracePeriodSeconds = new(int64)
	}
	if err := r.api.remove(r.t.Context(), podsPath+"/"+name, o); err != nil {
		r.t.Fatal(err)
	}
}

// areReady waits until the pods are ready, areGone until their objects are gone.
func (r *attachRig) areReady(names ...string) {
	r.t.Helper()
	r.pods.await(r.t, "pods are ready", func(pods map[string]v1.Pod) error {
		for _, name := range names {
			p := pods[name]
			if condition(&p, v1.PodReady).Status != v1.ConditionTrue {
				return fmt.Errorf("%s isn't", name)
			}
		}
		return nil
	})
}

func (r *attachRig) areGone(names ...string) {
	r.t.Helper()
	r.pods.await(r.t, "pods are gone", func(pods map[string]v1.Pod) error {
		for _, name := range names {
			if _, is := pods[name]; is {
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
	status := r.nodes.now()[r.name].Status
	for _, a := range status.VolumesAttached {
		attached = append(attached, a.Name)
	}
	slices.Sort(attached)
	return slices.Sorted(slices.Values(status.VolumesInUse)), attached
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
		mounts := slices.Concat(driver.Mounts(r.t, filepath.Join(r.RootDir, "pods")),
			driver.Mounts(r.t, filepath.Join(r.RootDir, "plugins")))
		if len(mounts) != 2*len(claims) {
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
	r.kubectl("delete", "persistentvolumeclaims,persistentvolumes,csidrivers", "--all", "--timeout=60s")
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
