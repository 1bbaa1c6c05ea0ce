package node

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Exit codes that the runtime sets itself.
const (
	exitStartFailed int32 = 128
	exitKilled      int32 = 137
	exitUnknown     int32 = 255
)

// CreateContainer creates a container in a ready sandbox, from an image that exists.
func (n *Node) CreateContainer(_ context.Context,
	r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sandboxes[r.GetPodSandboxId()]
	if s == nil {
		return nil, status.Errorf(codes.NotFound, "failed to find sandbox id %q: not found", r.GetPodSandboxId())
	}
	if !s.ready() {
		return nil, status.Errorf(codes.Unknown, "sandbox container %q is not running", s.id())
	}
	config, pod := r.GetConfig(), r.GetSandboxConfig().GetMetadata()
	if config.GetMetadata() == nil || pod == nil {
		return nil, status.Error(codes.Unknown, "container and sandbox config must include metadata")
	}
	id, name := newID(), containerName(config.GetMetadata(), pod)
	if holder, taken := n.names[name]; taken {
		return nil, status.Errorf(codes.FailedPrecondition,
			"failed to reserve container name %q: name %q is reserved for %q", name, name, holder)
	}
	image, ok := n.options.Images.Resolve(config.GetImage().GetImage())
	if !ok {
		return nil, status.Errorf(codes.NotFound, "failed to resolve image %q: not found", config.GetImage().GetImage())
	}
	if err := n.checkTarget(s, config); err != nil {
		return nil, err
	}
	n.order++
	c := &container{
		name: name, order: n.order, sandbox: s, config: config, memory: defaultMemory,
		behaviour: n.behaviourOf(config), stopped: make(chan struct{}),
		status: &runtimeapi.ContainerStatus{Id: id},
	}
	c.set(func(st *runtimeapi.ContainerStatus) { describe(st, r, image) })
	n.names[name] = id
	n.containers[id] = c
	s.containers[id] = c
	n.publish(s, id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

// processes returns the namespace options, which include the PID namespace of a container.
func processes(config *runtimeapi.ContainerConfig) *runtimeapi.NamespaceOption {
	return config.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

// targetOf returns the ID of the target container whose PID namespace a container shares; empty if it shares none.
func targetOf(config *runtimeapi.ContainerConfig) string {
	if processes(config).GetPid() != runtimeapi.NamespaceMode_TARGET {
		return ""
	}
	return processes(config).GetTargetId()
}

func (n *Node) checkTarget(s *sandbox, config *runtimeapi.ContainerConfig) error {
	if processes(config).GetPid() != runtimeapi.NamespaceMode_TARGET {
		return nil
	}
	id := targetOf(config)
	target := s.containers[id]
	if target == nil {
		return status.Errorf(codes.NotFound,
			"invalid target container: container %q does not exist in sandbox %s: not found", id, s.id())
	}
	if !target.is(runtimeapi.ContainerState_CONTAINER_RUNNING) {
		return status.Errorf(codes.Unknown, "invalid target container: container %q is not running - in state %s", id,
			target.status.State)
	}
	return nil
}

// describe sets the status of a new container.
func describe(st *runtimeapi.ContainerStatus, r *runtimeapi.CreateContainerRequest, image *runtimeapi.Image) {
	config := r.GetConfig()
	st.Metadata = config.GetMetadata()
	st.State = runtimeapi.ContainerState_CONTAINER_CREATED
	st.CreatedAt = time.Now().UnixNano()
	st.Image = config.GetImage()
	if len(image.RepoTags) > 0 {
		st.Image = &runtimeapi.ImageSpec{Image: image.RepoTags[0]}
	}
	st.ImageRef, st.ImageId = image.Id, image.Id
	if len(image.RepoDigests) > 0 {
		st.ImageRef = image.RepoDigests[0]
	}
	st.Labels = config.GetLabels()
	st.Annotations = config.GetAnnotations()
	st.Mounts = config.GetMounts()
	if dir := r.GetSandboxConfig().GetLogDirectory(); dir != "" && config.GetLogPath() != "" {
		st.LogPath = dir + "/" + config.GetLogPath()
	}
	st.Resources = &runtimeapi.ContainerResources{Linux: config.GetLinux().GetResources()}
	st.User = &runtimeapi.ContainerUser{Linux: userOf(config.GetLinux().GetSecurityContext())}
	st.StopSignal = config.GetStopSignal()
	if st.StopSignal == runtimeapi.Signal_RUNTIME_DEFAULT {
		st.StopSignal = runtimeapi.Signal_SIGTERM
	}
}

// userOf returns the configured user; the default is root. The groups always include the user's group.
func userOf(security *runtimeapi.LinuxContainerSecurityContext) *runtimeapi.LinuxContainerUser {
	u := &runtimeapi.LinuxContainerUser{Uid: security.GetRunAsUser().GetValue(),
		Gid: security.GetRunAsGroup().GetValue()}
	u.SupplementalGroups = []int64{u.Gid}
	for _, g := range security.GetSupplementalGroups() {
		if !slices.Contains(u.SupplementalGroups, g) {
			u.SupplementalGroups = append(u.SupplementalGroups, g)
		}
	}
	return u
}

// StartContainer starts a created container. If that fails, the container has exited with 128 and the reason
// StartError.
func (n *Node) StartContainer(_ context.Context,
	r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, err := n.find(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if !c.is(runtimeapi.ContainerState_CONTAINER_CREATED) {
		return nil, status.Errorf(codes.Unknown,
			"failed to set starting state for container %q: container is in %s state", c.id(), c.status.State)
	}
	if err := n.launch(c); err != nil {
		n.finish(c, exitStartFailed, "StartError", err.Error())
		return nil, status.Error(codes.Unknown, err.Error())
	}
	c.set(func(st *runtimeapi.ContainerStatus) {
		st.State = runtimeapi.ContainerState_CONTAINER_RUNNING
		st.StartedAt = time.Now().UnixNano()
	})
	n.noteRunning(c)
	n.publish(c.sandbox, c.id(), runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	if c.behaviour.Exits {
		n.endLater(c, c.behaviour.ExitAfter, c.behaviour.ExitCode, c.behaviour.Reason)
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

func (n *Node) launch(c *container) error {
	if !c.sandbox.ready() {
		return fmt.Errorf("sandbox container %q is not running", c.sandbox.id())
	}
	if c.behaviour.StartError != "" {
		return fmt.Errorf("failed to start containerd task %q: %s", c.id(), c.behaviour.StartError)
	}
	if !n.options.WriteLogs || c.status.LogPath == "" {
		return nil
	}
	log, err := openLog(c.status.LogPath)
	if err != nil {
		return fmt.Errorf("failed to create container loggers: %w", err)
	}
	c.log = log
	for _, line := range c.behaviour.Output {
		if err := log.Write(line.Stream(), line.Text); err != nil {
			return fmt.Errorf("failed to write container log: %w", err)
		}
	}
	return nil
}

// RemoveContainer removes the container, killing it if it runs. A missing container isn't an error.
func (n *Node) RemoveContainer(_ context.Context,
	r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.containers[r.GetContainerId()]; c != nil {
		if c.is(runtimeapi.ContainerState_CONTAINER_RUNNING) {
			n.end(c, exitKilled, "")
		}
		n.remove(c)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (n *Node) remove(c *container) {
	delete(n.containers, c.id())
	delete(c.sandbox.containers, c.id())
	delete(n.names, c.name)
	n.publish(c.sandbox, c.id(), runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
}

// ContainerStatus returns the status of one container.
func (n *Node) ContainerStatus(_ context.Context,
	r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, err := n.find(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.status}, nil
}

func (n *Node) find(id string) (*container, error) {
	if c := n.containers[id]; c != nil {
		return c, nil
	}
	return nil, status.Errorf(codes.NotFound, "an error occurred when try to find container %q: not found", id)
}

func containerName(c *runtimeapi.ContainerMetadata, pod *runtimeapi.PodSandboxMetadata) string {
	return strings.Join([]string{c.GetName(), pod.GetName(), pod.GetNamespace(), pod.GetUid(),
		strconv.FormatUint(uint64(c.GetAttempt()), 10)}, "_")
}
