package node

import runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

// SetDown sets whether the runtime's process is down. While it is, events are lost, including those kept for the
// next reader.
func (n *Node) SetDown(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
	if down {
		n.events.Forget()
	}
}

// Reboot simulates a power cycle of the node: no sandbox is ready or has an address, and containers that ran have
// exited with 255, Unknown.
func (n *Node) Reboot() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.containers {
		if c.is(runtimeapi.ContainerState_CONTAINER_RUNNING) {
			n.finish(c, exitUnknown, "Unknown", "")
		}
	}
	for _, s := range n.sandboxes {
		n.ips.Release(s.ip)
		s.ip = ""
		s.set(func(st *runtimeapi.PodSandboxStatus) {
			st.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
			st.Network = &runtimeapi.PodSandboxNetworkStatus{}
		})
	}
}

// EndStreams ends every event stream after its queued events.
func (n *Node) EndStreams() { n.events.Shutdown() }

// Close ends all containers without events, and waits for ends in progress.
func (n *Node) Close() {
	n.mu.Lock()
	n.down = true
	for _, c := range n.containers {
		if c.is(runtimeapi.ContainerState_CONTAINER_RUNNING) {
			n.finish(c, exitUnknown, "Unknown", "")
		}
	}
	n.mu.Unlock()
	n.sleepers.Wait()
}
