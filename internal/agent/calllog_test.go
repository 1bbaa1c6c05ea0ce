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

// callLog records what the runtime was asked to do, and finds what it shouldn't have been.
type callLog struct {
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

func newCallLog(r *rig) *callLog {
	return &callLog{rig: r, started: map[string]int{}, boxes: map[string]int{}, hooks: map[string]bool{}}
}

func (l *callLog) blame(format string, args ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// problems are the rules broken so far.
func (l *callLog) problems() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(slices.Clone(l.faults), l.rig.Violations()...)
}

// carryOut does a call. Those that don't wait are done one by one, so that what is
// looked at before is what they find.
func (l *callLog) carryOut(ctx context.Context, req any, next grpc.UnaryHandler) (any, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch r := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		l.beforeSandbox(r)
	case *runtimeapi.StopPodSandboxRequest:
		l.beforeBoxEnds("stopped", r.PodSandboxId)
	case *runtimeapi.RemovePodSandboxRequest:
		l.beforeBoxEnds("removed", r.PodSandboxId)
	case *runtimeapi.CreateContainerRequest:
		l.beforeCreate(r.Config)
	case *runtimeapi.StartContainerRequest:
		l.beforeStart(r.ContainerId)
	case *runtimeapi.StopContainerRequest:
		l.beforeStop(r.ContainerId)
		l.mu.Unlock()
		defer l.mu.Lock()
	case *runtimeapi.RemoveContainerRequest:
		if c := l.container(r.ContainerId); c != nil && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			l.blame("%s #%d is removed while it runs", nameOf(c), c.Metadata.Attempt)
		}
	case *runtimeapi.ExecSyncRequest:
		l.mu.Unlock()
		resp, err := next(ctx, req)
		l.mu.Lock()
		if err == nil {
			l.hooks[r.Cmd[0]+" "+r.ContainerId] = true
		}
		return resp, err
	case *runtimeapi.PullImageRequest:
		l.mu.Unlock()
		defer l.mu.Lock()
	}
	resp, err := next(ctx, req)
	if r, ok := req.(*runtimeapi.RunPodSandboxRequest); ok && err == nil {
		l.boxes[r.Config.Metadata.Uid]++
	}
	return resp, err
}

func (l *callLog) container(id string) *runtimeapi.ContainerStatus {
	for _, c := range l.rig.Containers() {
		if c.Id == id {
			return c
		}
	}
	return nil
}

func slot(labels map[string]string) string {
	return labels[kubelettypes.KubernetesPodUIDLabel] + "/" + labels[kubelettypes.KubernetesContainerNameLabel]
}

func (l *callLog) beforeSandbox(r *runtimeapi.RunPodSandboxRequest) {
	m := r.Config.Metadata
	for _, sb := range l.rig.Sandboxes() {
		if sb.Metadata.Name == m.Name {
			l.blame("a sandbox #%d is made for %s, which has #%d (%s)", m.Attempt, m.Name, sb.Metadata.Attempt, sb.State)
		}
	}
	if l.boxes[m.Uid] > 0 {
		l.blame("a second sandbox is made for %s", m.Name)
	}
}

func (l *callLog) beforeBoxEnds(how, id string) {
	for _, c := range l.rig.Containers() {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING && l.inBox(c.Id, id) {
			l.blame("the sandbox of %s #%d is %s while it runs", nameOf(c), c.Metadata.Attempt, how)
		}
	}
}

func (l *callLog) inBox(container, box string) bool {
	resp, err := l.rig.ListContainers(l.rig.t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: container, PodSandboxId: box}})
	return err == nil && len(resp.Containers) > 0
}

// beforeCreate: an instance has the number after that of the last one that was
// started, so that no restart is counted twice and none is forgotten. Only main ever
// ends by itself, so nothing else waits to be restarted.
func (l *callLog) beforeCreate(config *runtimeapi.ContainerConfig) {
	due := 0
	if last, ok := l.started[slot(config.Labels)]; ok {
		due = last + 1
	}
	if got := int(config.Metadata.Attempt); got != due {
		l.blame("%s is made as #%d, its next instance is #%d", config.Metadata.Name, got, due)
	}
	if delay := config.Annotations[translate.AnnotationBackoff]; delay != "" && config.Metadata.Name != "main" {
		l.blame("%s #%d has a back-off of %s: it never failed", config.Metadata.Name, config.Metadata.Attempt, delay)
	}
}

// beforeStart: the containers start in the order setup, side, main; a sidecar
// counts as started after its hook.
func (l *callLog) beforeStart(id string) {
	c := l.container(id)
	if c == nil {
		return
	}
	l.started[slot(c.Labels)] = int(c.Metadata.Attempt)
	p, name := c.Labels[kubelettypes.KubernetesPodNameLabel], c.Metadata.Name
	if setup := l.newest(p, "setup"); name != "setup" && (setup == nil || setup.State != runtimeapi.ContainerState_CONTAINER_EXITED || setup.ExitCode != 0) {
		l.blame("%s is started before setup has ended well", name)
	}
	if side := l.newest(p, "side"); name == "main" && (side == nil || side.State != runtimeapi.ContainerState_CONTAINER_RUNNING || !l.hooks[postStartHook+" "+side.Id]) {
		l.blame("main is started before the sidecar has")
	}
}

func (l *callLog) newest(podName, name string) (newest *runtimeapi.ContainerStatus) {
	for _, c := range l.rig.Containers() {
		if c.Labels[kubelettypes.KubernetesPodNameLabel] == podName && c.Metadata.Name == name && (newest == nil || c.Metadata.Attempt > newest.Metadata.Attempt) {
			newest = c
		}
	}
	return newest
}

func (l *callLog) beforeStop(id string) {
	c := l.container(id)
	if c == nil || c.State != runtimeapi.ContainerState_CONTAINER_RUNNING || l.noPreStop {
		return
	}
	if hasHooks(c) && l.hooks[postStartHook+" "+id] && !l.hooks[preStopHook+" "+id] {
		l.blame("%s #%d is stopped before its preStop hook has run", nameOf(c), c.Metadata.Attempt)
	}
}

// killsAtOnce says whether containers are killed without their preStop hook from now on.
func (l *callLog) killsAtOnce(yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noPreStop = yes
}

func (l *callLog) hookDone(hook, id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hooks[hook+" "+id]
}

// hasHooks reports whether a container has both hooks.
func hasHooks(c *runtimeapi.ContainerStatus) bool { return c.Metadata.Name == "main" }
