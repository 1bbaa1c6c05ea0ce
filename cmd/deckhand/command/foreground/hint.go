package foreground

import (
	"cmp"
	"net"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// URL is an address of a pod for clients on this host.
type URL struct{ Pod, Address string }

// URLs returns a URL for each TCP port of the ready pods, for clients on this host. The URL has the port's host port if
// there is one. Otherwise it has the port on the host's network for pods in that network, or on the pod's IP.
func URLs(s local.Snapshot) []URL {
	var urls []URL
	for i := range s.Pods {
		p := s.Pods[i].Pod
		if !podstatus.Ready(p) {
			continue
		}
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			for _, port := range c.Ports {
				if port.Protocol != "" && port.Protocol != v1.ProtocolTCP {
					continue
				}
				if a := cmp.Or(byHostPort(p, port), byHostNetwork(p, port), byPodIP(p, port)); a != "" {
					urls = append(urls, URL{p.Name, "http://" + a + "/"})
				}
			}
		}
	}
	return urls
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
