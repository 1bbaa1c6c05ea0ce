package cri

import (
	"context"
	"encoding/json"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type rt = internalapi.RuntimeService

// Version reports the runtime's name and version.
func (c *Conn) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	return get(ctx, c, c.runtime, "version", "", func(ctx context.Context, s rt) (*runtimeapi.VersionResponse, error) {
		return s.Version(ctx, "v1")
	})
}

// Status reports the runtime's conditions (RuntimeReady, NetworkReady) and features.
func (c *Conn) Status(ctx context.Context) (*runtimeapi.StatusResponse, error) {
	return get(ctx, c, c.runtime, "status", "", func(ctx context.Context, s rt) (*runtimeapi.StatusResponse, error) {
		return s.Status(ctx, false)
	})
}

// RuntimeConfig reports the runtime's cgroup driver.
func (c *Conn) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return get(ctx, c, c.runtime, "runtime_config",
		"", func(ctx context.Context, s rt) (*runtimeapi.RuntimeConfigResponse, error) {
			return s.RuntimeConfig(ctx)
		})
}

// RunPodSandbox creates and starts a sandbox and returns its ID.
func (c *Conn) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	m := config.GetMetadata()
	return get(ctx, c, c.runtime, "run_podsandbox", m.GetNamespace()+"/"+m.GetName(),
		func(ctx context.Context, s rt) (string, error) {
			return s.RunPodSandbox(ctx, config, handler)
		})
}

// StopPodSandbox stops all containers in a sandbox and tears down its network. A missing sandbox isn't an error.
func (c *Conn) StopPodSandbox(ctx context.Context, id string) error {
	return call(ctx, c, c.runtime, "stop_podsandbox", id, func(ctx context.Context, s rt) error {
		return s.StopPodSandbox(ctx, id)
	})
}

// RemovePodSandbox removes a sandbox with its containers. A missing sandbox isn't an error.
func (c *Conn) RemovePodSandbox(ctx context.Context, id string) error {
	return call(ctx, c, c.runtime, "remove_podsandbox", id, func(ctx context.Context, s rt) error {
		return s.RemovePodSandbox(ctx, id)
	})
}

// ListPodSandbox lists sandboxes; a nil filter lists all.
func (c *Conn) ListPodSandbox(ctx context.Context,
	filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return get(ctx, c, c.runtime, "list_podsandbox",
		"", func(ctx context.Context, s rt) ([]*runtimeapi.PodSandbox, error) {
			return s.ListPodSandbox(ctx, filter)
		})
}

// PodSandboxStatus returns the status of one sandbox, including addresses.
func (c *Conn) PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	return get(ctx, c, c.runtime, "podsandbox_status", id,
		func(ctx context.Context, s rt) (*runtimeapi.PodSandboxStatus, error) {
			r, err := s.PodSandboxStatus(ctx, id, false)
			return r.GetStatus(), err
		})
}

// SandboxImage returns the sandbox's image from the verbose status of containerd and CRI-O; empty with other
// runtimes.
func (c *Conn) SandboxImage(ctx context.Context, id string) (string, error) {
	return get(ctx, c, c.runtime, "podsandbox_status", id, func(ctx context.Context, s rt) (string, error) {
		r, err := s.PodSandboxStatus(ctx, id, true)
		var info struct{ Image string }
		if err == nil {
			_ = json.Unmarshal([]byte(r.GetInfo()["info"]), &info) // other runtimes have another format
		}
		return info.Image, err
	})
}

// CreateContainer creates a container in a sandbox and returns its ID. sandbox is the configuration that the
// sandbox was created with.
func (c *Conn) CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig,
	sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	return get(ctx, c, c.runtime, "create_container", config.GetMetadata().GetName(),
		func(ctx context.Context, s rt) (string, error) {
			return s.CreateContainer(ctx, sandboxID, config, sandbox)
		})
}

// StartContainer starts a created container. The error message doesn't include the ID, so that repeated failures
// are aggregated into one event with a count.
func (c *Conn) StartContainer(ctx context.Context, id string) error {
	return call(ctx, c, c.runtime, "start_container", "", func(ctx context.Context, s rt) error {
		return s.StartContainer(ctx, id)
	})
}

// StopContainer stops a container with its stop signal, and kills it after grace, which is rounded up to seconds.
func (c *Conn) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	return call(ctx, c, c.runtime, "stop_container", id, func(ctx context.Context, s rt) error {
		return s.StopContainer(ctx, id, wholeSeconds(grace))
	})
}

// RemoveContainer removes a container, killing it if it runs. A missing container isn't an error.
func (c *Conn) RemoveContainer(ctx context.Context, id string) error {
	return call(ctx, c, c.runtime, "remove_container", id, func(ctx context.Context, s rt) error {
		return s.RemoveContainer(ctx, id)
	})
}

