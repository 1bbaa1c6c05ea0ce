package node

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// StopContainer sends the stop signal (only once, even if called repeatedly), waits for the timeout and kills the
// container if it still runs. A container that is missing or doesn't run isn't an error.
func (n *Node) StopContainer(ctx context.Context,
	r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	n.mu.Lock()
	c := n.containers[r.GetContainerId()]
	if c == nil || !c.is(runtimeapi.ContainerState_CONTAINER_RUNNING) {
		n.mu.Unlock()
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if r.GetTimeout() > 0 {
		n.signal(c)
	}
	n.mu.Unlock()

	if r.GetTimeout() > 0 {
		select {
		case <-c.stopped:
			return &runtimeapi.StopContainerResponse{}, nil
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-time.After(pod.Seconds(r.GetTimeout())):
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end(c, exitKilled, "")
	return &runtimeapi.StopContainerResponse{}, nil
}

func (n *Node) signal(c *container) {
	if c.signalled {
		return
	}
	c.signalled = true
	b := c.behaviour
	switch s := c.status.StopSignal; {
	case s == runtimeapi.Signal_SIGKILL:
		n.end(c, exitKilled, "")
	case b.IgnoreTerm == 0, s != runtimeapi.Signal_SIGTERM && s != runtimeapi.Signal_SIGINT:
		n.end(c, b.TermCode, "")
	case b.IgnoreTerm != Forever:
		n.endLater(c, b.IgnoreTerm, b.TermCode, "")
	}
}

// endLater schedules the end of c after d, and replaces an end scheduled before. Even with d = 0 it happens after
// the current call.
func (n *Node) endLater(c *container, d time.Duration, code int32, reason string) {
	n.cancelExit(c)
	n.sleepers.Add(1)
	c.exit = time.AfterFunc(d, func() {
		defer n.sleepers.Done()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.end(c, code, reason)
	})
}

func (n *Node) cancelExit(c *container) {
	if c.exit != nil && c.exit.Stop() {
		n.sleepers.Done()
	}
	c.exit = nil
}

// end ends a running container and publishes the event. As in containerd, if the runtime is down when a container ends,
// its exit code is lost.
func (n *Node) end(c *container, code int32, reason string) {
	if !c.is(runtimeapi.ContainerState_CONTAINER_RUNNING) {
		return
	}
	if n.down {
		code, reason = exitUnknown, "Unknown"
	}
	n.finish(c, code, reason, "")
	n.publish(c.sandbox, c.id(), runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	// The kernel kills the remaining processes of a PID namespace when its first process ends.
	if processes(c.config).GetPid() != runtimeapi.NamespaceMode_CONTAINER {
		return
	}
	for _, other := range c.sandbox.inOrder() {
		if targetOf(other.config) == c.id() {
			n.end(other, exitKilled, "")
		}
	}
}

// finish sets a container's state to exited, without an event.
func (n *Node) finish(c *container, code int32, reason, message string) {
	if reason == "" {
		reason = "Completed"
		if code != 0 {
			reason = "Error"
		}
	}
	n.cancelExit(c)
	if c.log != nil {
		c.log.Close()
		c.log = nil
	}
	if n.running[c.slot()] == c.id() {
		delete(n.running, c.slot())
	}
	c.set(func(st *runtimeapi.ContainerStatus) {
		st.State = runtimeapi.ContainerState_CONTAINER_EXITED
		st.FinishedAt = time.Now().UnixNano()
		st.ExitCode, st.Reason, st.Message = code, reason, message
	})
	close(c.stopped)
}

// noteRunning records a violation if another instance of the same container of the pod runs.
func (n *Node) noteRunning(c *container) {
	slot := c.slot()
	if other, runs := n.running[slot]; runs {
		n.violations = append(n.violations, fmt.Sprintf(
			"container %s (%s, attempt %d) was started while instance %s of it ran", slot, c.id(),
			c.config.GetMetadata().GetAttempt(), other))
	}
	n.running[slot] = c.id()
}
