package foreground

import (
	"net"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// URL returns an address at which one of the ready pods can be reached from this
// host: by a host port, on the host's network, or by its own IP, in that order. It
// is empty if no pod has a TCP port.
func URL(s local.Snapshot) string {
	for _, address := range []func(*v1.Pod, v1.ContainerPort) string{byHostPort, byHostNetwork, byPodIP} {
		for i := range s.Pods {
			p := s.Pods[i].Pod
			if !podstatus.Ready(p) {
				continue
			}
			for j := range p.Spec.Containers {
				for _, port := range p.Spec.Containers[j].Ports {
					if port.Protocol != "" && port.Protocol != v1.ProtocolTCP {
						continue
					}
					if a := address(p, port); a != "" {
						return "http://" + a + "/"
					}
				}
			}
		}
	}
	return ""
}

func byHostPort(p *v1.Pod, port v1.ContainerPort) string {
	if port.HostPort == 0 || p.Spec.HostNetwork {
		return ""
	}
	ip := port.HostIP
	if ip == "" || ip == "0.0.0.0" {
		ip = "127.0.0.1"
	}
	return join(ip, port.HostPort)
}

func byHostNetwork(p *v1.Pod, port v1.ContainerPort) string {
	if !p.Spec.HostNetwork {
		return ""
	}
	return join("127.0.0.1", port.ContainerPort)
}

func byPodIP(p *v1.Pod, port v1.ContainerPort) string {
	if p.Status.PodIP == "" {
		return ""
	}
	return join(p.Status.PodIP, port.ContainerPort)
}

func join(ip string, port int32) string {
	return net.JoinHostPort(ip, strconv.Itoa(int(port)))
}
