package observed

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a scripted runtime. Changing it sends no event: tests send what they
// were given back, when, as often and in what order they like.
type world struct {
	mu         sync.Mutex
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	containers map[string]*container
	subs       map[chan *runtimeapi.ContainerEventResponse]chan struct{}
	down       bool
	noStream   bool
	refuse     map[string]error
	calls      map[string]int
	// onList runs between the making of a list and its delivery.
	onList func()
	// mostSandboxes and mostContainers are how many objects fit in one answer; 0 means any number.
	mostSandboxes, mostContainers int
	// longStreams says that a part of a stream doesn't fit; else there are no streams.
	longStreams bool
}

type container struct {
	status  *runtimeapi.ContainerStatus
	sandbox string
}

func newWorld() *world {
	return &world{
		sandboxes:  map[string]*runtimeapi.PodSandboxStatus{},
		containers: map[string]*container{},
		subs:       map[chan *runtimeapi.ContainerEventResponse]chan struct{}{},
		refuse:     map[string]error{},
		calls:      map[string]int{},
	}
}

func labelsOf(uid string) map[string]string {
	return map[string]string{
		kubelettypes.KubernetesPodUIDLabel:       uid,
		kubelettypes.KubernetesPodNameLabel:      "name-" + uid,
		kubelettypes.KubernetesPodNamespaceLabel: "ns",
	}
}

func (w *world) addSandbox(uid, id string, attempt uint32) *runtimeapi.ContainerEventResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sandboxes[id] = &runtimeapi.PodSandboxStatus{
		Id: id, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: time.Now().UnixNano(), Labels: labelsOf(uid),
		Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid, Name: "name-" + uid, Namespace: "ns", Attempt: attempt},
		Network:  &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1", AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::1"}}},
	}
	return w.event(id, id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
}

func (w *world) addContainer(sandbox, id, name string, attempt uint32) *runtimeapi.ContainerEventResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	labels := maps.Clone(w.sandboxes[sandbox].Labels)
	labels[kubelettypes.KubernetesContainerNameLabel] = name
	w.containers[id] = &container{sandbox: sandbox, status: &runtimeapi.ContainerStatus{
		Id: id, State: runtimeapi.ContainerState_CONTAINER_CREATED, CreatedAt: time.Now().UnixNano(), Labels: labels,
		Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt}, LogPath: "/logs/" + id, ImageRef: "sha256:1",
		Image: &runtimeapi.ImageSpec{Image: "img"},
		Annotations: map[string]string{
			translate.AnnotationHash: "1", translate.AnnotationResources: `{"requests":{"cpu":"1"}}`, translate.AnnotationPorts: `[{"containerPort":80}]`,
		},
		User:       &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: 1, SupplementalGroups: []int64{2}}},
		StopSignal: runtimeapi.Signal_SIGTERM,
		Mounts:     []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/x", Readonly: true}},
	}}
	return w.event(id, sandbox, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
}

func (w *world) start(id string) *runtimeapi.ContainerEventResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.containers[id]
	c.status.State, c.status.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	return w.event(id, c.sandbox, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
}

