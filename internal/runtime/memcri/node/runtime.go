package node

import (
	"cmp"
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/memcri/crilog"
	"github.com/deckhand-node/deckhand/internal/runtime/memcri/program"
)

// ExecFunc says what a command run in a container comes to.
type ExecFunc func(container *runtimeapi.ContainerStatus, command []string) ExecResult

// ExecResult is what came of a command run in a container.
type ExecResult struct {
	Stdout, Stderr string
	Code           int32
	// Takes is how long it runs; past the call's timeout it is killed.
	Takes time.Duration
	// Err makes the call itself fail.
	Err error
}

// Version names the runtime.
func (n *Node) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: "memcri", RuntimeVersion: "v1.0.0", RuntimeApiVersion: "v1",
	}, nil
}

// Status tells the conditions RuntimeReady and NetworkReady, true unless SetCondition said otherwise.
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

// RuntimeConfig tells the cgroup driver.
func (n *Node) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: n.options.CgroupDriver}}, nil
}

// UpdateRuntimeConfig accepts anything.
func (n *Node) UpdateRuntimeConfig(context.Context, *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// UpdateContainerResources changes the resources that are set in the request.
func (n *Node) UpdateContainerResources(_ context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, err := n.find(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	c.set(func(st *runtimeapi.ContainerStatus) {
		st.Resources = &runtimeapi.ContainerResources{Linux: merged(st.GetResources().GetLinux(), r.GetLinux())}
	})
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// merged is old with what is set in change.
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

// ReopenContainerLog opens the log of a running container anew, after rotation.
func (n *Node) ReopenContainerLog(_ context.Context, r *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
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
		log, err := crilog.Open(c.status.LogPath)
		if err != nil {
			return nil, status.Error(codes.Unknown, err.Error())
		}
		c.log.Close()
		c.log = log
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

// ExecSync runs a command in a running container, as SetExec scripted it. Without
// a script the command does what it would as a container's own.
func (n *Node) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	n.mu.Lock()
	c, err := n.find(r.GetContainerId())
	if err != nil {
		n.mu.Unlock()
		return nil, err
	}
	exec, st := n.exec, c.status
	n.mu.Unlock()
	if st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, status.Errorf(codes.Unknown, "failed to exec in container: container is in %s state", st.State)
	}
	if exec == nil {
		exec = n.execProgram
	}
	res := exec(st, r.GetCmd())
	if r.GetTimeout() > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.GetTimeout())*time.Second)
		defer cancel()
	}
	if res.Takes > 0 {
		t := time.NewTimer(res.Takes)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return nil, execTimeout(ctx)
		case <-t.C:
		}
	}
	if res.Err != nil {
		return nil, res.Err
	}
	return &runtimeapi.ExecSyncResponse{Stdout: []byte(res.Stdout), Stderr: []byte(res.Stderr), ExitCode: res.Code}, nil
}

// execProgram lets the program say what a command comes to.
func (n *Node) execProgram(_ *runtimeapi.ContainerStatus, command []string) ExecResult {
	b := n.options.Program(command)
	res := ExecResult{Code: b.ExitCode, Takes: b.ExitAfter}
	for _, line := range b.Output {
		if line.Stderr {
			res.Stderr += line.Text + "\n"
		} else {
			res.Stdout += line.Text + "\n"
		}
	}
	if !b.Exits {
		res.Takes = program.Forever
	}
	return res
}

func execTimeout(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return status.Error(codes.DeadlineExceeded, "failed to exec in container: timeout exceeded: context deadline exceeded")
	}
	return status.FromContextError(ctx.Err()).Err()
}
