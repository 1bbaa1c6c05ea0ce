package node

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPodSandbox creates a ready sandbox with an address, unless it uses the host's network. Its name consists of
// name, namespace, UID and attempt, and has to be unique.
func (n *Node) RunPodSandbox(_ context.Context,
	r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	config := r.GetConfig()
	if config.GetMetadata() == nil {
		return nil, status.Error(codes.Unknown, "sandbox config must include metadata")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	id, name := newID(), sandboxName(config.GetMetadata())
	if holder, taken := n.names[name]; taken {
		return nil, status.Errorf(codes.FailedPrecondition,
			"failed to reserve sandbox name %q: name %q is reserved for %q", name, name, holder)
	}
	s := &sandbox{name: name, config: config, containers: make(map[string]*container)}
	if config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() != runtimeapi.NamespaceMode_NODE {
		ip, err := n.ips.Allocate()
		if err != nil {
			return nil, status.Errorf(codes.Unknown, "failed to setup network for sandbox %q: %v", id, err)
		}
		s.ip = ip
	}
	s.status = &runtimeapi.PodSandboxStatus{Id: id}
	s.set(func(st *runtimeapi.PodSandboxStatus) {
		st.Metadata = config.GetMetadata()
		st.State = runtimeapi.PodSandboxState_SANDBOX_READY
		st.CreatedAt = time.Now().UnixNano()
		st.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: s.ip}
		st.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}}
		st.Labels = config.GetLabels()
		st.Annotations = config.GetAnnotations()
		st.RuntimeHandler = r.GetRuntimeHandler()
	})
	n.names[name] = id
	n.sandboxes[id] = s
	n.publish(s, id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	n.publish(s, id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

// StopPodSandbox kills the sandbox's containers and releases its address. A sandbox that is missing or stopped
// isn't an error.
func (n *Node) StopPodSandbox(_ context.Context,
	r *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.sandboxes[r.GetPodSandboxId()]; s != nil {
		n.stopSandbox(s)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (n *Node) stopSandbox(s *sandbox) {
	for _, c := range s.inOrder() {
		if c.is(runtimeapi.ContainerState_CONTAINER_RUNNING) {
			n.end(c, exitKilled, "")
		}
	}
	if s.ready() {
		s.set(func(st *runtimeapi.PodSandboxStatus) { st.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY })
		// As in containerd, the network is torn down after this event.
		n.publish(s, s.id(), runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
	if s.ip != "" {
		n.ips.Release(s.ip)
		s.ip = ""
		s.set(func(st *runtimeapi.PodSandboxStatus) { st.Network = &runtimeapi.PodSandboxNetworkStatus{} })
	}
}

// RemovePodSandbox stops the sandbox and removes it with all its containers. A missing sandbox isn't an error.
func (n *Node) RemovePodSandbox(_ context.Context,
	r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sandboxes[r.GetPodSandboxId()]
	if s == nil {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	n.stopSandbox(s)
	for _, c := range s.inOrder() {
		n.remove(c)
	}
	n.publish(s, s.id(), runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	delete(n.sandboxes, s.id())
	delete(n.names, s.name)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// PodSandboxStatus returns the status of one sandbox.
func (n *Node) PodSandboxStatus(_ context.Context,
	r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sandboxes[r.GetPodSandboxId()]
	if s == nil {
		return nil, status.Errorf(codes.NotFound,
			"an error occurred when try to find sandbox: %q: not found", r.GetPodSandboxId())
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: s.status}, nil
}

// UpdatePodSandboxResources accepts anything for a sandbox that exists.
func (n *Node) UpdatePodSandboxResources(_ context.Context,
	r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sandboxes[r.GetPodSandboxId()] == nil {
		return nil, status.Errorf(codes.NotFound, "failed to find sandbox %q: not found", r.GetPodSandboxId())
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// inOrder returns the sandbox's containers, oldest first.
func (s *sandbox) inOrder() []*container {
	all := make([]*container, 0, len(s.containers))
	for _, c := range s.containers {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *container) int { return int(a.order) - int(b.order) })
	return all
}

func sandboxName(m *runtimeapi.PodSandboxMetadata) string {
	return strings.Join([]string{m.GetName(), m.GetNamespace(), m.GetUid(),
		strconv.FormatUint(uint64(m.GetAttempt()), 10)}, "_")
}