func (w *world) exit(id string, code int32) *runtimeapi.ContainerEventResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.containers[id]
	c.status.State, c.status.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now().UnixNano()
	c.status.ExitCode, c.status.Reason = code, "Error"
	return w.event(id, c.sandbox, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

func (w *world) stopSandbox(id string) *runtimeapi.ContainerEventResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sandboxes[id].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	return w.event(id, id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

func (w *world) removeContainer(id string) *runtimeapi.ContainerEventResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	sandbox := w.containers[id].sandbox
	delete(w.containers, id)
	return w.event(id, sandbox, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
}

// removeSandbox gives the events of the containers in it, too.
func (w *world) removeSandbox(id string) []*runtimeapi.ContainerEventResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	var events []*runtimeapi.ContainerEventResponse
	for cid, c := range w.containers {
		if c.sandbox == id {
			delete(w.containers, cid)
			events = append(events, w.event(cid, id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT))
		}
	}
	// As containerd does: the event still shows the sandbox.
	events = append(events, w.event(id, id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT))
	delete(w.sandboxes, id)
	return events
}

// event is what containerd would send now.
func (w *world) event(id, sandbox string, typ runtimeapi.ContainerEventType) *runtimeapi.ContainerEventResponse {
	e := &runtimeapi.ContainerEventResponse{ContainerId: id, ContainerEventType: typ, CreatedAt: time.Now().UnixNano()}
	if sb := w.sandboxes[sandbox]; sb != nil {
		e.PodSandboxStatus = proto.Clone(sb).(*runtimeapi.PodSandboxStatus)
	}
	for _, c := range w.containers {
		if c.sandbox == sandbox {
			e.ContainersStatuses = append(e.ContainersStatuses, proto.Clone(c.status).(*runtimeapi.ContainerStatus))
		}
	}
	return e
}

func (w *world) send(events ...*runtimeapi.ContainerEventResponse) {
	w.mu.Lock()
	subs := slices.Collect(maps.Keys(w.subs))
	w.mu.Unlock()
	for _, e := range events {
		for _, ch := range subs {
			ch <- e
		}
	}
}

// setDown takes the runtime away, or brings it back.
func (w *world) setDown(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
	if down {
		w.breakStreams()
	}
}

func (w *world) breakStreams() {
	for ch, broken := range w.subs {
		close(broken)
		delete(w.subs, ch)
	}
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) called(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[name]
}

var errLong = status.Error(codes.ResourceExhausted, "grpc: received message larger than max")

var errDown = status.Error(codes.Unavailable, "nobody listens")

func (w *world) ListPodSandbox(_ context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	w.mu.Lock()
	w.calls["list"]++
	if w.down {
		w.mu.Unlock()
		return nil, errDown
	}
	var out []*runtimeapi.PodSandbox
	for _, s := range w.sandboxes {
		if matches(f.GetLabelSelector(), s.Labels) && (f.GetState() == nil || f.GetState().State == s.State) {
			out = append(out, &runtimeapi.PodSandbox{Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels})
		}
	}
	hook := w.onList
	long := w.mostSandboxes > 0 && len(out) > w.mostSandboxes
	w.mu.Unlock()
	if hook != nil {
		hook()
	}
	if long {
		return nil, errLong
	}
	return out, nil
}

func (w *world) ListContainers(_ context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	w.mu.Lock()
	if w.down {
		w.mu.Unlock()
		return nil, errDown
	}
	var out []*runtimeapi.Container
	for _, c := range w.containers {
		s := c.status
		if matches(f.GetLabelSelector(), s.Labels) && (f.GetState() == nil || f.GetState().State == s.State) &&
			(f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.sandbox) {
			out = append(out, &runtimeapi.Container{Id: s.Id, PodSandboxId: c.sandbox, Metadata: s.Metadata, State: s.State,
				CreatedAt: s.CreatedAt, Labels: s.Labels, Image: s.Image, ImageRef: s.ImageRef})
		}
	}
	hook := w.onList
	long := w.mostContainers > 0 && len(out) > w.mostContainers
	w.mu.Unlock()
	if hook != nil {
		hook()
	}
	if long {
		return nil, errLong
	}
	return out, nil
}

func (w *world) StreamPodSandboxes(context.Context, *runtimeapi.PodSandboxFilter, func(*runtimeapi.PodSandbox)) error {
	return w.stream()
}

func (w *world) StreamContainers(context.Context, *runtimeapi.ContainerFilter, func(*runtimeapi.Container)) error {
	return w.stream()
}

func (w *world) stream() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.longStreams {
		return status.Error(codes.ResourceExhausted, "a part is too long")
	}
	return status.Error(codes.Unimplemented, "no streams")
}

func matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func (w *world) PodSandboxStatus(_ context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls["status"]++
	if w.down {
		return nil, errDown
	}
	s := w.sandboxes[id]
	if s == nil {
		return nil, status.Error(codes.NotFound, "no such sandbox")
	}
	return proto.Clone(s).(*runtimeapi.PodSandboxStatus), w.refuse[id]
}

func (w *world) ContainerStatus(_ context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls["status"]++
	if w.down {
		return nil, errDown
	}
	if err := w.refuse[id]; err != nil {
		return nil, err
	}
	c := w.containers[id]
	if c == nil {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	return proto.Clone(c.status).(*runtimeapi.ContainerStatus), nil
}

func (w *world) GetContainerEvents(ctx context.Context, established func(), event func(*runtimeapi.ContainerEventResponse)) error {
	w.mu.Lock()
	w.calls["stream"]++
	if w.down {
		w.mu.Unlock()
		return errDown
	}
	if w.noStream {
		w.mu.Unlock()
		established()
		return status.Error(codes.Unimplemented, "no events")
	}
	ch, broken := make(chan *runtimeapi.ContainerEventResponse), make(chan struct{})
	w.subs[ch] = broken
	w.mu.Unlock()
	defer w.set(func() { delete(w.subs, ch) })
	established()
	for {
		select {
		case e := <-ch:
			event(e)
		case <-broken:
			return errDown
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watcher is a store at work on a world, and what it told.
type watcher struct {
	*Store
	w    *world
	mu   sync.Mutex
	woke map[types.UID]int
	logs []string
}

func watch(w *world) *watcher {
	x := &watcher{w: w, woke: map[types.UID]int{}}
	log := funcr.New(func(_, args string) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.logs = append(x.logs, args)
	}, funcr.Options{})
	x.Store = New(w, Options{Log: log, Wake: func(uid types.UID) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.woke[uid]++
	}})
	return x
}

// run starts the store inside a synctest bubble and ends it with the test.
func (x *watcher) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- x.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (x *watcher) wakes(uid types.UID) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.woke[uid]
}

// one is the pod's only container.
func (x *watcher) one(t *testing.T, uid types.UID) pod.Container {
	t.Helper()
	o := x.Get(uid)
	if o == nil || len(o.Containers) != 1 {
		t.Fatalf("pod %s: want one container, have %+v", uid, o)
	}
	return o.Containers[0]
}
