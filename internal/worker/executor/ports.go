package executor

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/host/kernel"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Ports provides the listeners on the host's ports.
type Ports interface {
	Listeners() ([]kernel.Listener, error)
	// Owner returns a process that has the listener's socket open, and whether it has found one.
	Owner(kernel.Listener) (kernel.Process, bool)
}

// takenPorts returns an event for each host port of the containers on which another process listens. Admission checks
// only the ports of pods. As with the kubelet, the pod runs nevertheless: the port may be free when the pod needs it.
func (r *Executor) takenPorts(p *v1.Pod, containers ...*v1.Container) []pod.Event {
	var listeners []kernel.Listener
	var events []pod.Event
	for _, c := range containers {
		for i := range c.Ports {
			port := &c.Ports[i]
			if port.HostPort == 0 {
				continue
			}
			if listeners == nil {
				var err error
				if listeners, err = r.cfg.Ports.Listeners(); err != nil {
					r.cfg.Log.Error(err, "Can't check whether the pod's host ports are in use", "pod", klog.KObj(p))
					return nil
				}
			}
			if message := r.taken(p, port, listeners); message != "" {
				events = append(events, pod.Event{Type: v1.EventTypeWarning, Reason: pod.ReasonHostPortConflict,
					Container: c.Name, Message: message})
			}
		}
	}
	return events
}

// taken returns a message about the process that uses a port and the consequence for the pod; empty if the port is
// free.
func (r *Executor) taken(p *v1.Pod, port *v1.ContainerPort, listeners []kernel.Listener) string {
	protocol := cmp.Or(port.Protocol, v1.ProtocolTCP)
	for _, l := range listeners {
		if l.Protocol != protocol || int32(l.Port) != port.HostPort ||
			!overlap(port.HostIP, l.Address, p.Spec.HostNetwork) {
			continue
		}
		by := "another program"
		if owner, ok := r.cfg.Ports.Owner(l); ok {
			if inPod(owner, p.UID) {
				continue // another container of the pod, or an earlier instance that is ending
			}
			by = fmt.Sprintf("%s (process %d)", owner.Name, owner.PID)
		}
		what := fmt.Sprintf("Port %d/%s of the host is in use by %s, which listens on %s", port.HostPort, protocol, by,
			netip.AddrPortFrom(l.Address, l.Port))
		consequence := "connections to that port now go to the pod and no longer to that program, also from the host " +
			"itself; use another hostPort, or end that program"
		if p.Spec.HostNetwork {
			consequence = "with hostNetwork the container can't listen on it as well; use another port, or end that " +
				"program"
		}
		return what + ": " + consequence
	}
	return ""
}

// overlap reports whether a listener conflicts with a host port on hostIP, which is empty for all addresses. A
// container in the host network may declare a port for all addresses but listen on some of them only. For such a
// container, only a listener on all addresses counts as a conflict.
func overlap(hostIP string, listener netip.Addr, hostNetwork bool) bool {
	ip, err := netip.ParseAddr(hostIP)
	if err != nil || ip.IsUnspecified() {
		return listener.IsUnspecified() || !hostNetwork
	}
	return ip == listener || listener.IsUnspecified() && (ip.Is4() || listener.Is6())
}

// inPod reports whether a process is in one of the pod's cgroups, with either cgroup driver.
func inPod(process kernel.Process, uid types.UID) bool {
	return uid != "" && (strings.Contains(process.Cgroups, "pod"+string(uid)) ||
		strings.Contains(process.Cgroups, "pod"+strings.ReplaceAll(string(uid), "-", "_")))
}
