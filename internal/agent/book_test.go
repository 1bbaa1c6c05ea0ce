package agent_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// Commands of the hooks and the probe of the pods here.
const (
	postStartHook = "poststart"
	preStopHook   = "prestop"
	readyProbe    = "ready"
)

// book keeps what the runtime was asked to do, and finds what it shouldn't have been.
type book struct {
	rig *rig

	mu sync.Mutex
	// started is the last attempt that was started, by pod UID and container.
	started map[string]int
	// boxes counts the sandboxes made, by pod UID.
	boxes map[string]int
	// hooks has "HOOK ID" of each hook that has run to its end.
	hooks map[string]bool
	// noPreStop says that containers are killed without their hook at this time.
	noPreStop bool
	faults    []string
}

func newBook(r *rig) *book {
	return &book{rig: r, started: map[string]int{}, boxes: map[string]int{}, hooks: map[string]bool{}}
}

func (b *book) blame(format string, args ...any) {
	b.faults = append(b.faults, fmt.Sprintf(format, args...))
}

// problems are the laws broken so far.
func (b *book) problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append(slices.Clone(b.faults), b.rig.Violations()...)
}

// carryOut does a call. Those that don't wait are done one by one, so that what is
// looked at before is what they find.
func (b *book) carryOut(ctx context.Context, req any, next grpc.UnaryHandler) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch r := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		b.beforeSandbox(r)
	case *runtimeapi.StopPodSandboxRequest:
		b.beforeBoxEnds("stopped", r.PodSandboxId)
	case *runtimeapi.RemovePodSandboxRequest:
		b.beforeBoxEnds("removed", r.PodSandboxId)
	case *runtimeapi.CreateContainerRequest:
		b.beforeCreate(r.Config)
	case *runtimeapi.StartContainerRequest:
		b.beforeStart(r.ContainerId)
	case *runtimeapi.StopContainerRequest:
		b.beforeStop(r.ContainerId)
		b.mu.Unlock()
		defer b.mu.Lock()
	case *runtimeapi.RemoveContainerRequest:
		if c := b.container(r.ContainerId); c != nil && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			b.blame("%s #%d is removed while it runs", nameOf(c), c.Metadata.Attempt)
		}
	case *runtimeapi.ExecSyncRequest:
		b.mu.Unlock()
		resp, err := next(ctx, req)
		b.mu.Lock()
		if err == nil {
			b.hooks[r.Cmd[0]+" "+r.ContainerId] = true
		}
		return resp, err
	case *runtimeapi.PullImageRequest:
		b.mu.Unlock()
		defer b.mu.Lock()
	}
	resp, err := next(ctx, req)
	if r, ok := req.(*runtimeapi.RunPodSandboxRequest); ok && err == nil {
		b.boxes[r.Config.Metadata.Uid]++
	}
	return resp, err
}

func (b *book) container(id string) *runtimeapi.ContainerStatus {
	for _, c := range b.rig.Containers() {
		if c.Id == id {
			return c
		}
	}
	return nil
}

func slot(labels map[string]string) string {
	return labels[kubelettypes.KubernetesPodUIDLabel] + "/" + labels[kubelettypes.KubernetesContainerNameLabel]
}

func (b *book) beforeSandbox(r *runtimeapi.RunPodSandboxRequest) {
	m := r.Config.Metadata
	for _, sb := range b.rig.Sandboxes() {
		if sb.Metadata.Name == m.Name {
			b.blame("a sandbox #%d is made for %s, which has #%d (%s)", m.Attempt, m.Name, sb.Metadata.Attempt, sb.State)
		}
	}
	if b.boxes[m.Uid] > 0 {
		b.blame("a second sandbox is made for %s", m.Name)
	}
}

func (b *book) beforeBoxEnds(how, id string) {
	for _, c := range b.rig.Containers() {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING && b.inBox(c.Id, id) {
			b.blame("the sandbox of %s #%d is %s while it runs", nameOf(c), c.Metadata.Attempt, how)
		}
	}
}

func (b *book) inBox(container, box string) bool {
	resp, err := b.rig.ListContainers(b.rig.t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: container, PodSandboxId: box}})
	return err == nil && len(resp.Containers) > 0
}

// beforeCreate: an instance has the number after that of the last one that was
// started, so that no restart is counted twice and none is forgotten. Only main ever
// ends by itself, so nothing else waits to be restarted.
func (b *book) beforeCreate(config *runtimeapi.ContainerConfig) {
	due := 0
	if last, ok := b.started[slot(config.Labels)]; ok {
		due = last + 1
	}
	if got := int(config.Metadata.Attempt); got != due {
		b.blame("%s is made as #%d, its next instance is #%d", config.Metadata.Name, got, due)
	}
	if delay := config.Annotations[translate.AnnotationBackoff]; delay != "" && config.Metadata.Name != "main" {
		b.blame("%s #%d has a back-off of %s: it never failed", config.Metadata.Name, config.Metadata.Attempt, delay)
	}
}

// beforeStart: the containers start in the order setup, side, main; a sidecar
// counts as started after its hook.
func (b *book) beforeStart(id string) {
	c := b.container(id)
	if c == nil {
		return
	}
	b.started[slot(c.Labels)] = int(c.Metadata.Attempt)
	p, name := c.Labels[kubelettypes.KubernetesPodNameLabel], c.Metadata.Name
	if setup := b.newest(p, "setup"); name != "setup" && (setup == nil || setup.State != runtimeapi.ContainerState_CONTAINER_EXITED || setup.ExitCode != 0) {
		b.blame("%s is started before setup has ended well", name)
	}
	if side := b.newest(p, "side"); name == "main" && (side == nil || side.State != runtimeapi.ContainerState_CONTAINER_RUNNING || !b.hooks[postStartHook+" "+side.Id]) {
		b.blame("main is started before the sidecar has")
	}
}

func (b *book) newest(podName, name string) (newest *runtimeapi.ContainerStatus) {
	for _, c := range b.rig.Containers() {
		if c.Labels[kubelettypes.KubernetesPodNameLabel] == podName && c.Metadata.Name == name && (newest == nil || c.Metadata.Attempt > newest.Metadata.Attempt) {
			newest = c
		}
	}
	return newest
}

func (b *book) beforeStop(id string) {
	c := b.container(id)
	if c == nil || c.State != runtimeapi.ContainerState_CONTAINER_RUNNING || b.noPreStop {
		return
	}
	if hasHooks(c) && b.hooks[postStartHook+" "+id] && !b.hooks[preStopHook+" "+id] {
		b.blame("%s #%d is stopped before its preStop hook has run", nameOf(c), c.Metadata.Attempt)
	}
}

// killsAtOnce says whether containers are killed without their preStop hook from now on.
func (b *book) killsAtOnce(yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noPreStop = yes
}

func (b *book) hookDone(hook, id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hooks[hook+" "+id]
}

// hasHooks tells the containers with both hooks.
func hasHooks(c *runtimeapi.ContainerStatus) bool { return c.Metadata.Name == "main" }
