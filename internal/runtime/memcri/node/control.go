package node

import (
	"fmt"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Behave sets the behaviour of containers that are created from now on, if key is their name, their image as
// specified, or the first word of their command (with or without its directory). The first match in this order
// counts.
func (n *Node) Behave(key string, b Behaviour) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.behaviours[key] = b
}

// Exit ends a running container with code. With an empty reason, the reason depends on the code: Completed or
// Error. For running out of memory use 137, "OOMKilled".
func (n *Node) Exit(containerID string, code int32, reason string) error {
	return n.withRunning(containerID, func(c *container) error {
		n.end(c, code, reason)
		return nil
	})
}

// SetMemory sets the memory usage of a running container in bytes.
func (n *Node) SetMemory(containerID string, bytes uint64) error {
	return n.withRunning(containerID, func(c *container) error {
		c.memory = bytes
		return nil
	})
}

// SetLayer sets the usage of a running container's writable layer.
func (n *Node) SetLayer(containerID string, bytes, inodes uint64) error {
	return n.withRunning(containerID, func(c *container) error {
		c.bytes, c.inodes = bytes, inodes
		return nil
	})
}

// WriteLog writes a line to the log of a running container; stream is "stdout"
// or "stderr". It needs Options.WriteLogs.
func (n *Node) WriteLog(containerID, stream, line string) error {
	return n.withRunning(containerID, func(c *container) error {
		if c.log == nil {
			return fmt.Errorf("container %s has no log file", containerID)
		}
		return c.log.Write(stream, line)
	})
}

func (n *Node) withRunning(id string, do func(*container) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, err := n.find(id)
	if err != nil {
		return err
	}
	if !c.is(runtimeapi.ContainerState_CONTAINER_RUNNING) {
		return fmt.Errorf("container %s doesn't run: it is %s", id, c.status.State)
	}
	return do(c)
}

// KillSandbox simulates the death of a sandbox's pause process: the sandbox becomes NotReady, its containers
// continue and it keeps its address until it is stopped.
func (n *Node) KillSandbox(id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	sb := n.sandboxes[id]
	if sb == nil {
		return fmt.Errorf("no sandbox %s", id)
	}
	sb.set(func(st *runtimeapi.PodSandboxStatus) { st.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY })
	n.publish(sb, id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	return nil
}

// SetExec sets the function that ExecSync calls. f may be called concurrently.
func (n *Node) SetExec(f ExecFunc) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.exec = f
}

// SetCondition sets one condition in the answer of Status ("NetworkReady").
func (n *Node) SetCondition(c *runtimeapi.RuntimeCondition) {
	n.mu.Lock()
	defer n.mu.Unlock()
	others := slices.DeleteFunc(slices.Clone(n.conditions), func(old *runtimeapi.RuntimeCondition) bool {
		return old.Type == c.Type
	})
	n.conditions = append(others, c)
}

// DropEvents starts or stops dropping events.
func (n *Node) DropEvents(drop bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropEvents = drop
}

// NoEvents disables GetContainerEvents, as in a runtime that doesn't implement it. Open streams stay open and
// silent.
func (n *Node) NoEvents() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noEvents = true
}

// EventsMissed returns how many events readers missed because they fell behind, or because there was no reader for
// too long.
func (n *Node) EventsMissed() int { return n.events.Dropped() }

// Violations lists each time a container was started while another instance of it ran. Containers are identified by
// the kubelet's labels, or by pod UID and container name if those are missing.
func (n *Node) Violations() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.violations)
}

// Sandboxes returns every sandbox's status; read-only.
func (n *Node) Sandboxes() []*runtimeapi.PodSandboxStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]*runtimeapi.PodSandboxStatus, 0, len(n.sandboxes))
	for _, sb := range n.sandboxes {
		all = append(all, sb.status)
	}
	return all
}

// Containers returns every container's status; read-only.
func (n *Node) Containers() []*runtimeapi.ContainerStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]*runtimeapi.ContainerStatus, 0, len(n.containers))
	for _, c := range n.containers {
		all = append(all, c.status)
	}
	return all
}
