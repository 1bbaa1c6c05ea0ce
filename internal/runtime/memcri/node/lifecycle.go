package node

import runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

// SetDown says whether the runtime's process is down. While it is, events get
// lost, those that were kept for a next reader too.
func (n *Node) SetDown(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
	if down {
		n.events.Forget()
	}
}

// Reboot makes the node look as after it was switched off and on again: no
// sandbox is ready or has an address, and what ran has exited with 255, Unknown.
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

// EndStreams ends every event stream after what its reader was already given.
func (n *Node) EndStreams() { n.events.Shutdown() }

// Close ends everything that runs, silently, and waits for what is under way.
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