// ListContainers lists containers; a nil filter lists all.
func (c *Conn) ListContainers(ctx context.Context,
	filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return get(ctx, c, c.runtime, "list_containers",
		"", func(ctx context.Context, s rt) ([]*runtimeapi.Container, error) {
			return s.ListContainers(ctx, filter)
		})
}

// ContainerStatus returns the status of one container, with times, exit code and mounts.
func (c *Conn) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	return get(ctx, c, c.runtime, "container_status", id,
		func(ctx context.Context, s rt) (*runtimeapi.ContainerStatus, error) {
			r, err := s.ContainerStatus(ctx, id, false)
			return r.GetStatus(), err
		})
}

// UpdateContainerResources changes the resources of a container in place. Fields that are 0 stay unchanged; -1
// removes a CPU quota or a memory limit.
func (c *Conn) UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error {
	return call(ctx, c, c.runtime, "update_container", id, func(ctx context.Context, s rt) error {
		return s.UpdateContainerResources(ctx, id, &runtimeapi.ContainerResources{Linux: r})
	})
}

// UpdatePodSandboxResources notifies the runtime of the new resources of the whole pod, and of its overhead. They
// matter to runtimes that enforce pod-level limits, such as with a virtual machine or in plugins.
func (c *Conn) UpdatePodSandboxResources(ctx context.Context, id string, overhead,
	resources *runtimeapi.LinuxContainerResources) error {
	return call(ctx, c, c.runtime, "update_podsandbox", id, func(ctx context.Context, s rt) error {
		_, err := s.UpdatePodSandboxResources(ctx,
			&runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: id, Overhead: overhead, Resources: resources})
		return err
	})
}

// ContainerStats returns the resource usage of a running container.
func (c *Conn) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	return get(ctx, c, c.runtime, "container_stats", id,
		func(ctx context.Context, s rt) (*runtimeapi.ContainerStats, error) {
			return s.ContainerStats(ctx, id)
		})
}

// ReopenContainerLog makes the runtime create a new log file after the old one was moved away.
func (c *Conn) ReopenContainerLog(ctx context.Context, id string) error {
	return call(ctx, c, c.runtime, "reopen_container_log", id, func(ctx context.Context, s rt) error {
		return s.ReopenContainerLog(ctx, id)
	})
}

// Exec prepares a command in a container, and returns the URL of its streams.
func (c *Conn) Exec(ctx context.Context, r *runtimeapi.ExecRequest) (string, error) {
	return get(ctx, c, c.runtime, "exec", r.GetContainerId(), func(ctx context.Context, s rt) (string, error) {
		response, err := s.Exec(ctx, r)
		return response.GetUrl(), err
	})
}

// Attach prepares streams from and to a container's main process, and returns their URL.
func (c *Conn) Attach(ctx context.Context, r *runtimeapi.AttachRequest) (string, error) {
	return get(ctx, c, c.runtime, "attach", r.GetContainerId(), func(ctx context.Context, s rt) (string, error) {
		response, err := s.Attach(ctx, r)
		return response.GetUrl(), err
	})
}

// PortForward prepares connections to ports of a sandbox, and returns their URL.
func (c *Conn) PortForward(ctx context.Context, r *runtimeapi.PortForwardRequest) (string, error) {
	return get(ctx, c, c.runtime, "port_forward", r.GetPodSandboxId(), func(ctx context.Context, s rt) (string, error) {
		response, err := s.PortForward(ctx, r)
		return response.GetUrl(), err
	})
}

// CheckpointContainer writes a container's memory and files into an archive. The request's timeout replaces the
// default one if it is longer.
func (c *Conn) CheckpointContainer(ctx context.Context, r *runtimeapi.CheckpointContainerRequest) error {
	id := r.GetContainerId()
	c.countCheckpoint(id, 1)
	defer c.countCheckpoint(id, -1)
	return call(ctx, c, c.runtime, "checkpoint_container", id, func(ctx context.Context, s rt) error {
		return s.CheckpointContainer(ctx, r)
	})
}

func (c *Conn) countCheckpoint(id string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.checkpoints[id] += n; c.checkpoints[id] == 0 {
		delete(c.checkpoints, id)
	}
}

// Checkpointing reports whether a checkpoint of the container is in progress. The processes of the container are
// frozen meanwhile.
func (c *Conn) Checkpointing(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checkpoints[id] > 0
}

// longest replaces longer durations, so that sums of durations can't overflow.
const longest = 100 * 365 * 24 * time.Hour

// wholeSeconds rounds a duration up to seconds. It doesn't round down, because a timeout of 0 means "at once" or
// "never" in the CRI.
func wholeSeconds(d time.Duration) int64 {
	return int64((min(max(d, 0), longest) + time.Second - 1) / time.Second)
}
