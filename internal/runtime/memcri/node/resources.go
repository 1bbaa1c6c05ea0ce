package node

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// defaultMemory is the memory usage of a running container without SetMemory.
const defaultMemory = 1 << 20

// UpdateContainerResources changes the resources that are set in the request. As runc on cgroup v1, it refuses to
// set the memory limit of a running container below its usage.
func (n *Node) UpdateContainerResources(_ context.Context,
	r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, err := n.find(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if limit := r.GetLinux().GetMemoryLimitInBytes(); limit > 0 && c.is(runtimeapi.ContainerState_CONTAINER_RUNNING) &&
		uint64(limit) < c.memory {
		return nil, status.Errorf(codes.Unknown,
			"failed to update resources: unable to set memory limit to %d (current usage: %d)", limit, c.memory)
	}
	c.set(func(st *runtimeapi.ContainerStatus) {
		st.Resources = &runtimeapi.ContainerResources{Linux: merged(st.GetResources().GetLinux(), r.GetLinux())}
	})
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// merged returns old with the fields that are set in change.
func merged(old, change *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	out := &runtimeapi.LinuxContainerResources{
		CpuPeriod:              cmp.Or(change.GetCpuPeriod(), old.GetCpuPeriod()),
		CpuQuota:               cmp.Or(change.GetCpuQuota(), old.GetCpuQuota()),
		CpuShares:              cmp.Or(change.GetCpuShares(), old.GetCpuShares()),
		MemoryLimitInBytes:     cmp.Or(change.GetMemoryLimitInBytes(), old.GetMemoryLimitInBytes()),
		MemorySwapLimitInBytes: cmp.Or(change.GetMemorySwapLimitInBytes(), old.GetMemorySwapLimitInBytes()),
		OomScoreAdj:            old.GetOomScoreAdj(),
		CpusetCpus:             cmp.Or(change.GetCpusetCpus(), old.GetCpusetCpus()),
		CpusetMems:             cmp.Or(change.GetCpusetMems(), old.GetCpusetMems()),
		HugepageLimits:         old.GetHugepageLimits(),
		Unified:                old.GetUnified(),
	}
	if len(change.GetUnified()) > 0 {
		out.Unified = change.GetUnified()
	}
	return out
}

// ContainerStats returns the memory and disk usage of a running container; it fails for others.
func (n *Node) ContainerStats(_ context.Context,
	r *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, err := n.find(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if !c.is(runtimeapi.ContainerState_CONTAINER_RUNNING) {
		return nil, status.Error(codes.Unknown, "unexpected metrics response: []")
	}
	now, memory := time.Now().UnixNano(), &runtimeapi.UInt64Value{Value: c.memory}
	return &runtimeapi.ContainerStatsResponse{Stats: &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{Id: c.id(), Metadata: c.status.Metadata, Labels: c.status.Labels,
			Annotations: c.status.Annotations},
		Cpu:    &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{}},
		Memory: &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: memory, UsageBytes: memory, RssBytes: memory},
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: now, UsedBytes: &runtimeapi.UInt64Value{Value: c.bytes},
			InodesUsed: &runtimeapi.UInt64Value{Value: c.inodes},
		},
	}}, nil
}
