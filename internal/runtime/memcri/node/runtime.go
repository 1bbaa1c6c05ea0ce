package node

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version returns the runtime's name and version.
func (n *Node) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: "memcri", RuntimeVersion: "v1.0.0", RuntimeApiVersion: "v1",
	}, nil
}

// Status returns the conditions RuntimeReady and NetworkReady, true unless changed by SetCondition.
func (n *Node) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	answer := &runtimeapi.RuntimeStatus{}
	for _, kind := range []string{runtimeapi.RuntimeReady, runtimeapi.NetworkReady} {
		condition := &runtimeapi.RuntimeCondition{Type: kind, Status: true}
		for _, c := range n.conditions {
			if c.Type == kind {
				condition = c
			}
		}
		answer.Conditions = append(answer.Conditions, condition)
	}
	return &runtimeapi.StatusResponse{
		Status:          answer,
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{}, {Name: "runc"}},
		Features:        &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}, nil
}

// RuntimeConfig returns the cgroup driver.
func (n *Node) RuntimeConfig(context.Context,
	*runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{
		Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: n.options.CgroupDriver}}, nil
}

// UpdateRuntimeConfig accepts anything.
func (n *Node) UpdateRuntimeConfig(context.Context,
	*runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// ReopenContainerLog reopens the log of a running container after a rotation.
func (n *Node) ReopenContainerLog(_ context.Context,
	r *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, err := n.find(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if !c.is(runtimeapi.ContainerState_CONTAINER_RUNNING) {
		return nil, status.Error(codes.Unknown, "container is not running")
	}
	if c.log != nil {
		log, err := openLog(c.status.LogPath)
		if err != nil {
			return nil, status.Error(codes.Unknown, err.Error())
		}
		c.log.Close()
		c.log = log
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}
